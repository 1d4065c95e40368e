//! SVDF: a dense layer over time, approximated by filters of limited rank.
//!
//! Each step puts the feature filter's product with the input at the end of every filter's memory and takes
//! the product with the time filter; `rank` of these products are summed for each unit. The state is given
//! out shifted by one, with a 0 at the end for the next step to fill (HAL reference).

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;

use super::cell_activation::{CellActivation, EXACT};
use super::recurrent::{FloatInputs, dot, store};
use crate::kernel::{Inputs, Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::SVDF, svdf)];

/// The extents of a layer.
#[derive(Clone, Copy)]
pub(super) struct Extents {
    pub(super) batches: usize,
    /// Values of each batch's input.
    pub(super) values: usize,
    pub(super) filters: usize,
    /// Steps that each filter remembers.
    pub(super) memory: usize,
    /// Filters of each unit.
    pub(super) rank: usize,
}

impl Extents {
    pub(super) fn new(inputs: &Inputs<'_>) -> Result<Extents, KernelError> {
        let rank = usize::try_from(inputs.i32(5)?)
            .ok()
            .filter(|rank| *rank > 0)
            .ok_or_else(|| OpError::input(5, "(rank) must be above 0"))?;
        let (input, time) = (inputs.tensor(0)?.shape, inputs.tensor(2)?.shape);
        Ok(Extents {
            batches: input.dim(0) as usize,
            values: input.dim(1) as usize,
            filters: time.dim(0) as usize,
            memory: time.dim(1) as usize,
            rank,
        })
    }

    pub(super) fn units(&self) -> usize {
        self.filters / self.rank
    }
}

fn svdf(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let inputs = context.inputs;
    let extents = Extents::new(&inputs)?;
    let activation = CellActivation::from_code(6, inputs.i32(6)?)?;
    let Extents {
        batches,
        values,
        filters,
        memory,
        rank,
    } = extents;
    let units = extents.units();
    let columns = filters * memory;
    let lengths = [FloatInputs::memory(&inputs), batches * columns, batches * units];
    let [wide, state, output] = context.scratch.carve::<f32, 3>(lengths)?;
    let inputs = FloatInputs::new(inputs, wide)?;
    let (input, weights, time) = (inputs.required(0)?, inputs.required(1)?, inputs.required(2)?);
    let bias = inputs.optional(3)?;
    state.copy_from_slice(inputs.required(4)?);
    for batch in 0..batches {
        let item = &input[batch * values..][..values];
        let state = &mut state[batch * columns..][..columns];
        let output = &mut output[batch * units..][..units];
        match bias {
            Some(bias) => output.copy_from_slice(bias),
            None => output.fill(0.0),
        }
        for (filter, remembered) in state.chunks_exact_mut(memory).enumerate() {
            if let Some(newest) = remembered.last_mut() {
                *newest = dot(&weights[filter * values..][..values], item);
            }
            output[filter / rank] += dot(remembered, &time[filter * memory..][..memory]);
            remembered.copy_within(1.., 0);
            if let Some(next) = remembered.last_mut() {
                *next = 0.0;
            }
        }
        activation.apply(&EXACT, output);
    }
    store(context.outputs.tensor(0)?, state)?;
    store(context.outputs.tensor(1)?, output)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    /// Two filters of memory 2 on inputs of one value.
    fn svdf(rank: i32, activation: i32, state: &[f32]) -> Result<Vec<Computed>, String> {
        OneOperation::new(OperationType::SVDF)
            .tensor(T::TENSOR_FLOAT32, &[1, 1], &[3_f32])
            .tensor(T::TENSOR_FLOAT32, &[2, 1], &[1_f32, 2.0])
            .tensor(T::TENSOR_FLOAT32, &[2, 2], &[1_f32, 10.0, 1.0, 100.0])
            .omitted(T::TENSOR_FLOAT32)
            .tensor(T::TENSOR_FLOAT32, &[1, state.len() as u32], state)
            .i32(rank)
            .i32(activation)
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .output(T::TENSOR_FLOAT32, &[0, 0])
            .run()
    }

    #[test]
    fn newest_product_comes_last_and_the_state_is_given_out_shifted() {
        let outputs = svdf(2, 0, &[7.0, 0.0, 9.0, 0.0]).unwrap();
        assert_eq!(outputs[0].data::<f32>(), [3.0, 0.0, 6.0, 0.0]);
        assert_eq!(outputs[1].data::<f32>(), [7.0 + 30.0 + 9.0 + 600.0]);
        let per_filter = svdf(1, 3, &[7.0, 0.0, -1000.0, 0.0]).unwrap();
        assert_eq!(per_filter[1].data::<f32>(), [6.0, 0.0]);
    }

    #[test]
    fn tanh_and_logistic_are_activations() {
        let of_small =
            |activation| svdf(2, activation, &[-630.5, 0.0, 0.0, 0.0]).unwrap()[1].data::<f32>()[0];
        assert_eq!(of_small(0), -0.5);
        assert_eq!(of_small(4), (-0.5_f32).tanh());
        assert_eq!(of_small(6), 1.0 / (1.0 + 0.5_f32.exp()));
    }

    #[test]
    fn ranks_codes_and_states_that_do_not_fit_give_an_error() {
        for rank in [0, -1, 3, i32::MIN] {
            assert!(svdf(rank, 0, &[0.0; 4]).unwrap_err().contains("(rank)"), "{rank}");
        }
        assert!(svdf(1, 5, &[0.0; 4]).unwrap_err().contains("(activation) is 5"));
        assert!(svdf(1, 0, &[0.0; 3]).unwrap_err().contains("input 4"));
    }
}
