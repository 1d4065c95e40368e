//! Layers of floats whose weights and input are integers, beside the reference: the results are the same, as
//! sums of integers up to 2^24 are exact in floats, too.

use std::sync::Arc;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};
use nnhal_os::buffer::AlignedBuffer;
use nnhal_os::cores::OwnCores;

use crate::fast::simd::multiplies_bytes;
use crate::interrupt::NeverInterrupted;
use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

/// How the input is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rounding {
    /// Scaled to -127 to 127 by the largest magnitude.
    Symmetric,
    /// Scaled by a constant, shifted, and clamped to -128 to 127, zero at this.
    Asymmetric(f32),
    /// Scaled by a constant and nothing else.
    Scaled(f32),
}

/// A layer.
#[derive(Clone, Copy, Debug)]
struct Case {
    rounding: Rounding,
    /// Batch, height, width and channels.
    input: [u32; 4],
    columns: u32,
    /// Height and width; none for a fully connected layer.
    filter: Option<[u32; 2]>,
    stride: u32,
    /// Whether the result is scaled by a row, or by one number.
    by_row: bool,
    /// What the row, or the number, is multiplied with.
    sign: f32,
    /// Whether something is added to the result.
    adds: bool,
    /// What the weights are multiplied with.
    weights: f32,
    activation: i32,
}

const CASE: Case = Case {
    rounding: Rounding::Symmetric,
    input: [1, 7, 5, 12],
    columns: 20,
    filter: Some([1, 1]),
    stride: 1,
    by_row: true,
    sign: 1.0,
    adds: true,
    weights: 1.0,
    activation: 1,
};

fn float(dims: &[u32]) -> Operand {
    Operand::new(T::TENSOR_FLOAT32, dims)
}

impl Case {
    fn constant(graph: &mut TestGraph, values: &[f32]) -> u32 {
        graph.constant(float(&[values.len() as u32]), bytemuck::cast_slice(values))
    }

    fn binary(graph: &mut TestGraph, operation: O, [left, right]: [u32; 2], dims: &[u32]) -> u32 {
        let mut inputs = vec![left, right];
        if !matches!(operation, O::MAXIMUM | O::MINIMUM) {
            inputs.push(graph.scalar(0));
        }
        graph.operation(operation, &inputs, float(dims))
    }

    /// Rounds to nearest, ties away from zero.
    fn round(graph: &mut TestGraph, value: u32, dims: &[u32]) -> u32 {
        let negative = graph.operation(O::NEG, &[value], float(dims));
        let half = Case::constant(graph, &[0.5]);
        let [below, above] = [negative, value].map(|value| {
            let clamp = graph.operation(O::RELU, &[value], float(dims));
            let sum = Case::binary(graph, O::ADD, [clamp, half], dims);
            graph.operation(O::FLOOR, &[sum], float(dims))
        });
        Case::binary(graph, O::SUB, [above, below], dims)
    }

    /// The rounded input, and what the result is scaled with beside a row.
    fn rounded(&self, graph: &mut TestGraph, input: u32) -> (u32, u32) {
        let dims = &self.input;
        match self.rounding {
            Rounding::Symmetric => {
                let magnitudes = graph.operation(O::ABS, &[input], float(dims));
                let axes = Operand::new(T::TENSOR_INT32, &[4]);
                let axes = graph.constant(axes, bytemuck::cast_slice(&[0_i32, 1, 2, 3]));
                let keeps = graph.constant(Operand::new(T::BOOL, &[]), &[1]);
                let range = graph.operation(O::REDUCE_MAX, &[magnitudes, axes, keeps], float(&[1; 4]));
                let least = Case::constant(graph, &[1e-30]);
                let range = graph.operation(O::MAXIMUM, &[range, least], float(&[1; 4]));
                let most = Case::constant(graph, &[127.0]);
                let inverse = Case::binary(graph, O::DIV, [most, range], &[1; 4]);
                let scaled = Case::binary(graph, O::MUL, [input, inverse], dims);
                let rounded = Case::round(graph, scaled, dims);
                let most = Case::constant(graph, &[127.0]);
                (rounded, Case::binary(graph, O::DIV, [range, most], &[1; 4]))
            }
            Rounding::Asymmetric(zero) => {
                let [scale, zero, low, high] =
                    [3.7, zero, -128.0, 127.0].map(|value| Case::constant(graph, &[value]));
                let scaled = Case::binary(graph, O::MUL, [input, scale], dims);
                let shifted = Case::binary(graph, O::ADD, [scaled, zero], dims);
                let rounded = Case::round(graph, shifted, dims);
                let rounded = Case::binary(graph, O::MAXIMUM, [rounded, low], dims);
                let rounded = Case::binary(graph, O::MINIMUM, [rounded, high], dims);
                let rounded = Case::binary(graph, O::SUB, [rounded, zero], dims);
                (rounded, Case::constant(graph, &[0.25]))
            }
            Rounding::Scaled(scale) => {
                let scale = Case::constant(graph, &[scale]);
                let scaled = Case::binary(graph, O::MUL, [input, scale], dims);
                (Case::round(graph, scaled, dims), Case::constant(graph, &[0.5]))
            }
        }
    }

