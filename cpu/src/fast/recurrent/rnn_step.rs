//! RNN, which is one step of its cell, where all but its input and its state is constant: the sums become the
//! state where they are taken.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::rnn::ONE_CELL;

use super::cell::{PackedCell, constant, extents};
use crate::fast::exponential::SIDE_BY_SIDE;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::cell_activation::CellActivation;
use crate::plan::Declared;

/// The number of the activation among the inputs.
const ACTIVATION: usize = 5;

/// What such an operation knows beside its packed weights.
#[derive(Debug)]
pub(in crate::fast) struct RnnStep {
    values: usize,
    bias: Vec<f32>,
    activation: CellActivation,
}

impl RnnStep {
    /// That of an operation of this form.
    pub(in crate::fast) fn of(declared: &Declared<'_>) -> Option<RnnStep> {
        if declared.operation.operation_type != OperationType::RNN {
            return None;
        }
        let context: &dyn OperationContext = declared;
        let activation = CellActivation::from_code(ACTIVATION, context.i32(ACTIVATION).ok()?).ok()?;
        let [units, values] = extents(declared, ONE_CELL.first)?;
        let recurrent = extents(declared, ONE_CELL.first + 1)?;
        let bias = constant(declared, ONE_CELL.first + 2)?.to_vec();
        let fits = recurrent == [units, units] && bias.len() == units && units > 0 && values > 0;
        fits.then_some(RnnStep {
            values,
            bias,
            activation,
        })
    }

    /// Computes the operation with its packed weights.
    pub(in crate::fast) fn run(
        &self,
        context: &mut KernelContext<'_>,
        cell: &PackedCell,
    ) -> Result<(), KernelError> {
        let cell = cell.with(context.team);
        let inputs: &[f32] = context.inputs.data(0)?;
        let states: &[f32] = context.inputs.data(ONE_CELL.first + 3)?;
        let [new_states, outputs] = context.outputs.tensors([0, 1])?;
        let outputs = outputs.into_data::<f32>()?;
        let units = self.bias.len();
        let batches = inputs.chunks_exact(self.values).zip(states.chunks_exact(units));
        let range = self.activation.range();
        for ((input, state), output) in batches.zip(outputs.chunks_exact_mut(units)) {
            output.copy_from_slice(&self.bias);
            cell.add_and_clamp((input, None, state), output, range);
        }
        if let Some(function) = self.activation.function(&SIDE_BY_SIDE) {
            function(outputs);
        }
        new_states.into_data::<f32>()?.copy_from_slice(outputs);
        Ok(())
    }
}
