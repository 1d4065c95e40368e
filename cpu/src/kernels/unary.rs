//! Element-wise functions of one operand: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT, and COS, ROUND,
//! SIGN and functions of 16-bit steps and 64-bit integers of the extension.

use half::f16;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::{unary, unary_float};
use super::element::{Integer, Quant8, by_element};
use super::interpolated::unary_by_lines;
use super::quantized_function::unary_quantized;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ABS, |context| {
        float_or_integer(context, f32::abs, i64::wrapping_abs)
    }),
    (OperationType::NEG, neg),
    (tflite::NEG, neg),
    (OperationType::EXP, |context| float(context, f32::exp)),
    (OperationType::FLOOR, |context| float(context, f32::floor)),
    (OperationType::LOG, |context| float(context, f32::ln)),
    (OperationType::RSQRT, rsqrt),
    (OperationType::SIN, |context| float(context, f32::sin)),
    (OperationType::SQRT, |context| float(context, f32::sqrt)),
    (tflite::COS, |context| float(context, f32::cos)),
    (tflite::ROUND, |context| float(context, f32::round_ties_even)),
    (tflite::EXP, |context| unary_by_lines(context, f64::exp)),
    (tflite::RSQRT, rsqrt_sixteen_bit),
    (tflite::SIGN, |context| {
        float_or_integer(context, sign, i64::signum)
    }),
];

fn neg(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    float_or_integer(context, |value| -value, i64::wrapping_neg)
}

/// What is no number has no sign, as in TFLite's kernel.
fn sign(value: f32) -> f32 {
    f32::from(i8::from(value > 0.0) - i8::from(value < 0.0))
}

fn float(context: &mut KernelContext<'_>, compute: impl Fn(f32) -> f32) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => unary_float(context, compute) })
}

fn rsqrt(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => unary_float(context, inverse_root),
        [u8, i8] => rsqrt_quantized(context),
    })
}

fn inverse_root(value: f32) -> f32 {
    1.0 / value.sqrt()
}

fn rsqrt_quantized<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, output) = (context.inputs.tensor(0)?, context.outputs.tensor(0)?);
    let compute = rsqrt_steps::<T>(
        (input.scale(), input.zero_point()),
        (output.scale(), output.zero_point()),
    );
    unary_quantized::<T>(context, compute)
}

/// RSQRT of quantised values with one scale and zero point, in steps of the other ones. What has no root
/// gives the largest value, as in the HAL's reference.
pub(super) fn rsqrt_steps<T: Quant8>(
    (scale, zero_point): (f32, i32),
    (output_scale, output_zero): (f32, i32),
) -> impl Fn(i32) -> i32 {
    move |value| {
        let root = inverse_root((value - zero_point) as f32 * scale);
        if root.is_nan() {
            return T::MOST;
        }
        // The conversion saturates.
        ((root / output_scale).round() as i32).saturating_add(output_zero)
    }
}

/// RSQRT of 16-bit steps. What has no root gives the largest value here too.
fn rsqrt_sixteen_bit(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let most = f64::from(i16::MAX) * f64::from(context.outputs.tensor(0)?.scale());
    unary_by_lines(
        context,
        |value| {
            if value > 0.0 { 1.0 / value.sqrt() } else { most }
        },
    )
}

/// Integers wrap: the least one has no opposite.
fn float_or_integer(
    context: &mut KernelContext<'_>,
    compute: impl Fn(f32) -> f32,
    integer: impl Fn(i64) -> i64,
) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => unary_float(context, compute),
        [i32, i64] => unary_integer(context, integer),
    })
}

