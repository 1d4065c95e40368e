//! FULLY_CONNECTED of a single row of 32-bit floats with constant weights, of which everything is known when
//! the model is prepared. Each weight is read once, so that it takes as long as they come out of the cache:
//! they lie in the order in which they are read, and nothing else is worked out before.

use nnhal_hal::OperandType;
use nnhal_hal::ops::OpError;
use nnhal_os::buffer::AlignedSlice;

use super::matrix_vector::{PackedMatrix, ROWS_OF_GROUP};
use super::stored_weights::{Precision, Stored};
use crate::fast::PlannedStep;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::threads::{Cost, Parts, Team};

/// The step of such a layer.
#[derive(Debug)]
pub(in crate::fast) struct SingleRowStep {
    matrix: PackedMatrix,
    weights: AlignedSlice,
    stored: Stored,
    /// By column.
    bias: Vec<f32>,
    depth: usize,
    /// What results are clamped to.
    range: (f32, f32),
}

impl SingleRowStep {
    /// Packs `depth` weights for each of the biases' columns; `weight(column, at)` gives them.
    pub(in crate::fast) fn new(
        depth: usize,
        bias: &[f32],
        range: (f32, f32),
        (packing, is_relaxed): (&mut Packing, bool),
        weight: impl Fn(usize, usize) -> f32,
    ) -> Result<SingleRowStep, PackingError> {
        let all = || (0..bias.len() * depth).map(|at| weight(at / depth, at % depth));
        let stored = Stored::choose(is_relaxed, packing, all)?;
        let matrix = PackedMatrix::new(bias.len(), depth, stored.precision);
        let weights = packing.part(matrix.size(), |bytes| matrix.pack(weight, bytes))?;
        Ok(SingleRowStep {
            matrix,
            weights,
            stored,
            bias: bias.to_vec(),
            depth,
            range,
        })
    }

    fn multiply(&self, row: &[f32], output: &mut [f32], team: &Team<'_>) {
        let weights = self.weights.bytes();
        let columns_from = |first: usize, output: &mut [f32]| {
            output.copy_from_slice(&self.bias[first..][..output.len()]);
            self.matrix
                .add_products(weights, row, (first, output), self.range);
        };
        let parts = team.parts_for(Cost {
            multiply_adds: 0,
            bytes: weights.len() as u64,
        });
        if parts == Parts::ONE {
            return columns_from(0, output);
        }
        let grid = partition::elements(parts, output.len(), ROWS_OF_GROUP);
        let none: &mut [u8] = &mut [];
        team.for_each_block(parts.threads, &grid, (output, none), |mut block, _| {
            columns_from(block.columns().start, block.all());
        });
    }
}

impl PlannedStep for SingleRowStep {
    fn name(&self, _: OperandType) -> &'static str {
        match self.stored.precision {
            Precision::Single => "f32 matrix-vector product",
            Precision::Half => "f32 matrix-vector product, f16 weights",
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let row = context.inputs.data(0)?;
        let output = context.outputs.data(0)?;
        if (row.len(), output.len()) != (self.depth, self.bias.len()) {
            let message = format!("has {} elements, must have {}", row.len(), self.depth);
            return Err(OpError::input(0, message).into());
        }
        self.multiply(row, output, context.team);
        Ok(())
    }

    fn packed(&self) -> Vec<&AlignedSlice> {
        self.stored.packed(&self.weights)
    }

    fn clamp(&mut self, activation: Activation) -> bool {
        let cuts_nothing = self.range == Activation::None.range();
        if cuts_nothing {
            self.range = activation.range();
        }
        cuts_nothing
    }

    /// No execution has another shape than the one that it is packed for.
    fn replaces_filter(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType, SubgraphIndex};

    use crate::kernels::testing::OneOperation;
    use crate::test_graph::TestGraph;
    use crate::{Execution, Program};
    use crate::{KernelSet, RunOptions};

    fn ramp(count: u32) -> Vec<f32> {
        (0..count)
            .map(|at| ((at * 37) % 101) as f32 / 50.0 - 1.0)
            .collect()
    }

