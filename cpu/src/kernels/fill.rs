//! FILL and RANK: a tensor from its dimensions, and the number of a tensor's dimensions.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::blocks::by_element_size;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::FILL, fill),
    (tflite::FILL, fill),
    (OperationType::RANK, rank),
];

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
    use nnhal_hal::{MAX_RANK, Operand, OperandType as T, OperationType, tflite};

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
    fn every_type_is_filled_with_a_tensor_of_one_element() {
        let truths = OneOperation::new(tflite::FILL)
            .tensor(T::TENSOR_INT32, &[1], &[3])
            .tensor(T::TENSOR_BOOL8, &[1], &[1_u8])
            .output(T::TENSOR_BOOL8, &[])
            .run_one::<u8>();
        assert_eq!(truths.unwrap(), (vec![3], vec![1; 3]));
        let steps = |values: &[i16], scale| {
            let operand = |dims: &[u32]| Operand::new(T::TENSOR_QUANT16_SYMM, dims);
            OneOperation::new(tflite::FILL)
                .tensor(T::TENSOR_INT32, &[1], &[2])
                .operand(operand(&[values.len() as u32]).with_quantization(0.5, 0), values)
                .output_operand(operand(&[2]).with_quantization(scale, 0))
                .run_one::<i16>()
        };
        assert_eq!(steps(&[-300], 0.5).unwrap().1, [-300, -300]);
        assert!(steps(&[-300, 1], 0.5).unwrap_err().contains("(value)"));
        assert!(steps(&[-300], 0.25).unwrap_err().contains("scale"));
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