fn unary_integer<T: Integer>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(i64) -> i64,
) -> Result<(), KernelError> {
    unary::<T, T>(context, |value| T::wrap(compute(value.into())))
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn the_least_integer_has_no_opposite_and_stays() {
        for operation in [OperationType::ABS, OperationType::NEG] {
            let (_, data) = OneOperation::new(operation)
                .tensor(OperandType::TENSOR_INT32, &[1], &[i32::MIN])
                .output(OperandType::TENSOR_INT32, &[])
                .run_one::<i32>()
                .unwrap();
            assert_eq!(data, [i32::MIN]);
        }
        let (_, data) = OneOperation::new(tflite::NEG)
            .tensor(tflite::TENSOR_INT64, &[2], &[i64::MIN, 3 << 40])
            .output(tflite::TENSOR_INT64, &[])
            .run_one::<i64>()
            .unwrap();
        assert_eq!(data, [i64::MIN, -(3 << 40)]);
    }

    #[test]
    fn roots_of_quantised_values_are_rounded_and_clamped() {
        let operand = |ty, scale, zero_point| Operand::new(ty, &[6]).with_quantization(scale, zero_point);
        // -1, 0, 0.25, 1, 4 and 16.
        let values = [6_u8, 10, 11, 14, 26, 74];
        let unsigned = OperandType::TENSOR_QUANT8_ASYMM;
        let (_, data) = OneOperation::new(OperationType::RSQRT)
            .operand(operand(unsigned, 0.25, 10), &values)
            .output_operand(operand(unsigned, 0.01, 75))
            .run_one::<u8>()
            .unwrap();
        assert_eq!(data, [255, 255, 255, 175, 125, 100]);
        let signed = OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let (_, data) = OneOperation::new(OperationType::RSQRT)
            .operand(
                operand(signed, 0.25, -118),
                &values.map(|value| (i16::from(value) - 128) as i8),
            )
            .output_operand(operand(signed, 0.3, -128))
            .run_one::<i8>()
            .unwrap();
        // 6.67, 3.33, 1.67 and 0.83 steps above the least value.
        assert_eq!(data, [127, 127, -121, -125, -126, -127]);
    }

    fn of_steps(operation: OperationType, scale: f32, output_scale: f32, values: &[i16], expected: &[i16]) {
        let steps = |scale| {
            Operand::new(OperandType::TENSOR_QUANT16_SYMM, &[values.len() as u32]).with_quantization(scale, 0)
        };
        let (_, data) = OneOperation::new(operation)
            .operand(steps(scale), values)
            .output_operand(steps(output_scale))
            .run_one::<i16>()
            .unwrap();
        for (found, expected) in data.iter().zip(expected) {
            assert!((i32::from(*found) - i32::from(*expected)).abs() <= 1, "{data:?}");
        }
    }

    #[test]
    fn functions_of_sixteen_bit_steps_are_those_of_tflite() {
        let values = [-32_768, 0, 20_000, 30_000, 32_767];
        of_steps(tflite::EXP, 0.0003, 0.5, &values, &[0, 2, 806, 16_202, 32_767]);
        let values = [0, 1, 100, 127, 128, 1000, 32_767];
        let roots = [25_860, 25_679, 7804, 2929, 2748, 1000, 175];
        of_steps(tflite::RSQRT, 0.001, 0.001, &values, &roots);
        of_steps(tflite::RSQRT, 0.001, 0.001, &[-32_768, -300], &[32_767; 2]);
    }

    #[test]
    fn halves_are_rounded_to_even_numbers_and_signs_are_whole() {
        let of = |operation| {
            OneOperation::new(operation)
                .tensor(
                    OperandType::TENSOR_FLOAT32,
                    &[5],
                    &[-2.5_f32, -0.2, 0.5, 1.5, f32::NAN],
                )
                .output(OperandType::TENSOR_FLOAT32, &[])
                .run_one::<f32>()
                .unwrap()
                .1
        };
        assert_eq!(of(tflite::ROUND)[..4], [-2.0, 0.0, 0.0, 2.0]);
        assert_eq!(of(tflite::SIGN), [-1.0, -1.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn zero_and_negative_numbers_follow_ieee_754() {
        let of = |operation| {
            OneOperation::new(operation)
                .tensor(OperandType::TENSOR_FLOAT32, &[2], &[0.0_f32, -1.0])
                .output(OperandType::TENSOR_FLOAT32, &[])
                .run_one::<f32>()
                .unwrap()
                .1
        };
        let rsqrt = of(OperationType::RSQRT);
        assert!(rsqrt[0].is_infinite() && rsqrt[1].is_nan());
        let log = of(OperationType::LOG);
        assert!(log[0] == f32::NEG_INFINITY && log[1].is_nan());
    }
}
