//! PAD and PAD_V2: more room around a tensor, filled with what means zero, or with a given value.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{MAX_RANK, OperandType, OperationType, tflite};

use super::blocks::{Layout, by_element_size, copy_block, steps_of};
use super::element::{Float, Quant8, by_element};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::PAD, pad),
    (tflite::PAD, pad),
    (OperationType::PAD_V2, pad_v2),
    (tflite::PAD_V2, pad_v2),
];

fn pad(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    match input.ty() {
        OperandType::TENSOR_QUANT8_ASYMM => with_quantized::<u8>(context, input.zero_point()),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => with_quantized::<i8>(context, input.zero_point()),
        ty => by_element_size!(ty, with_zeros(context)),
    }
}

fn pad_v2(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (float, quantized) = (context.inputs.f32(2), context.inputs.i32(2));
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_BOOL8 => {
            let value = context.inputs.bool_or(2, false)?;
            fill_around(context, u8::from(value))
        }
        tflite::TENSOR_INT64 => match context.inputs.data::<i64>(2)? {
            [value] => fill_around(context, *value),
            _ => Err(OpError::input(2, "(pad_value) must have one element").into()),
        },
        OperandType::TENSOR_QUANT16_SYMM => {
            let value = quantized?;
            let narrow =
                i16::try_from(value).map_err(|_| outside(value, i16::MIN.into(), i16::MAX.into()))?;
            fill_around(context, narrow)
        }
        _ => by_element!(context, {
            [f32, f16] => with_float(context, float?),
            [i32] => fill_around(context, quantized?),
            [u8, i8] => with_quantized(context, quantized?),
        }),
    }
}

/// For types that have zero where all bits are.
fn with_zeros<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    fill_around(context, T::zeroed())
}

fn with_float<T: Float>(context: &mut KernelContext<'_>, value: f32) -> Result<(), KernelError> {
    fill_around(context, T::from_f32(value))
}

fn with_quantized<T: Quant8>(context: &mut KernelContext<'_>, value: i32) -> Result<(), KernelError> {
    if (T::LEAST..=T::MOST).contains(&value) {
        return fill_around(context, T::saturate(value));
    }
    Err(outside(value, T::LEAST, T::MOST))
}

fn outside(value: i32, least: i32, most: i32) -> KernelError {
    let message = format!("(pad_value) is {value}, must be from {least} to {most}");
    OpError::input(2, message).into()
}

