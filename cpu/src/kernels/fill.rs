//! FILL and RANK: a tensor from its dimensions, and the number of a tensor's dimensions.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;

use super::blocks::by_element_size;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::FILL, fill), (OperationType::RANK, rank)];

fn fill(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(1)?.ty();
    by_element_size!(ty, repeat_value(context))
}

fn repeat_value<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let [value] = context.inputs.data::<T>(1)? else {
        return Err(OpError::input(1, "(value) must be one scalar").into());
    };
    context.outputs.data::<T>(0)?.fill(*value);
    Ok(())
}

fn rank(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rank = context.inputs.tensor(0)?.shape.rank();
    // At most MAX_RANK.
    context.outputs.data::<i32>(0)?.fill(rank as i32);
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{MAX_RANK, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;

    fn fill(dims: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(OperationType::FILL)
            .tensor(T::TENSOR_INT32, &[dims.len() as u32], dims)
            .f32(2.5)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn fill_gives_the_dimensions_asked_for() {
        assert_eq!(fill(&[1, 3]).unwrap(), (vec![1, 3], vec![2.5; 3]));
        assert_eq!(fill(&[2, 0]).unwrap(), (vec![2, 0], vec![]));
    }

    #[test]
    fn dimensions_that_are_negative_enormous_or_too_many_give_an_error() {
        assert!(fill(&[2, -1]).unwrap_err().contains("(dims)"));
        assert!(fill(&[i32::MAX, i32::MAX]).is_err());
        assert!(fill(&[1 << 30]).is_err());
        assert!(fill(&[1; MAX_RANK + 1]).is_err());
        assert!(fill(&[]).is_err());
    }

    #[test]
    fn rank_is_a_scalar() {
        let result = OneOperation::new(OperationType::RANK)
            .tensor(T::TENSOR_BOOL8, &[1, 2, 1], &[0_u8, 1])
            .output(T::INT32, &[])
            .run_one::<i32>();
        assert_eq!(result.unwrap(), (vec![], vec![3]));
    }
}
