//! GATHER: slices of a tensor along an axis, picked by indices.

use nnhal_hal::ops::OpError;
use nnhal_hal::ops::gather::batch_axes;
use nnhal_hal::ops::shapes::resolve_axis;
use nnhal_hal::{OperationType, tflite};

use super::blocks::{by_element_size, count_of};
use super::index::{Index, by_index};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::GATHER, gather), (tflite::GATHER, gather)];

fn gather(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, pick(context))
}

fn pick<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_index!(context, 2, pick_by::<T>(context))
}

fn pick_by<T: bytemuck::Pod, I: Index>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let indices = context.inputs.tensor(2)?;
    let axis = resolve_axis(1, context.inputs.i32(1)?, input.shape.rank())?;
    let batch = batch_axes(context.inputs.rules(), axis, &input.shape, &indices.shape)?;
    let picked = &indices.dims()[batch..];
    let indices = indices.data::<I>()?;
    let extent = input.shape.dim(axis) as usize;
    if let Some(index) = indices.iter().find(|index| index.below(extent).is_none()) {
        let message =
            format!("(indices) holds {index}, must be from 0 to below {extent}, the extent of axis {axis}");
        return Err(OpError::input(2, message).into());
    }
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let run = count_of(&input.dims()[axis + 1..]);
    let (picked, of_one_batch) = (count_of(picked), count_of(&input.dims()[batch..axis]));
    let blocks = input.data::<T>()?.chunks_exact(extent * run);
    let results = target.chunks_exact_mut(picked * run);
    for (number, (to, from)) in results.zip(blocks).enumerate() {
        let indices = &indices[number / of_one_batch * picked..][..picked];
        for (to, index) in to.chunks_exact_mut(run).zip(indices) {
            // All lie within the extent.
            let at = index.below(extent).unwrap_or(0);
            to.copy_from_slice(&from[at * run..][..run]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{MAX_RANK, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn gather(axis: i32, dims: &[u32], indices: &[i32]) -> Result<(Vec<u32>, Vec<i32>), String> {
        OneOperation::new(OperationType::GATHER)
            .tensor(T::TENSOR_INT32, &[2, 3], &[1, 2, 3, 4, 5, 6])
            .i32(axis)
            .tensor(T::TENSOR_INT32, dims, indices)
            .output(T::TENSOR_INT32, &[])
            .run_one()
    }

    #[test]
    fn indices_pick_in_their_order() {
        assert_eq!(gather(-1, &[2], &[2, 0]).unwrap(), (vec![2, 2], vec![3, 1, 6, 4]));
        assert_eq!(
            gather(0, &[1, 2], &[1, 1]).unwrap(),
            (vec![1, 2, 3], vec![4, 5, 6, 4, 5, 6])
        );
        assert_eq!(gather(0, &[0], &[]).unwrap(), (vec![0, 3], vec![]));
    }

    #[test]
    fn indices_outside_the_axis_give_an_error() {
        for index in [3, -1, i32::MIN, i32::MAX] {
            let error = gather(1, &[2], &[0, index]).unwrap_err();
            assert!(error.contains(&format!("(indices) holds {index}")), "{error}");
        }
        assert!(gather(2, &[1], &[0]).is_err());
    }

    #[test]
    fn indices_and_values_may_have_64_bits() {
        let gather = |indices: &[i64]| {
            OneOperation::new(tflite::GATHER)
                .tensor(tflite::TENSOR_INT64, &[3], &[5_i64 << 40, -1, 7 << 40])
                .i32(0)
                .tensor(tflite::TENSOR_INT64, &[indices.len() as u32], indices)
                .output(tflite::TENSOR_INT64, &[])
                .run_one::<i64>()
        };
        assert_eq!(gather(&[2, 0]).unwrap(), (vec![2], vec![7 << 40, 5 << 40]));
        let error = gather(&[0, 1 << 32]).unwrap_err();
        assert!(error.contains("(indices) holds 4294967296"), "{error}");
    }

    #[test]
    fn results_beyond_the_highest_rank_give_an_error() {
        assert!(gather(0, &[1; MAX_RANK], &[0]).unwrap_err().contains("rank"));
    }

    fn batched(batch: i32, axis: i32, indices: &[u32]) -> Result<(Vec<u32>, Vec<u8>), String> {
        let count = indices.iter().product::<u32>() as usize;
        OneOperation::new(tflite::GATHER)
            .tensor(T::TENSOR_BOOL8, &[2, 1, 3], &[1_u8, 2, 3, 4, 5, 6])
            .i32(axis)
            .tensor(T::TENSOR_INT32, indices, &[2, 0, 1, 1][..count])
            .i32(batch)
            .output(T::TENSOR_BOOL8, &[])
            .run_one()
    }

    #[test]
    fn each_batch_has_indices_of_its_own() {
        assert_eq!(batched(1, 2, &[2, 2]).unwrap(), (vec![2, 1, 2], vec![3, 1, 5, 5]));
        assert_eq!(batched(-1, 2, &[2, 1]).unwrap(), (vec![2, 1, 1], vec![3, 4]));
        assert_eq!(
            batched(2, 2, &[2, 1, 2]).unwrap(),
            (vec![2, 1, 2], vec![3, 1, 5, 5])
        );
        assert_eq!(batched(0, 2, &[2]).unwrap(), (vec![2, 1, 2], vec![3, 1, 6, 4]));
    }

    #[test]
    fn batches_that_input_and_indices_do_not_share_give_an_error() {
        assert!(batched(1, 2, &[1, 2]).unwrap_err().contains("must begin with"));
        for batch in [3, -3, i32::MIN, i32::MAX] {
            assert!(batched(batch, 2, &[2, 1]).unwrap_err().contains("(batch_dims)"));
        }
        assert!(batched(2, 1, &[2, 1]).unwrap_err().contains("(batch_dims) is 2"));
    }
}
