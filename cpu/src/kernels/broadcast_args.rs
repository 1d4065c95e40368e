//! BROADCAST_ARGS: the dimensions that two lists of dimensions broadcast to.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::BROADCAST_ARGS, broadcast_args)];

fn broadcast_args(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.data::<i32>(0)?, context.inputs.data::<i32>(1)?);
    let from_last = |list: &[i32], at: usize| list.iter().rev().nth(at).copied().unwrap_or(1);
    for (at, to) in context.outputs.data::<i32>(0)?.iter_mut().rev().enumerate() {
        *to = match (from_last(left, at), from_last(right, at)) {
            (one, other) if one == other || other == 1 => one,
            (1, other) => other,
            (one, other) => {
                let message = format!("{left:?} and {right:?} do not broadcast: {one} against {other}");
                return Err(OpError::operation(message).into());
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn broadcast(left: &[i32], right: &[i32]) -> Result<Vec<i32>, String> {
        let (_, data) = OneOperation::new(tflite::BROADCAST_ARGS)
            .tensor(T::TENSOR_INT32, &[left.len() as u32], left)
            .tensor(T::TENSOR_INT32, &[right.len() as u32], right)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()?;
        Ok(data)
    }

    #[test]
    fn lists_are_aligned_at_their_ends() {
        assert_eq!(broadcast(&[4, 1, 3], &[2, 1]).unwrap(), [4, 2, 3]);
        assert_eq!(broadcast(&[1], &[5, 0]).unwrap(), [5, 0]);
        assert_eq!(broadcast(&[], &[2]).unwrap(), [2]);
        assert_eq!(broadcast(&[], &[]).unwrap(), []);
    }

    #[test]
    fn lists_that_do_not_broadcast_give_an_error() {
        assert!(broadcast(&[2, 3], &[2]).unwrap_err().contains("3 against 2"));
        assert!(broadcast(&[0], &[-7]).unwrap_err().contains("0 against -7"));
    }
}