    fn model(&self) -> (Arc<ValidModel>, usize) {
        let mut graph = TestGraph::default();
        let input = graph.input(float(&self.input));
        let (rounded, scale) = self.rounded(&mut graph, input);
        let mut operations = graph.model.main.operations.iter();
        let first = operations
            .position(|operation| operation.operation_type == O::MUL)
            .unwrap();
        let [batch, height, width, channels] = self.input;
        let (rows, weights, output) = match self.filter {
            Some([high, wide]) => {
                let extents = [height, width].map(|extent| extent.div_ceil(self.stride));
                let output = vec![batch, extents[0], extents[1], self.columns];
                (
                    batch * extents[0] * extents[1],
                    vec![self.columns, high, wide, channels],
                    output,
                )
            }
            None => (
                batch * height * width,
                vec![self.columns, channels],
                vec![batch * height * width, self.columns],
            ),
        };
        let count: u32 = weights.iter().product();
        let values: Vec<f32> = (0..count)
            .map(|at| ((at * 37 % 255) as f32 - 127.0) * self.weights)
            .collect();
        let weights = graph.constant(float(&weights), bytemuck::cast_slice(&values));
        let bias = graph.constant(float(&[self.columns]), &vec![0; 4 * self.columns as usize]);
        let mut inputs = vec![rounded, weights, bias];
        let operation = match self.filter {
            // SAME, strides.
            Some(_) => {
                inputs.extend([1, self.stride as i32, self.stride as i32].map(|value| graph.scalar(value)));
                O::CONV_2D
            }
            None => O::FULLY_CONNECTED,
        };
        inputs.push(graph.scalar(0));
        let sums = graph.operation(operation, &inputs, float(&output));
        let row: Vec<f32> = (0..self.columns)
            .map(|at| 0.001 * self.sign * (at as f32 + 1.0))
            .collect();
        let scale = if self.by_row {
            let row = Case::constant(&mut graph, &row);
            let dims = if self.rounding == Rounding::Symmetric {
                vec![1, 1, 1, self.columns]
            } else {
                vec![self.columns]
            };
            Case::binary(&mut graph, O::MUL, [scale, row], &dims)
        } else {
            scale
        };
        // Of fully connected layers the results have two dimensions.
        let is_flat = self.filter.is_none() && self.rounding == Rounding::Symmetric;
        let scaled_dims = if is_flat {
            vec![1, 1, rows, self.columns]
        } else {
            output.clone()
        };
        let scaled = Case::binary(&mut graph, O::MUL, [sums, scale], &scaled_dims);
        if !self.adds {
            return (graph.valid(&[scaled]), first);
        }
        let addend = Case::constant(
            &mut graph,
            &row.iter().map(|at| at * 100.0 - 1.0).collect::<Vec<_>>(),
        );
        let activation = graph.scalar(self.activation);
        let result = graph.operation(O::ADD, &[scaled, addend, activation], float(&scaled_dims));
        (graph.valid(&[result]), first)
    }

    /// Runs it with an input in which `special` is.
    fn outputs(&self, program: Arc<Program>, special: Option<f32>) -> Vec<u32> {
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        let mut execution = Execution::new(program);
        execution.reserve();
        let results = [Threads::ALONE, Threads::new(&helpers, &cores, 3)].map(|threads| {
            let input = execution.input(0, &Shape::new(&self.input).unwrap()).unwrap();
            let values: &mut [f32] = bytemuck::cast_slice_mut(input);
            for (at, value) in values.iter_mut().enumerate() {
                *value = ((at * 7919) % 2003) as f32 * 0.03 - 20.0;
            }
            if let Some(special) = special {
                values[values.len() / 2] = special;
            }
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            execution.run(&options).unwrap();
            let result: &[u32] = bytemuck::cast_slice(execution.output(0).unwrap().1);
            result.to_vec()
        });
        assert_eq!(results[0], results[1], "{self:?}");
        results[0].clone()
    }