fn fill_around<T: bytemuck::Pod>(context: &mut KernelContext<'_>, value: T) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let paddings = context.inputs.data::<i32>(1)?;
    let output = context.outputs.tensor(0)?;
    let shape = output.shape;
    let steps = steps_of(shape.dims());
    // Too large only beside an extent of 0, and then nothing is copied.
    let start = paddings
        .chunks_exact(2)
        .zip(&steps[..MAX_RANK])
        .map(|(around, step)| step.saturating_mul(around[0] as isize))
        .fold(0, isize::saturating_add);
    let target = output.into_data::<T>()?;
    if target.len() > input.data::<T>()?.len() {
        target.fill(value);
    }
    copy_block(
        input.dims(),
        input.data::<T>()?,
        &Layout::whole(input.dims()),
        target,
        &Layout::new(start, &steps[..shape.rank()]),
    )
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn pad(paddings: &[i32], dims: &[u32]) -> Result<(Vec<u32>, Vec<i8>), String> {
        let operand =
            |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM_SIGNED, dims).with_quantization(1.0, -3);
        OneOperation::new(OperationType::PAD)
            .operand(operand(&[2, 1]), &[1_i8, 2])
            .tensor(T::TENSOR_INT32, dims, paddings)
            .output_operand(operand(&[]))
            .run_one()
    }

    #[test]
    fn pad_fills_with_the_zero_point() {
        let (dims, data) = pad(&[1, 0, 0, 1], &[2, 2]).unwrap();
        assert_eq!((dims, data), (vec![3, 2], vec![-3, -3, 1, -3, 2, -3]));
    }

    #[test]
    fn paddings_that_are_negative_or_enormous_or_of_wrong_shape_give_an_error() {
        assert!(pad(&[-1, 0, 0, 1], &[2, 2]).unwrap_err().contains("(paddings)"));
        assert!(pad(&[i32::MAX, i32::MAX, 0, i32::MAX], &[2, 2]).is_err());
        assert!(pad(&[1, 0], &[1, 2]).unwrap_err().contains("must be [2, 2]"));
        assert!(pad(&[1, 0, 0, 1], &[1, 4]).is_err());
    }

    #[test]
    fn pad_v2_of_floats_takes_a_float() {
        let result = OneOperation::new(OperationType::PAD_V2)
            .tensor(T::TENSOR_FLOAT32, &[1], &[5_f32])
            .tensor(T::TENSOR_INT32, &[1, 2], &[0, 1])
            .f32(0.25)
            .output(T::TENSOR_FLOAT32, &[0])
            .run_one::<f32>();
        assert_eq!(result.unwrap(), (vec![2], vec![5.0, 0.25]));
    }

    #[test]
    fn pad_v2_fills_with_its_value_and_refuses_values_outside_the_type() {
        let pad_v2 = |value| {
            let operand = |dims: &[u32]| Operand::new(T::TENSOR_QUANT8_ASYMM, dims).with_quantization(1.0, 9);
            OneOperation::new(OperationType::PAD_V2)
                .operand(operand(&[1]), &[5_u8])
                .tensor(T::TENSOR_INT32, &[1, 2], &[1, 2])
                .i32(value)
                .output_operand(operand(&[0]))
                .run_one::<u8>()
        };
        assert_eq!(pad_v2(77).unwrap(), (vec![4], vec![77, 5, 77, 77]));
        assert!(pad_v2(256).unwrap_err().contains("(pad_value) is 256"));
        assert!(pad_v2(-1).is_err());
    }

    fn wide<E: bytemuck::Pod>(operand: Operand, data: &[E], value: Option<E>) -> Result<Vec<E>, String> {
        let padded = OneOperation::new(if value.is_some() {
            tflite::PAD_V2
        } else {
            tflite::PAD
        })
        .operand(operand.clone(), data)
        .tensor(T::TENSOR_INT32, &[1, 2], &[1, 0]);
        let padded = match (value, operand.operand_type) {
            (Some(value), T::TENSOR_BOOL8) => padded.tensor(T::BOOL, &[], &[value]),
            (Some(value), T::TENSOR_INT32) => padded.tensor(T::INT32, &[], &[value]),
            (Some(value), tflite::TENSOR_INT64) => padded.tensor(tflite::TENSOR_INT64, &[1], &[value]),
            _ => padded,
        };
        let output = Operand {
            dimensions: Vec::new(),
            ..operand
        };
        padded.output_operand(output).run_one::<E>().map(|(_, data)| data)
    }

    #[test]
    fn every_type_is_padded() {
        let integers = Operand::new(T::TENSOR_INT32, &[2]);
        assert_eq!(wide(integers.clone(), &[5, 6], None).unwrap(), [0, 5, 6]);
        assert_eq!(wide(integers, &[5, 6], Some(-7)).unwrap(), [-7, 5, 6]);
        let integers = Operand::new(tflite::TENSOR_INT64, &[2]);
        assert_eq!(
            wide(integers.clone(), &[5_i64, 1 << 40], None).unwrap(),
            [0, 5, 1 << 40]
        );
        assert_eq!(
            wide(integers, &[5, 6], Some(-7_i64 << 40)).unwrap(),
            [-7 << 40, 5, 6]
        );
        let error = OneOperation::new(tflite::PAD_V2)
            .tensor(tflite::TENSOR_INT64, &[1], &[5_i64])
            .tensor(T::TENSOR_INT32, &[1, 2], &[1, 0])
            .tensor(tflite::TENSOR_INT64, &[2], &[0_i64; 2])
            .output(tflite::TENSOR_INT64, &[])
            .run()
            .unwrap_err();
        assert!(error.contains("(pad_value)"), "{error}");
        let truths = Operand::new(T::TENSOR_BOOL8, &[1]);
        assert_eq!(wide(truths.clone(), &[1_u8], None).unwrap(), [0, 1]);
        assert_eq!(wide(truths, &[0_u8], Some(1)).unwrap(), [1, 0]);
        let steps = Operand::new(T::TENSOR_QUANT16_SYMM, &[1]).with_quantization(0.5, 0);
        assert_eq!(wide(steps.clone(), &[-9_i16], None).unwrap(), [0, -9]);
        let with_value = |value| {
            OneOperation::new(tflite::PAD_V2)
                .operand(steps.clone(), &[-9_i16])
                .tensor(T::TENSOR_INT32, &[1, 2], &[1, 0])
                .i32(value)
                .output_operand(Operand::new(T::TENSOR_QUANT16_SYMM, &[0]).with_quantization(0.5, 0))
                .run_one::<i16>()
        };
        assert_eq!(with_value(-32768).unwrap().1, [-32768, -9]);
        assert!(with_value(32768).unwrap_err().contains("(pad_value) is 32768"));
    }

    #[test]
    fn five_axes_are_padded() {
        let result = OneOperation::new(tflite::PAD)
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 1, 2], &[1_f32, 2.0])
            .tensor(T::TENSOR_INT32, &[5, 2], &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>();
        assert_eq!(result.unwrap(), (vec![1, 1, 1, 2, 2], vec![1.0, 2.0, 0.0, 0.0]));
    }
}
