use std::sync::Arc;

use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};
use nnhal_os::cores::OwnCores;

use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

const FUSED: &str = "f32 row by row, with the next";

/// Layer normalisation of a tensor.
#[derive(Clone, Copy, Debug)]
struct Case {
    dims: [u32; 3],
    /// Along which axis means are taken.
    axis: i32,
    keeps_axis: bool,
    /// Whether the second mean is an output of the model.
    is_output: bool,
}

const CASE: Case = Case {
    dims: [2, 7, 52],
    axis: -1,
    keeps_axis: true,
    is_output: false,
};

fn floats(dims: &[u32]) -> Operand {
    Operand::new(T::TENSOR_FLOAT32, dims)
}

impl Case {
    fn program(self, kernels: KernelSet) -> Arc<Program> {
        let mut graph = TestGraph::default();
        let [batch, rows, columns] = self.dims;
        let mut reduced = self.dims.to_vec();
        let axis = self.axis.rem_euclid(3) as usize;
        reduced[axis] = 1;
        if !self.keeps_axis {
            reduced.remove(axis);
        }
        let single = if self.axis == -1 {
            [batch, rows, 1]
        } else {
            [batch, 1, columns]
        };
        let all = floats(&self.dims);
        let [left, right] = [0, 1].map(|_| graph.input(all.clone()));
        let scale = graph.input(floats(&[columns]));
        let offset = graph.input(floats(&[1, 1, columns]));
        let none = graph.scalar(0);
        let axes = graph.constant(Operand::new(T::TENSOR_INT32, &[1]), &self.axis.to_ne_bytes());
        let keep = graph.scalar(i32::from(self.keeps_axis));
        let least = graph.constant(floats(&[1]), &1e-3_f32.to_ne_bytes());
        let value = graph.operation(O::ADD, &[left, right, none], all.clone());
        let mean = |graph: &mut TestGraph, of: u32| {
            let mean = graph.operation(O::MEAN, &[of, axes, keep], floats(&reduced));
            if self.keeps_axis {
                return mean;
            }
            let extents: Vec<u8> = single.iter().flat_map(|extent| extent.to_ne_bytes()).collect();
            let extents = graph.constant(Operand::new(T::TENSOR_INT32, &[3]), &extents);
            graph.operation(O::RESHAPE, &[mean, extents], floats(&single))
        };
        let of_values = mean(&mut graph, value);
        let difference = graph.operation(O::SUB, &[value, of_values, none], all.clone());
        let square = graph.operation(O::MUL, &[difference, difference, none], all.clone());
        let variance = mean(&mut graph, square);
        let singles = || floats(&single);
        // With a scale for each column.
        let scaled_singles = || {
            if self.axis == -1 {
                floats(&self.dims)
            } else {
                singles()
            }
        };
        let positive = graph.operation(O::ADD, &[variance, least, none], singles());
        let inverse = graph.operation(O::RSQRT, &[positive], singles());
        let factor = graph.operation(O::MUL, &[inverse, scale, none], scaled_singles());
        let scaled = graph.operation(O::MUL, &[value, factor, none], all.clone());
        let negative = graph.operation(O::NEG, &[of_values], singles());
        let moved = graph.operation(O::MUL, &[negative, factor, none], scaled_singles());
        let moved = graph.operation(O::ADD, &[moved, offset, none], scaled_singles());
        let result = graph.operation(O::ADD, &[scaled, moved, none], all);
        let mut outputs = vec![result];
        if self.is_output {
            outputs.push(variance);
        }
        Arc::new(Program::with_kernels(graph.valid(&outputs), &NoPools, kernels).unwrap())
    }

    /// The results, by one thread and three.
    fn results(self, program: &Arc<Program>) -> [Vec<f32>; 2] {
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        let [_, _, columns] = self.dims;
        [Threads::ALONE, Threads::new(&helpers, &cores, 3)].map(|threads| {
            let mut execution = Execution::new(Arc::clone(program));
            for (number, dims) in [&self.dims[..], &self.dims, &[columns], &[1, 1, columns]]
                .into_iter()
                .enumerate()
            {
                let input = execution.input(number, &Shape::new(dims).unwrap()).unwrap();
                for (at, value) in bytemuck::cast_slice_mut::<_, f32>(input).iter_mut().enumerate() {
                    *value = ((at * 7919 + number * 31) % 251) as f32 / 125.0 - 0.5;
                }
            }
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            execution.run(&options).unwrap();
            bytemuck::cast_slice(execution.output(0).unwrap().1).to_vec()
        })
    }

    fn assert_fused(self, is_fused: bool) {
        let [fast, reference] = [KernelSet::Fast, KernelSet::Reference].map(|set| self.program(set));
        let name = fast.kernel_name(SubgraphIndex::Main, 0, 1);
        assert_eq!(name == FUSED, is_fused, "{self:?}: {name}");
        let [exact, _] = self.results(&reference);
        for found in self.results(&fast) {
            assert_eq!(found.len(), exact.len());
            for (found, exact) in found.iter().zip(&exact) {
                assert!((found - exact).abs() < 1e-5, "{self:?}: {found}, not {exact}");
            }
        }
    }
}

#[test]
fn results_are_near_the_reference() {
    for dims in [[2, 7, 52], [1, 1, 2], [1, 300, 700], [3, 2, 17]] {
        Case { dims, ..CASE }.assert_fused(true);
    }
}

#[test]
fn other_axes_and_results_that_others_read_stay() {
    Case { axis: 1, ..CASE }.assert_fused(false);
    Case {
        keeps_axis: false,
        ..CASE
    }
    .assert_fused(false);
    Case {
        is_output: true,
        ..CASE
    }
    .assert_fused(false);
}
