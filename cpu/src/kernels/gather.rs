//! GATHER: slices of a tensor along an axis, picked by indices.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::shapes::resolve_axis;

use super::blocks::by_element_size;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::GATHER, gather)];

fn gather(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, pick(context))
}

fn pick<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let indices = context.inputs.data::<i32>(2)?;
    let axis = resolve_axis(1, context.inputs.i32(1)?, input.shape.rank())?;
    let extent = input.shape.dim(axis) as usize;
    if let Some(index) = indices.iter().find(|index| !in_range(**index, extent)) {
        let message =
            format!("(indices) holds {index}, must be from 0 to below {extent}, the extent of axis {axis}");
        return Err(OpError::input(2, message).into());
    }
    let target = context.outputs.data::<T>(0)?;
    if target.is_empty() {
        return Ok(());
    }
    let run: usize = input.dims()[axis + 1..].iter().map(|dim| *dim as usize).product();
    let blocks = input.data::<T>()?.chunks_exact(extent * run);
    for (to, from) in target.chunks_exact_mut(indices.len() * run).zip(blocks) {
        for (to, index) in to.chunks_exact_mut(run).zip(indices) {
            to.copy_from_slice(&from[*index as usize * run..][..run]);
        }
    }
    Ok(())
}

fn in_range(index: i32, extent: usize) -> bool {
    usize::try_from(index).is_ok_and(|index| index < extent)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{MAX_RANK, OperandType as T, OperationType};

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
    fn results_beyond_the_highest_rank_give_an_error() {
        assert!(gather(0, &[1; MAX_RANK], &[0]).unwrap_err().contains("rank"));
    }
}
