//! Operations that give the same values another shape: RESHAPE, SQUEEZE and EXPAND_DIMS. The shape rules of
//! the operation table do the work; the elements stay as they are.

use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RESHAPE, copy),
    (OperationType::SQUEEZE, copy),
    (OperationType::EXPAND_DIMS, copy),
    (tflite::RESHAPE, copy),
    (tflite::SQUEEZE, copy),
    (tflite::EXPAND_DIMS, copy),
];

fn copy(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let output = context.outputs.tensor(0)?;
    if input.bytes.len() != output.bytes.len() {
        let message = format!(
            "has {} bytes, the input {}",
            output.bytes.len(),
            input.bytes.len()
        );
        return Err(OpError::output(0, message).into());
    }
    output.bytes.copy_from_slice(input.bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn reshape(shape: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(OperationType::RESHAPE)
            .tensor(T::TENSOR_FLOAT32, &[2, 3], &[1_f32, 2.0, 3.0, 4.0, 5.0, 6.0])
            .tensor(T::TENSOR_INT32, &[shape.len() as u32], shape)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one()
    }

    #[test]
    fn reshape_fills_in_the_extent_that_is_left_open() {
        let (dims, data) = reshape(&[3, -1]).unwrap();
        assert_eq!((dims, data), (vec![3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    }

    #[test]
    fn reshape_to_another_element_count_gives_an_error() {
        for shape in [
            &[4, -1][..],
            &[7],
            &[0, -1],
            &[-1, -1],
            &[-2, 3],
            &[1 << 30, 1 << 30],
            &[i32::MIN],
        ] {
            let error = reshape(shape).unwrap_err();
            assert!(error.contains("operation 0 (RESHAPE)"), "{error}");
        }
    }

    #[test]
    fn every_type_is_taken_up_to_the_highest_rank() {
        let result = OneOperation::new(tflite::RESHAPE)
            .tensor(T::TENSOR_BOOL8, &[2, 1, 1, 1, 3], &[1_u8, 0, 0, 1, 1, 0])
            .tensor(T::TENSOR_INT32, &[8], &[1, 1, 3, 1, 1, 1, 1, -1])
            .output(T::TENSOR_BOOL8, &[])
            .run_one::<u8>();
        assert_eq!(
            result.unwrap(),
            (vec![1, 1, 3, 1, 1, 1, 1, 2], vec![1, 0, 0, 1, 1, 0])
        );
        let steps = || nnhal_hal::Operand::new(T::TENSOR_QUANT16_SYMM, &[]).with_quantization(0.5, 0);
        let result = OneOperation::new(tflite::SQUEEZE)
            .operand(
                nnhal_hal::Operand {
                    dimensions: vec![1, 2, 1, 1, 1, 1],
                    ..steps()
                },
                &[7_i16, -7],
            )
            .omitted(T::TENSOR_INT32)
            .output_operand(steps())
            .run_one::<i16>();
        assert_eq!(result.unwrap(), (vec![2], vec![7, -7]));
        let result = OneOperation::new(tflite::EXPAND_DIMS)
            .tensor(T::TENSOR_BOOL8, &[2], &[1_u8, 0])
            .i32(0)
            .output(T::TENSOR_BOOL8, &[])
            .run_one::<u8>();
        assert_eq!(result.unwrap(), (vec![1, 2], vec![1, 0]));
    }

    #[test]
    fn another_scale_is_refused() {
        let steps = |scale| nnhal_hal::Operand::new(T::TENSOR_QUANT16_SYMM, &[1]).with_quantization(scale, 0);
        let error = OneOperation::new(tflite::RESHAPE)
            .operand(steps(0.5), &[7_i16])
            .tensor(T::TENSOR_INT32, &[1], &[1])
            .output_operand(steps(0.25))
            .run()
            .unwrap_err();
        assert!(error.contains("must have those of input 0"), "{error}");
    }

    fn squeeze(dims: &[u32], axes: &[i32]) -> Result<(Vec<u32>, Vec<u8>), String> {
        OneOperation::new(OperationType::SQUEEZE)
            .operand(
                nnhal_hal::Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(0.5, 3),
                &vec![7_u8; dims.iter().product::<u32>() as usize],
            )
            .tensor(T::TENSOR_INT32, &[axes.len() as u32], axes)
            .output_operand(nnhal_hal::Operand::new(T::TENSOR_QUANT8_ASYMM, &[]).with_quantization(0.5, 3))
            .run_one()
    }

    #[test]
    fn squeeze_drops_axes_of_extent_1_only() {
        assert_eq!(squeeze(&[1, 2, 1], &[-1]).unwrap().0, [1, 2]);
        assert_eq!(squeeze(&[1, 1], &[0, 1, 0]).unwrap().0, [1]);
        assert!(squeeze(&[1, 2, 1], &[1]).unwrap_err().contains("extent is 2"));
        assert!(squeeze(&[1, 2, 1], &[3]).is_err());
    }

    #[test]
    fn squeeze_without_axes_drops_every_axis_of_extent_1() {
        let result = OneOperation::new(OperationType::SQUEEZE)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 1], &[1_f32, 2.0])
            .omitted(T::TENSOR_INT32)
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>();
        assert_eq!(result.unwrap(), (vec![2], vec![1.0, 2.0]));
    }

    #[test]
    fn expand_dims_takes_axes_up_to_the_new_rank() {
        let expand = |axis| {
            OneOperation::new(OperationType::EXPAND_DIMS)
                .tensor(T::TENSOR_INT32, &[2], &[5, 6])
                .i32(axis)
                .output(T::TENSOR_INT32, &[0, 0])
                .run_one::<i32>()
        };
        assert_eq!(expand(1).unwrap(), (vec![2, 1], vec![5, 6]));
        assert_eq!(expand(-2).unwrap().0, [1, 2]);
        assert!(expand(3).is_err_and(|error| error.contains("input 1")));
    }

    #[test]
    fn expand_dims_beyond_the_highest_rank_gives_an_error() {
        let result = OneOperation::new(OperationType::EXPAND_DIMS)
            .tensor(T::TENSOR_INT32, &[1; nnhal_hal::MAX_RANK], &[5])
            .i32(0)
            .output(T::TENSOR_INT32, &[])
            .run_one::<i32>();
        assert!(result.is_err());
    }
}