    fn layer([columns, depth]: [u32; 2], activation: i32) -> OneOperation {
        let tensor = |one: OneOperation, dims: &[u32]| {
            one.tensor(T::TENSOR_FLOAT32, dims, &ramp(dims.iter().product()))
        };
        let one = tensor(OneOperation::new(OperationType::FULLY_CONNECTED), &[1, depth]);
        tensor(tensor(one, &[columns, depth]), &[columns])
            .i32(activation)
            .with_constants()
            .output(T::TENSOR_FLOAT32, &[1, columns])
    }

    #[test]
    fn results_are_those_of_the_reference_whatever_the_size() {
        for size in [
            [1, 1],
            [8, 3],
            [13, 70],
            [64, 20],
            [100, 33],
            [200, 128],
            [777, 5],
        ] {
            for activation in 0..4 {
                let compute = |kernels| {
                    let outputs = layer(size, activation).run_by(kernels, &RunOptions::default());
                    outputs.unwrap()[0].data::<f32>()
                };
                let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
                assert_eq!(found.len(), exact.len());
                for (found, exact) in found.iter().zip(&exact) {
                    assert!(
                        (found - exact).abs() < 1e-4,
                        "{size:?} {activation}: {found} {exact}"
                    );
                }
            }
        }
    }

    /// What computes a layer on an input of these dimensions.
    fn kernel_name(input: &[u32]) -> &'static str {
        let float = |dims: &[u32]| Operand::new(T::TENSOR_FLOAT32, dims);
        let mut graph = TestGraph::default();
        let row = graph.input(float(input));
        let weights = graph.constant(float(&[2, 6]), bytemuck::cast_slice(&ramp(12)));
        let bias = graph.constant(float(&[2]), bytemuck::cast_slice(&[0.5_f32, -1.0]));
        let activation = graph.constant(Operand::new(T::INT32, &[]), &1_i32.to_ne_bytes());
        let inputs = [row, weights, bias, activation];
        let output = graph.operation(OperationType::FULLY_CONNECTED, &inputs, float(&[0, 2]));
        let program = Program::with_kernels(graph.valid(&[output]), &NoPools, KernelSet::Fast).unwrap();
        Arc::new(program).kernel_name(SubgraphIndex::Main, 0, 1)
    }

    /// Of such a layer nothing is known to be wrong before it is executed, if the model does not say that it
    /// has no values.
    #[test]
    fn layers_of_no_values_are_none_and_stop_nobody() {
        for bias in [[0.0_f32; 2], [1.0, 2.0]] {
            let float = |dims: &[u32]| Operand::new(T::TENSOR_FLOAT32, dims);
            let ints = Operand::new(T::TENSOR_INT32, &[2]);
            let mut graph = TestGraph::default();
            let all = graph.constant(float(&[2, 3]), bytemuck::cast_slice(&ramp(6)));
            let begin = graph.constant(ints.clone(), bytemuck::cast_slice(&[0_i32; 2]));
            let size = graph.constant(ints, bytemuck::cast_slice(&[2_i32, 0]));
            let none = graph.operation(OperationType::SLICE, &[all, begin, size], float(&[0, 0]));
            let bias = graph.constant(float(&[2]), bytemuck::cast_slice(&bias));
            let activation = graph.scalar(0);
            let inputs = [none, none, bias, activation];
            let output = graph.operation(OperationType::FULLY_CONNECTED, &inputs, float(&[0, 2]));
            let program = Program::with_kernels(graph.valid(&[output]), &NoPools, KernelSet::Fast);
            let refused =
                program.map(|program| Execution::new(Arc::new(program)).run(&RunOptions::default()));
            assert!(!matches!(refused, Ok(Ok(()))), "{refused:?}");
        }
    }

    #[test]
    fn only_layers_of_one_row_in_every_execution_are_such() {
        assert_eq!(kernel_name(&[1, 6]), "f32 matrix-vector product");
        assert_eq!(kernel_name(&[1, 2, 3]), "f32 matrix-vector product");
        for other in [&[2, 6][..], &[0, 6], &[1, 12]] {
            assert_ne!(kernel_name(other), "f32 matrix-vector product", "{other:?}");
        }
    }
}
