//! BROADCAST_TO: a tensor repeated along its axes of extent 1 and along new ones in front.

use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::BROADCAST_TO, broadcast_to)];

fn broadcast_to(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, repeat(context))
}

fn repeat<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let mut steps = [0; MAX_RANK];
    let added = shape.rank().saturating_sub(input.shape.rank());
    let of_input = steps_of(input.dims());
    for (axis, (step, extent)) in of_input.iter().zip(input.dims()).enumerate() {
        // Where the extent is 1 the input stays where it is.
        steps[added + axis] = if *extent == 1 { 0 } else { *step };
    }
    copy_block(
        shape.dims(),
        input.data::<T>()?,
        &Layout::new(0, &steps[..shape.rank()]),
        output.into_data::<T>()?,
        &Layout::whole(shape.dims()),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn broadcast(shape: &[i32]) -> Result<(Vec<u32>, Vec<u8>), String> {
        OneOperation::new(tflite::BROADCAST_TO)
            .tensor(T::TENSOR_BOOL8, &[2, 1], &[1_u8, 0])
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .output(T::TENSOR_BOOL8, &[])
            .run_one()
    }

    #[test]
    fn single_extents_and_new_axes_repeat() {
        assert_eq!(broadcast(&[2, 1]).unwrap(), (vec![2, 1], vec![1, 0]));
        assert_eq!(broadcast(&[2, 2]).unwrap(), (vec![2, 2], vec![1, 1, 0, 0]));
        let found = broadcast(&[2, 2, 2]).unwrap();
        assert_eq!(found, (vec![2, 2, 2], vec![1, 1, 0, 0, 1, 1, 0, 0]));
        assert_eq!(broadcast(&[0, 2, 1]).unwrap(), (vec![0, 2, 1], vec![]));
    }

    #[test]
    fn shapes_that_do_not_fit_give_an_error() {
        assert!(broadcast(&[3, 1]).unwrap_err().contains("does not broadcast"));
        assert!(broadcast(&[1, 1]).unwrap_err().contains("does not broadcast"));
        assert!(broadcast(&[2]).unwrap_err().contains("does not broadcast"));
        assert!(broadcast(&[2, -1]).unwrap_err().contains("(shape)"));
        assert!(broadcast(&[i32::MAX, i32::MAX, 2, 1]).is_err());
        assert!(broadcast(&[1, 1, 1, 1, 1, 1, 1, 2, 1]).is_err());
    }
}