    /// Checks that the result is that of the reference; says whether operations were computed together, and
    /// restores the program from what is kept of it.
    fn is_grouped(&self, special: Option<f32>) -> bool {
        let (model, first) = self.model();
        let prepared = |kernels| Program::with_kernels(Arc::clone(&model), &NoPools, kernels).unwrap();
        let program = Arc::new(prepared(KernelSet::Fast));
        let exact = self.outputs(Arc::new(prepared(KernelSet::Reference)), special);
        let alike = |found: Vec<u32>| {
            // Which NaN it is depends on the order of operands.
            let known = |bits: &u32| {
                if f32::from_bits(*bits).is_nan() {
                    None
                } else {
                    Some(*bits)
                }
            };
            assert!(
                found.iter().map(known).eq(exact.iter().map(known)),
                "{self:?} {special:?}"
            );
        };
        alike(self.outputs(Arc::clone(&program), special));
        let kept = program.compiled().unwrap().joined();
        let kept = AlignedBuffer::copy_of(&kept).unwrap().into();
        let restored = Program::restore(Arc::clone(&model), &NoPools, kept, &NeverInterrupted);
        alike(self.outputs(Arc::new(restored.unwrap()), special));
        let last = model.model().main.operations.len() - 1;
        let name = program.kernel_name(SubgraphIndex::Main, first, 1);
        let is_grouped = name == "integers of floats as bytes, with the next";
        if is_grouped {
            let with = program.computed_with(SubgraphIndex::Main, last, 1);
            assert_eq!(with, Some(first), "{self:?}");
        }
        is_grouped
    }
}

#[test]
fn layers_of_integers_have_the_results_of_their_operations() {
    let filters = [Some([1, 1]), Some([3, 3]), Some([2, 3]), None];
    for filter in filters {
        for channels in [3, 4, 12, 64] {
            for (columns, stride) in [(1, 1), (20, 2), (70, 1)] {
                let case = Case {
                    filter,
                    columns,
                    stride: if filter.is_none() { 1 } else { stride },
                    input: [1, 7, 5, channels],
                    ..CASE
                };
                assert_eq!(case.is_grouped(None), multiplies_bytes(), "{case:?}");
            }
        }
    }
}

#[test]
fn zero_may_be_anywhere_and_the_scale_one_number() {
    for zero in [-128.0, -3.0, 0.0, 127.0] {
        for by_row in [false, true] {
            for input in [[1, 9, 4, 8], [2, 5, 4, 3]] {
                let case = Case {
                    rounding: Rounding::Asymmetric(zero),
                    filter: Some([3, 3]),
                    activation: 0,
                    input,
                    by_row,
                    ..CASE
                };
                assert_eq!(case.is_grouped(None), multiplies_bytes(), "{case:?}");
            }
        }
    }
}

#[test]
fn results_without_addend_keep_the_sign_of_zero() {
    for sign in [1.0, -1.0] {
        for filter in [Some([3, 3]), None] {
            // Nothing but zeros, where `special` is not, so that most sums are 0.
            let case = Case {
                rounding: Rounding::Scaled(1e-3),
                adds: false,
                filter,
                sign,
                ..CASE
            };
            assert_eq!(case.is_grouped(None), multiplies_bytes(), "{case:?}");
            assert_eq!(case.is_grouped(Some(3000.0)), multiplies_bytes(), "{case:?}");
        }
    }
}

#[test]
fn single_rows_and_long_ones_are_products_of_bytes() {
    for input in [[1, 1, 1, 640], [3, 1, 1, 129]] {
        let case = Case {
            rounding: Rounding::Scaled(5.0),
            filter: None,
            columns: 300,
            input,
            ..CASE
        };
        assert_eq!(case.is_grouped(None), multiplies_bytes(), "{case:?}");
    }
}

#[test]
fn values_that_fit_no_bytes_are_multiplied_as_floats() {
    // More than 255 apart; no numbers.
    let wide = Case {
        rounding: Rounding::Scaled(8.0),
        ..CASE
    };
    assert_eq!(wide.is_grouped(None), multiplies_bytes());
    // Integers of floats are exact up to some size, whatever the order of sums.
    for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e4, -1e4, -0.0] {
        for rounding in [
            Rounding::Symmetric,
            Rounding::Asymmetric(5.0),
            Rounding::Scaled(1.0),
        ] {
            let case = Case { rounding, ..CASE };
            assert_eq!(case.is_grouped(Some(special)), multiplies_bytes());
        }
    }
}

#[test]
fn weights_that_are_no_bytes_are_floats() {
    for weights in [0.5, 2.0] {
        assert!(!Case { weights, ..CASE }.is_grouped(None));
    }
}
