//! DYNAMIC_UPDATE_SLICE: a tensor with a part of it replaced, at a place that is known only at execution.

use nnhal_hal::{OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::DYNAMIC_UPDATE_SLICE, update)];

fn update(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, replace(context))
}

/// The update moves to where it lies inside, if its start would leave it outside.
fn replace<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, update) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let starts = context.inputs.data::<i32>(2)?;
    let target = context.outputs.data::<T>(0)?;
    target.copy_from_slice(input.data::<T>()?);
    let steps = steps_of(input.dims());
    let mut start = 0_isize;
    for (axis, wanted) in starts.iter().enumerate().take(input.shape.rank()) {
        let most = input.shape.dim(axis).saturating_sub(update.shape.dim(axis));
        let at = i64::from(*wanted).clamp(0, most.into()) as isize;
        start = start.saturating_add(at.saturating_mul(steps[axis]));
    }
    copy_block(
        update.dims(),
        update.data::<T>()?,
        &Layout::whole(update.dims()),
        target,
        &Layout::new(start, &steps[..input.shape.rank()]),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn update(dims: &[u32], start: &[i32]) -> Result<Vec<i32>, String> {
        let count = dims.iter().product::<u32>() as usize;
        OneOperation::new(tflite::DYNAMIC_UPDATE_SLICE)
            .tensor(T::TENSOR_INT32, &[2, 3], &[1, 2, 3, 4, 5, 6])
            .tensor(T::TENSOR_INT32, dims, &vec![0; count])
            .tensor(T::TENSOR_INT32, &[start.len() as u32], start)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>()
            .map(|(_, data)| data)
    }

    #[test]
    fn updates_are_moved_inside() {
        assert_eq!(update(&[1, 2], &[1, 0]).unwrap(), [1, 2, 3, 0, 0, 6]);
        assert_eq!(
            update(&[1, 2], &[i32::MIN, i32::MAX]).unwrap(),
            [1, 0, 0, 4, 5, 6]
        );
        assert_eq!(update(&[0, 2], &[1, 1]).unwrap(), [1, 2, 3, 4, 5, 6]);
        assert!(update(&[3, 1], &[0, 0]).unwrap_err().contains("must fit"));
        assert!(update(&[1], &[0]).unwrap_err().contains("must fit"));
        assert!(
            update(&[1, 1], &[0])
                .unwrap_err()
                .contains("(start) has 1 elements")
        );
    }
}
