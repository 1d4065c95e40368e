//! GELU of the extension: each element times the probability that a normal variable is less.

use half::f16;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::broadcast::unary_float;
use super::element::{Quant8, by_element};
use super::interpolated::unary_by_lines;
use super::quantized_function::{of_numbers, of_steps, results, unary_quantized};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::GELU, gelu)];

/// What GELU makes of each value of an 8-bit type, from the least one on, given scale and zero point of input
/// and output.
pub(crate) fn quantized_results<T: Quant8>(
    is_approximate: bool,
    [input, output]: [(f32, i32); 2],
) -> [T; 256] {
    results(of_steps(function(is_approximate), input, output))
}

fn function(is_approximate: bool) -> fn(f32) -> f32 {
    if is_approximate { approximate } else { exact }
}

fn gelu(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let function = function(context.inputs.bool_or(1, false)?);
    if context.inputs.tensor(0)?.ty() == OperandType::TENSOR_QUANT16_SYMM {
        return unary_by_lines(context, |value| f64::from(function(value as f32)));
    }
    by_element!(context, {
        [f32, f16] => unary_float(context, function),
        [u8, i8] => quantized(context, function),
    })
}

fn quantized<T: Quant8>(
    context: &mut KernelContext<'_>,
    function: fn(f32) -> f32,
) -> Result<(), KernelError> {
    let compute = of_numbers(context, function)?;
    unary_quantized::<T>(context, compute)
}

fn exact(x: f32) -> f32 {
    0.5 * x * (1.0 + libm::erff(x * std::f32::consts::FRAC_1_SQRT_2))
}

fn approximate(x: f32) -> f32 {
    let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    const VALUES: [f32; 5] = [-3.0, -0.5, 0.0, 1.0, 4.0];
    const EXACT: [f32; 5] = [-0.004_049_69, -0.154_268_77, 0.0, 0.841_344_7, 3.999_873_4];
    const APPROXIMATE: [f32; 5] = [-0.003_637_39, -0.154_286, 0.0, 0.841_192, 3.999_929_7];

    #[test]
    fn both_forms_give_the_values_of_their_formulas() {
        for (is_approximate, expected) in [(false, EXACT), (true, APPROXIMATE)] {
            let (_, found) = OneOperation::new(tflite::GELU)
                .tensor(T::TENSOR_FLOAT32, &[5], &VALUES)
                .tensor(T::BOOL, &[], &[u8::from(is_approximate)])
                .output(T::TENSOR_FLOAT32, &[])
                .run_one::<f32>()
                .unwrap();
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
            }
        }
    }

    #[test]
    fn quantised_values_are_those_of_the_real_ones() {
        let operand = |ty, scale, zero_point| Operand::new(ty, &[5]).with_quantization(scale, zero_point);
        let (_, found) = OneOperation::new(tflite::GELU)
            .operand(
                operand(T::TENSOR_QUANT8_ASYMM_SIGNED, 0.5, 1),
                &[-5_i8, 0, 1, 3, 9],
            )
            .tensor(T::BOOL, &[], &[0_u8])
            .output_operand(operand(T::TENSOR_QUANT8_ASYMM_SIGNED, 0.05, -100))
            .run_one::<i8>()
            .unwrap();
        assert_eq!(found, [-100, -103, -100, -83, -20]);
        let (_, found) = OneOperation::new(tflite::GELU)
            .operand(
                operand(T::TENSOR_QUANT16_SYMM, 0.001, 0),
                &[-3000_i16, -500, 0, 1000, 32767],
            )
            .tensor(T::BOOL, &[], &[0_u8])
            .output_operand(operand(T::TENSOR_QUANT16_SYMM, 0.0005, 0))
            .run_one::<i16>()
            .unwrap();
        // By lines between every 128 steps, as TFLite computes it.
        for (found, expected) in found.iter().zip([-8_i32, -309, -2, 1681, 32_767]) {
            assert!(
                (i32::from(*found) - expected).abs() <= 1,
                "{found}, not {expected}"
            );
        }
    }
}
