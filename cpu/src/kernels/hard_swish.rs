//! HARD_SWISH: each element times its gate, which rises from 0 at -3 to 1 at 3.
//!
//! Quantised as the HAL reference and the kernel of TFLite that it calls, bit for bit: products of 16-bit
//! fixed-point numbers, which are off by one step here and there from the real result rounded once.

use half::f16;
use nnhal_hal::OperationType;

use super::broadcast::unary_float;
use super::element::{Quant8, by_element};
use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::fixed_point_functions::{multiply_16, saturating_shift_left_16};
use super::quantized_function::unary_quantized;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(OperationType::HARD_SWISH, hard_swish)];

fn hard_swish(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let compute = |value: f32| value * (value + 3.0).clamp(0.0, 6.0) / 6.0;
    by_element!(context, {
        [f32, f16] => unary_float(context, compute),
        [u8, i8] => quantized(context),
    })
}

fn quantized<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, output) = (context.inputs.tensor(0)?, context.outputs.tensor(0)?);
    let compute = steps(
        (input.scale(), input.zero_point()),
        (output.scale(), output.zero_point()),
    );
    unary_quantized::<T>(context, compute)
}

/// Bits that 16 have left beside a difference of two 8-bit values.
const HEAD_ROOM: u32 = 7;

/// The function of values with one scale and zero point, in steps of the other ones.
pub(super) fn steps(
    (scale, zero_point): (f32, i32),
    (output_scale, output_zero): (f32, i32),
) -> impl Fn(i32) -> i32 {
    let fine_scale = scale / f32::from(1_u8 << HEAD_ROOM);
    // Quotients beyond all floats saturate as the largest does.
    let output = Factor::new((fine_scale / output_scale).min(f32::MAX));
    // From -1 to 1 for inputs from -3 to 3.
    let gate = Factor::new((fine_scale / (3.0 / 32768.0)).min(f32::MAX));
    move |value| {
        let value = ((value - zero_point) << HEAD_ROOM) as i16;
        let scaled = multiply_16(value, output.mantissa);
        // From 0 to 1.
        let gate = (i32::from(gate.apply(value)) + (1 << 15)) >> 1;
        // Rounded towards 0, which makes up for what the products before are too large by.
        let product = gate * i32::from(scaled) / (1 << 15);
        let result = if output.exponent > 0 {
            // The HAL reference refuses such scales, with which most results are beyond the range.
            i32::from(saturating_shift_left_16(product as i16, output.exponent as u32))
        } else {
            rounding_divide_by_power_of_two(product, -output.exponent)
        };
        result + output_zero
    }
}

/// A multiplier whose mantissa has 16 bits.
#[derive(Clone, Copy)]
struct Factor {
    mantissa: i16,
    exponent: i32,
}

impl Factor {
    fn new(real: f32) -> Factor {
        let Multiplier { mantissa, exponent } = Multiplier::new(f64::from(real));
        let rounded = (i64::from(mantissa) + (1 << 15)) >> 16;
        Factor {
            mantissa: rounded.min(i64::from(i16::MAX)) as i16,
            exponent,
        }
    }

    /// `value` times the factor, clamped to 16 bits.
    fn apply(self, value: i16) -> i16 {
        if self.exponent > 0 {
            // The last bit is shifted in behind the product: only what is beyond the range then is clamped.
            let value = saturating_shift_left_16(value, self.exponent as u32 - 1);
            saturating_shift_left_16(multiply_16(value, self.mantissa), 1)
        } else {
            let product = multiply_16(value, self.mantissa);
            rounding_divide_by_power_of_two(i32::from(product), -self.exponent) as i16
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use super::steps;
    use crate::kernels::element::Quant8;
    use crate::kernels::testing::OneOperation;

    /// The function of real numbers, in steps.
    fn exact(value: i32, (scale, zero_point): (f32, i32), output_scale: f32) -> f64 {
        let real = f64::from(value - zero_point) * f64::from(scale);
        real * (real + 3.0).clamp(0.0, 6.0) / 6.0 / f64::from(output_scale)
    }

    /// What the kernel makes of every value of a type, from the least one on.
    fn results<T: Quant8>(ty: OperandType, input: (f32, i32), output: (f32, i32)) -> Vec<i32> {
        let operand = |(scale, zero_point)| Operand::new(ty, &[256]).with_quantization(scale, zero_point);
        let values: Vec<T> = (T::LEAST..=T::MOST).map(T::saturate).collect();
        let (_, results) = OneOperation::new(OperationType::HARD_SWISH)
            .operand(operand(input), &values)
            .output_operand(operand(output))
            .run_one::<T>()
            .unwrap();
        results.into_iter().map(T::to_i32).collect()
    }

    #[test]
    fn results_are_those_of_16_bit_fixed_point() {
        // Values of which TFLite's reference kernel does not give the nearest step, and what it gives.
        let cases = [
            ((0.0625, 128), (0.03125, 12), [].as_slice()),
            ((0.028, 117), (0.0145, 27), &[(90, 7), (179, 121)]),
            ((0.14, 113), (0.071, 5), &[(166, 109), (237, 249)]),
        ];
        for (input, output, others) in cases {
            let unsigned = results::<u8>(OperandType::TENSOR_QUANT8_ASYMM, input, output);
            for (value, found) in (0..).zip(&unsigned) {
                let nearest = exact(value, input, output.0).round() as i32 + output.1;
                let other = others.iter().find(|(of, _)| *of == value);
                let expected = other.map_or(nearest.clamp(0, 255), |(_, result)| *result);
                assert_eq!(*found, expected, "{value} of scale {}", input.0);
            }
            let signed = results::<i8>(
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                (input.0, input.1 - 128),
                (output.0, output.1 - 128),
            );
            let lowered: Vec<i32> = unsigned.iter().map(|value| value - 128).collect();
            assert_eq!(signed, lowered, "scale {}", input.0);
        }
    }

    #[test]
    fn results_are_close_to_the_real_ones_whatever_the_scales() {
        for (input_scale, output_scale) in [
            (1e-3, 1e-3),
            (0.02, 0.002),
            (0.5, 0.3),
            (3.0, 40.0),
            (1e9, 1e9),
            (1e38, 1e38),
            (1e37, 1e-5),
            // More than 128 output steps in one of the input.
            (0.5, 1e-3),
            (1.0, 1e-30),
        ] {
            let compute = steps((input_scale, 100), (output_scale, 0));
            for value in 0..=255 {
                let found = f64::from(compute(value).clamp(-255, 255));
                let exact = exact(value, (input_scale, 100), output_scale).clamp(-255.0, 255.0);
                assert!(
                    (found - exact).abs() <= 1.0 + 1e-3 * exact.abs(),
                    "{value} of {input_scale}, {output_scale}: {found}, not {exact}"
                );
            }
        }
    }
}
