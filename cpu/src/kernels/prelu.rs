//! PRELU: the identity above 0, a slope of its own for each element below.
//!
//! Quantised as the HAL reference: one multiplier for values above the zero point, another for products below
//! it.

use half::f16;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::{binary, binary_float};
use super::element::{Quantized, by_element};
use super::fixed_point::Multiplier;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] =
    &[(OperationType::PRELU, prelu), (tflite::PRELU, prelu)];

fn prelu(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let float = |value, slope| if value >= 0.0 { value } else { slope * value };
    by_element!(context, {
        [f32, f16] => binary_float(context, float),
        [u8, i8, i16] => quantized(context),
    })
}

fn quantized<T: Quantized>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (input, slope) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let output_zero = output.zero_point();
    let above = f64::from(input.scale()) / f64::from(output.scale());
    let below = Multiplier::new(above * f64::from(slope.scale()));
    let above = Multiplier::new(above);
    let (input_zero, slope_zero) = (input.zero_point(), slope.zero_point());
    binary::<T, T>(context, |value, slope| {
        let value = value.to_i32() - input_zero;
        let scaled = if value >= 0 {
            above.apply(value)
        } else {
            below.apply(value * (slope.to_i32() - slope_zero))
        };
        T::saturate(scaled.saturating_add(output_zero))
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn slope_broadcasts_over_the_last_axis() {
        let (dims, data) = OneOperation::new(OperationType::PRELU)
            .tensor(
                OperandType::TENSOR_FLOAT32,
                &[2, 2],
                &[1.0_f32, -1.0, -2.0, f32::NAN],
            )
            .tensor(OperandType::TENSOR_FLOAT32, &[2], &[0.5_f32, 4.0])
            .output(OperandType::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        assert_eq!(dims, [2, 2]);
        assert_eq!(data[..3], [1.0, -4.0, -1.0]);
        assert!(data[3].is_nan());
    }

    #[test]
    fn quantised_results_saturate() {
        let quantized = |scale, zero_point, dims: &[u32]| {
            Operand::new(OperandType::TENSOR_QUANT8_ASYMM, dims).with_quantization(scale, zero_point)
        };
        let (_, data) = OneOperation::new(OperationType::PRELU)
            .operand(quantized(1.0, 128, &[2]), &[255_u8, 0])
            .operand(quantized(1.0, 0, &[1]), &[255_u8])
            .output_operand(quantized(1e-30, 7, &[]))
            .run_one::<u8>()
            .unwrap();
        assert_eq!(data, [255, 0]);
    }

    #[test]
    fn sixteen_bit_steps_have_slopes_too() {
        let steps = |scale, dims: &[u32]| {
            Operand::new(OperandType::TENSOR_QUANT16_SYMM, dims).with_quantization(scale, 0)
        };
        let (_, data) = OneOperation::new(tflite::PRELU)
            .operand(steps(0.5, &[4]), &[1000_i16, -1000, -32_768, 32_767])
            .operand(steps(0.1, &[1]), &[1_i16])
            .output_operand(steps(0.25, &[]))
            .run_one::<i16>()
            .unwrap();
        assert_eq!(data, [2000, -200, -6554, 32_767]);
    }
}
