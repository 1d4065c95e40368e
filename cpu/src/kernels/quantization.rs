//! Changes of element type: QUANTIZE, DEQUANTIZE and CAST.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType as T, OperationType, tflite};

use super::broadcast::{Lanes, unary};
use super::element::{Float, Quantized};
use super::fixed_point;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::QUANTIZE, quantize),
    (OperationType::DEQUANTIZE, dequantize),
    (OperationType::CAST, cast),
    (tflite::QUANTIZE, quantize),
    (tflite::DEQUANTIZE, dequantize),
];

/// Types of input 0 and output 0.
fn types(context: &mut KernelContext<'_>) -> Result<(T, T), KernelError> {
    Ok((context.inputs.tensor(0)?.ty(), context.outputs.tensor(0)?.ty()))
}

fn unexpected((from, to): (T, T)) -> KernelError {
    OpError::operation(format!("does not convert {from} to {to}")).into()
}

fn quantize(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match types(context)? {
        (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM) => quantize_to::<f32, u8>(context),
        (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM_SIGNED) => quantize_to::<f32, i8>(context),
        (T::TENSOR_FLOAT32, T::TENSOR_QUANT16_SYMM) => quantize_to::<f32, i16>(context),
        (T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM) => quantize_to::<f16, u8>(context),
        (T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM_SIGNED) => quantize_to::<f16, i8>(context),
        (T::TENSOR_FLOAT16, T::TENSOR_QUANT16_SYMM) => quantize_to::<f16, i16>(context),
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT16_SYMM) => requantize::<u8, i16>(context, i16::saturate),
        (T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT16_SYMM) => {
            requantize::<i8, i16>(context, i16::saturate)
        }
        (T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT8_ASYMM_SIGNED) => {
            requantize::<i16, i8>(context, i8::saturate)
        }
        (T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT16_SYMM) => requantize::<i16, i16>(context, i16::saturate),
        (T::TENSOR_QUANT16_SYMM, T::TENSOR_INT32) => requantize::<i16, i32>(context, |steps| steps),
        (T::TENSOR_QUANT16_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED) => {
            requantize::<u16, i8>(context, i8::saturate)
        }
        (T::TENSOR_QUANT16_ASYMM, T::TENSOR_INT32) => requantize::<u16, i32>(context, |steps| steps),
        types => Err(unexpected(types)),
    }
}

fn quantize_to<F: Float, Q: Quantized>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let output = context.outputs.tensor(0)?;
    let (scale, zero_point) = (output.scale(), output.zero_point());
    unary::<F, Q>(context, |value| {
        Q::saturate(fixed_point::quantize(value.to_f32(), scale, zero_point))
    })
}

/// Steps of one scale as steps of another, rounded as TFLite's integer kernel does.
fn requantize<I: bytemuck::Pod + Into<i32>, O: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    narrow: fn(i32) -> O,
) -> Result<(), KernelError> {
    let (input, output) = (context.inputs.tensor(0)?, context.outputs.tensor(0)?);
    let (old_zero_point, new_zero_point) = (input.zero_point(), output.zero_point());
    let factor = fixed_point::Multiplier::new(f64::from(input.scale()) / f64::from(output.scale()));
    unary::<I, O>(context, |value| {
        let steps = factor.apply(value.into() - old_zero_point);
        narrow(steps.saturating_add(new_zero_point))
    })
}

fn dequantize(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match types(context)? {
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32) => dequantize_to::<u8, f32>(context),
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT16) => dequantize_to::<u8, f16>(context),
        (T::TENSOR_QUANT16_SYMM, T::TENSOR_FLOAT32) => dequantize_to::<i16, f32>(context),
        (T::TENSOR_QUANT16_SYMM, T::TENSOR_FLOAT16) => dequantize_to::<i16, f16>(context),
        (T::TENSOR_QUANT8_SYMM_PER_CHANNEL, T::TENSOR_FLOAT32) => dequantize_channels::<f32>(context),
        (T::TENSOR_QUANT8_SYMM_PER_CHANNEL, T::TENSOR_FLOAT16) => dequantize_channels::<f16>(context),
        (T::TENSOR_QUANT8_SYMM | T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT32) => {
            dequantize_to::<i8, f32>(context)
        }
        (T::TENSOR_QUANT8_SYMM | T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT16) => {
            dequantize_to::<i8, f16>(context)
        }
        types => Err(unexpected(types)),
    }
}

