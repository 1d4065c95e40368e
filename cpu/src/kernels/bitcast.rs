//! BITCAST: the bytes of a tensor as they are.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(tflite::BITCAST, |context: &mut KernelContext<'_>| {
        let input = context.inputs.tensor(0)?;
        let output = context.outputs.tensor(0)?;
        if input.bytes.len() != output.bytes.len() {
            let message = format!(
                "has {} bytes, must have as many as the output: {}",
                input.bytes.len(),
                output.bytes.len()
            );
            return Err(OpError::input(0, message).into());
        }
        output.bytes.copy_from_slice(input.bytes);
        Ok(())
    })];

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn signed(dims: &[u32]) -> Operand {
        Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims).with_quantization(1.0, 0)
    }

    #[test]
    fn elements_of_the_same_size_keep_the_dimensions() {
        let found = OneOperation::new(tflite::BITCAST)
            .tensor(T::TENSOR_FLOAT32, &[1, 2], &[1.0_f32, -0.0])
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert_eq!(found.unwrap(), (vec![1, 2], vec![0x3F80_0000, i32::MIN]));
    }

    #[test]
    fn smaller_elements_have_an_axis_more_and_larger_ones_one_less() {
        let found = OneOperation::new(tflite::BITCAST)
            .tensor(T::TENSOR_INT32, &[2], &[0x0102_0304, -1])
            .output_operand(signed(&[]))
            .run_one::<i8>();
        assert_eq!(found.unwrap(), (vec![2, 4], vec![4, 3, 2, 1, -1, -1, -1, -1]));
        let joined = |dims: &[u32], ty| {
            OneOperation::new(tflite::BITCAST)
                .operand(signed(dims), &[0_i8, 0x3C, 1, 0])
                .output(ty, &[])
                .run_one::<u16>()
        };
        assert_eq!(
            joined(&[2, 2], T::TENSOR_FLOAT16).unwrap(),
            (vec![2], vec![0x3C00, 1])
        );
        assert_eq!(joined(&[4], T::TENSOR_INT32).unwrap(), (vec![1], vec![0x3C00, 1]));
        assert!(joined(&[4], T::TENSOR_FLOAT16).unwrap_err().contains("must be 2"));
        assert!(
            joined(&[2, 2], T::TENSOR_INT32)
                .unwrap_err()
                .contains("must be 4")
        );
    }

    #[test]
    fn there_are_no_more_axes_than_tensors_have() {
        let found = OneOperation::new(tflite::BITCAST)
            .tensor(T::TENSOR_INT32, &[1; 8], &[0_i32])
            .output_operand(signed(&[]))
            .run();
        assert!(found.unwrap_err().contains("rank 9"));
    }
}
