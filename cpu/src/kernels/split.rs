//! SPLIT: a tensor cut into equal parts along an axis.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::shapes::resolve_axis;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::SPLIT, split), (tflite::SPLIT, split)];

fn split(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, clamp(context))
}

fn clamp<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let source = input.data::<T>()?;
    let axis = resolve_axis(1, context.inputs.i32(1)?, input.shape.rank())?;
    if source.is_empty() {
        return Ok(());
    }
    let inner = count_of(&input.dims()[axis..]);
    let count = context.outputs.len();
    let run = inner / count.max(1);
    if run == 0 {
        return Ok(());
    }
    for number in 0..count {
        let target = context.outputs.data::<T>(number)?;
        for (to, row) in target.chunks_exact_mut(run).zip(source.chunks_exact(inner)) {
            let from = row
                .get(number * run..(number + 1) * run)
                .ok_or_else(|| OpError::output(number, "lies beyond the input"))?;
            to.copy_from_slice(from);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use crate::kernels::testing::{Computed, OneOperation};

    fn split(axis: i32, parts: i32) -> Result<Vec<Computed>, String> {
        OneOperation::new(OperationType::SPLIT)
            .tensor(T::TENSOR_INT32, &[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8])
            .i32(axis)
            .i32(parts)
            .output(T::TENSOR_INT32, &[0, 0])
            .output(T::TENSOR_INT32, &[0, 0])
            .run()
    }

    #[test]
    fn parts_keep_their_rows() {
        let parts = split(-1, 2).unwrap();
        assert_eq!(
            (&parts[0].dims[..], parts[0].data::<i32>()),
            (&[2, 2][..], vec![1, 2, 5, 6])
        );
        assert_eq!(parts[1].data::<i32>(), [3, 4, 7, 8]);
        let parts = split(0, 2).unwrap();
        assert_eq!(
            (&parts[1].dims[..], parts[1].data::<i32>()),
            (&[1, 4][..], vec![5, 6, 7, 8])
        );
    }

    #[test]
    fn part_counts_other_than_the_outputs_give_an_error() {
        for parts in [-1, 0, 1, 4, i32::MIN] {
            assert!(split(0, parts).unwrap_err().contains("(num_splits)"));
        }
        assert!(split(2, 2).unwrap_err().contains("axis 2"));
        assert!(split(-3, 2).is_err());
    }

    #[test]
    fn extents_that_the_parts_do_not_divide_give_an_error() {
        let result = OneOperation::new(OperationType::SPLIT)
            .tensor(T::TENSOR_INT32, &[3], &[1, 2, 3])
            .i32(0)
            .i32(2)
            .output(T::TENSOR_INT32, &[0])
            .output(T::TENSOR_INT32, &[0])
            .run();
        assert!(result.unwrap_err().contains("not a multiple of 2"));
    }
}