fn dequantize_to<Q: Quantized, F: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let (scale, zero_point) = (input.scale(), input.zero_point());
    unary::<Q, F>(context, |value| {
        F::from_f32((value.to_i32() - zero_point) as f32 * scale)
    })
}

fn dequantize_channels<F: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let params = context
        .inputs
        .rules()
        .channel_quant(0)
        .ok_or_else(|| OpError::input(0, "has no scales, must have one for each channel"))?;
    let lanes = Lanes::along(&input.shape, params.channel_dim as usize);
    if params.scales.len() != lanes.extent {
        return Err(OpError::input(
            0,
            format!(
                "has {} scales, must have {}, one for each channel",
                params.scales.len(),
                lanes.extent
            ),
        )
        .into());
    }
    let output = context.outputs.data::<F>(0)?;
    let input = input.data::<i8>()?;
    if input.is_empty() {
        return Ok(());
    }
    let rows = input
        .chunks_exact(lanes.inner)
        .zip(output.chunks_exact_mut(lanes.inner));
    for ((values, results), scale) in rows.zip(params.scales.iter().cycle()) {
        for (value, result) in values.iter().zip(results) {
            *result = F::from_f32(f32::from(*value) * scale);
        }
    }
    Ok(())
}

/// Values are converted, whatever scale and zero point say: fractions are clamped off, and what the output's
/// type cannot hold becomes its closest value.
fn cast(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match types(context)? {
        (T::TENSOR_FLOAT16, T::TENSOR_FLOAT32) => unary::<f16, f32>(context, f16::to_f32),
        (T::TENSOR_FLOAT16, T::TENSOR_INT32) => unary::<f16, i32>(context, |value| value.to_f32() as i32),
        (T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM) => {
            unary::<f16, u8>(context, |value| value.to_f32() as u8)
        }
        (T::TENSOR_FLOAT32, T::TENSOR_FLOAT16) => unary::<f32, f16>(context, f16::from_f32),
        (T::TENSOR_FLOAT32, T::TENSOR_INT32) => unary::<f32, i32>(context, |value| value as i32),
        (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM) => unary::<f32, u8>(context, |value| value as u8),
        (T::TENSOR_INT32, T::TENSOR_FLOAT16) => {
            unary::<i32, f16>(context, |value| f16::from_f32(value as f32))
        }
        (T::TENSOR_INT32, T::TENSOR_FLOAT32) => unary::<i32, f32>(context, |value| value as f32),
        (T::TENSOR_INT32, T::TENSOR_QUANT8_ASYMM) => unary::<i32, u8>(context, u8::saturate),
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT16) => {
            unary::<u8, f16>(context, |value| f16::from_f32(f32::from(value)))
        }
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32) => unary::<u8, f32>(context, f32::from),
        (T::TENSOR_QUANT8_ASYMM, T::TENSOR_INT32) => unary::<u8, i32>(context, i32::from),
        (from, to) if from == to => {
            let input = context.inputs.tensor(0)?.bytes;
            let output = context.outputs.tensor(0)?.bytes;
            output.copy_from_slice(input);
            Ok(())
        }
        types => Err(unexpected(types)),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{ExtraParams, Operand, OperandType, OperationType, SymmPerChannelQuantParams, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn quantize_rounds_ties_away_from_zero_and_saturates() {
        let (_, data) = OneOperation::new(OperationType::QUANTIZE)
            .tensor(
                OperandType::TENSOR_FLOAT32,
                &[6],
                &[0.5_f32, -0.5, 1e30, -1e30, f32::INFINITY, f32::NAN],
            )
            .output_operand(
                Operand::new(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, &[]).with_quantization(1.0, 1),
            )
            .run_one::<i8>()
            .unwrap();
        assert_eq!(data, [2, 0, 127, -128, 127, 1]);
    }

    /// Steps of one half about zero point 0, or 3 for types that have one, as others of scale 0.25.
    fn requantize<I: bytemuck::Pod, O: bytemuck::Pod>(
        from: OperandType,
        data: &[I],
        to: (OperandType, f32, i32),
    ) -> Result<Vec<O>, String> {
        let zero_point = if from == OperandType::TENSOR_QUANT16_SYMM {
            0
        } else {
            3
        };
        let (_, data) = OneOperation::new(tflite::QUANTIZE)
            .operand(
                Operand::new(from, &[data.len() as u32]).with_quantization(0.5, zero_point),
                data,
            )
            .output_operand(Operand::new(to.0, &[]).with_quantization(to.1, to.2))
            .run_one::<O>()?;
        Ok(data)
    }

    #[test]
    fn steps_become_steps_of_another_scale() {
        let (wide, bytes) = (
            OperandType::TENSOR_QUANT16_SYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        );
        let narrowed = requantize::<i16, i8>(wide, &[0, 1, -2, 32_767, i16::MIN], (bytes, 0.25, 7));
        assert_eq!(narrowed.unwrap(), [7, 9, 3, 127, -128]);
        let rounded = requantize::<i16, i16>(wide, &[1, 2, -3, 32_767], (wide, 1.0, 0));
        assert_eq!(rounded.unwrap(), [1, 1, -1, 16_384]);
        let widened = requantize::<i8, i16>(bytes, &[3, -128, 127], (wide, 0.25, 0));
        assert_eq!(widened.unwrap(), [0, -262, 248]);
        let unsigned = OperandType::TENSOR_QUANT16_ASYMM;
        let integers = (OperandType::TENSOR_INT32, 0.25, 0);
        assert_eq!(
            requantize::<u16, i32>(unsigned, &[0, 65_535], integers).unwrap(),
            [-6, 131_064]
        );
        let from_unsigned =
            requantize::<u8, i16>(OperandType::TENSOR_QUANT8_ASYMM, &[0, 255], (wide, 0.5, 0));
        assert_eq!(from_unsigned.unwrap(), [-3, 252]);
    }

    #[test]
    fn integers_without_a_scale_and_other_types_are_no_steps() {
        let wide = OperandType::TENSOR_QUANT16_SYMM;
        let error = requantize::<i16, i32>(wide, &[1], (OperandType::TENSOR_INT32, 0.0, 0)).unwrap_err();
        assert!(error.contains("has scale 0"), "{error}");
        assert!(requantize::<i16, u8>(wide, &[1], (OperandType::TENSOR_QUANT8_ASYMM, 1.0, 0)).is_err());
    }

    #[test]
    fn cast_cuts_off_fractions_and_saturates() {
        let cast = |ty| {
            OneOperation::new(OperationType::CAST)
                .tensor(
                    OperandType::TENSOR_FLOAT32,
                    &[5],
                    &[-1.9_f32, 1.9, 1e30, f32::NEG_INFINITY, f32::NAN],
                )
                .output_operand(
                    Operand::new(ty, &[])
                        .with_quantization(if ty == OperandType::TENSOR_INT32 { 0.0 } else { 3.0 }, 0),
                )
        };
        let (_, data) = cast(OperandType::TENSOR_INT32).run_one::<i32>().unwrap();
        assert_eq!(data, [-1, 1, i32::MAX, i32::MIN, 0]);
        let (_, data) = cast(OperandType::TENSOR_QUANT8_ASYMM).run_one::<u8>().unwrap();
        assert_eq!(data, [0, 1, 255, 0, 0]);
    }

    #[test]
    fn per_channel_scales_follow_their_dimension() {
        let mut operand = Operand::new(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 2, 2]);
        operand.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
            scales: vec![1.0, 10.0],
            channel_dim: 1,
        });
        let (_, data) = OneOperation::new(OperationType::DEQUANTIZE)
            .operand(operand, &[1_i8, -1, 2, -2, 3, -3, 4, -4])
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        assert_eq!(data, [1.0, -1.0, 20.0, -20.0, 3.0, -3.0, 40.0, -40.0]);
    }

    #[test]
    fn sixteen_bit_steps_are_the_nearest_and_saturate() {
        let steps =
            Operand::new(OperandType::TENSOR_QUANT16_SYMM, &[1, 1, 1, 1, 4]).with_quantization(0.5, 0);
        let (_, data) = OneOperation::new(tflite::QUANTIZE)
            .tensor(
                OperandType::TENSOR_FLOAT32,
                &[1, 1, 1, 1, 4],
                &[0.25_f32, -100.1, 1e30, f32::NAN],
            )
            .output_operand(steps.clone())
            .run_one::<i16>()
            .unwrap();
        assert_eq!(data, [1, -200, 32_767, 0]);
        let (_, data) = OneOperation::new(tflite::DEQUANTIZE)
            .operand(steps, &[1_i16, -200, 32_767, -32_768])
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        assert_eq!(data, [0.5, -100.0, 16_383.5, -16_384.0]);
    }
}
