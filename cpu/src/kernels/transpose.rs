//! TRANSPOSE: a tensor with its axes in another order.

use nnhal_hal::ops::transpose::permutation;
use nnhal_hal::ops::{OperationContext, ShapeIssue};
use nnhal_hal::{MAX_RANK, OperationType, tflite};

use super::blocks::{BlockCopy, Layout, by_element_size, steps_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::TRANSPOSE, transpose),
    (tflite::TRANSPOSE, transpose),
];

fn transpose(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, permute(context))
}

fn permute<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let copy = copy_of(context.inputs.rules())?;
    let from = context.inputs.data::<T>(0)?;
    copy.copy(from, context.outputs.data::<T>(0)?)
}

/// What a TRANSPOSE copies.
pub(crate) fn copy_of(context: &dyn OperationContext) -> Result<BlockCopy, ShapeIssue> {
    let shape = context.shape(0)?;
    let rank = shape.rank();
    let axes = permutation(context, rank)?;
    let steps = steps_of(shape.dims());
    let (mut extents, mut permuted) = ([0; MAX_RANK], [0; MAX_RANK]);
    for ((extent, step), axis) in extents.iter_mut().zip(&mut permuted).zip(&axes[..rank]) {
        *extent = shape.dim(*axis);
        *step = steps[*axis];
    }
    let extents = &extents[..rank];
    Ok(BlockCopy::new(
        extents,
        &Layout::new(0, &permuted[..rank]),
        &Layout::whole(extents),
    ))
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn transpose(permutation: Option<&[i32]>) -> Result<(Vec<u32>, Vec<f32>), String> {
        let operation = OneOperation::new(OperationType::TRANSPOSE).tensor(
            T::TENSOR_FLOAT32,
            &[1, 2, 3],
            &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0],
        );
        match permutation {
            Some(axes) => operation.tensor(T::TENSOR_INT32, &[axes.len() as u32], axes),
            None => operation.omitted(T::TENSOR_INT32),
        }
        .output(T::TENSOR_FLOAT32, &[])
        .run_one()
    }

    #[test]
    fn omitted_permutation_reverses_the_axes() {
        let (dims, data) = transpose(None).unwrap();
        assert_eq!((dims, data), (vec![3, 2, 1], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
        assert_eq!(transpose(Some(&[2, 1, 0])), transpose(None));
    }

    #[test]
    fn lists_that_are_no_permutation_give_an_error() {
        for axes in [
            &[0, 1][..],
            &[0, 1, 1],
            &[0, 1, 3],
            &[-1, 0, 1],
            &[0, 1, 2, 0],
            &[i32::MAX, i32::MIN, 0],
        ] {
            assert!(transpose(Some(axes)).unwrap_err().contains("(permutation)"));
        }
    }

    #[test]
    fn six_axes_of_any_type_change_places() {
        let result = OneOperation::new(tflite::TRANSPOSE)
            .tensor(T::TENSOR_INT32, &[1, 2, 1, 1, 1, 3], &[1, 2, 3, 4, 5, 6])
            .tensor(T::TENSOR_INT32, &[6], &[5, 0, 1, 2, 3, 4])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert_eq!(result.unwrap(), (vec![3, 1, 2, 1, 1, 1], vec![1, 4, 2, 5, 3, 6]));
        let result = OneOperation::new(tflite::TRANSPOSE)
            .tensor(
                tflite::TENSOR_INT64,
                &[2, 2],
                &[1_i64 << 40, 2 << 40, -3 << 40, 4],
            )
            .omitted(T::TENSOR_INT32)
            .output(tflite::TENSOR_INT64, &[])
            .run_one::<i64>();
        assert_eq!(result.unwrap(), (vec![2, 2], vec![1 << 40, -3 << 40, 2 << 40, 4]));
    }
}
