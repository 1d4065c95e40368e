//! REVERSE_SEQUENCE: the first elements along an axis in the opposite order, as many as each batch says.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::tflite::sequences::axes;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::REVERSE_SEQUENCE, reverse_sequence)];

fn reverse_sequence(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, turn(context))
}

fn turn<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, lengths) = (context.inputs.tensor(0)?, context.inputs.data::<i32>(1)?);
    let (sequence, batch) = axes(context.inputs.rules(), input.shape.rank())?;
    let most = input.shape.dim(sequence);
    // A negative length turns nothing, as 0 does.
    if let Some(length) = lengths
        .iter()
        .find(|length| i64::from(**length) > i64::from(most))
    {
        let message =
            format!("(lengths) holds {length}, must be at most {most}, the extent of axis {sequence}");
        return Err(OpError::input(1, message).into());
    }
    let source = input.data::<T>()?;
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let dims = input.dims();
    let run = count_of(&dims[sequence.max(batch) + 1..]);
    // Runs that a step along each of the two moves by.
    let [step, batch_step] = [sequence, batch].map(|axis| count_of(&dims[axis + 1..]) / run);
    for (number, to) in target.chunks_exact_mut(run).enumerate() {
        let at = number / step % dims[sequence] as usize;
        let length = lengths.get(number / batch_step % dims[batch] as usize);
        let length = length.map_or(0, |length| usize::try_from(*length).unwrap_or(0));
        let from = if at < length { length - 1 - at } else { at };
        let from = number - at * step + from * step;
        to.copy_from_slice(&source[from * run..][..run]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn turned(dims: &[u32], lengths: &[i32], axes: [i32; 2]) -> Result<Vec<i32>, String> {
        let values: Vec<i32> = (0..dims.iter().product::<u32>() as i32).collect();
        OneOperation::new(tflite::REVERSE_SEQUENCE)
            .tensor(T::TENSOR_INT32, dims, &values)
            .tensor(T::TENSOR_INT32, &[lengths.len() as u32], lengths)
            .i32(axes[0])
            .i32(axes[1])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()
            .map(|(_, data)| data)
    }

    #[test]
    fn each_batch_turns_as_many_as_it_says() {
        assert_eq!(turned(&[2, 3], &[2, 3], [1, 0]).unwrap(), [1, 0, 2, 5, 4, 3]);
        assert_eq!(turned(&[2, 3], &[2, 0, -1], [0, 1]).unwrap(), [3, 1, 2, 0, 4, 5]);
        assert_eq!(
            turned(&[2, 2, 1, 2], &[1, 2], [1, 0]).unwrap(),
            [0, 1, 2, 3, 6, 7, 4, 5]
        );
        assert_eq!(turned(&[0, 3], &[], [1, 0]).unwrap(), []);
    }

    #[test]
    fn axes_between_the_two_stay() {
        let found = turned(&[2, 2, 2], &[2, 0], [2, 0]).unwrap();
        assert_eq!(found, [1, 0, 3, 2, 4, 5, 6, 7]);
        let found = turned(&[2, 2, 2], &[2, 0], [0, 2]).unwrap();
        assert_eq!(found, [4, 1, 6, 3, 0, 5, 2, 7]);
    }

    #[test]
    fn lengths_and_axes_that_do_not_fit_give_an_error() {
        assert!(
            turned(&[2, 3], &[2, 4], [1, 0])
                .unwrap_err()
                .contains("(lengths) holds 4")
        );
        assert!(
            turned(&[2, 3], &[2], [1, 0])
                .unwrap_err()
                .contains("has 1 elements")
        );
        assert!(
            turned(&[2, 3], &[2, 2], [1, 1])
                .unwrap_err()
                .contains("(batch_axis)")
        );
        assert!(turned(&[2, 3], &[2, 2], [2, 0]).is_err());
        assert!(turned(&[2, 3], &[2, 2], [1, i32::MIN]).is_err());
    }
}
