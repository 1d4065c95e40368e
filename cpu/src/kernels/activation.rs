//! Element-wise activations: RELU, RELU1, RELU6, LOGISTIC, TANH and ELU.
//!
//! Quantised LOGISTIC and TANH follow the HAL reference: the input in fixed point with four integer bits,
//! inputs beyond what those hold at the end of the output's range. LOGISTIC of 16-bit steps is the nearest
//! step to the real result.

use half::f16;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::activation_range::Activation;
use super::broadcast::{unary, unary_float};
use super::element::{Quant8, Quantized, by_element};
use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::quantized_function::{results, unary_quantized, unary_sixteen_bit};
use super::{fixed_point_functions, hard_swish, interpolated, unary as functions};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RELU, relu),
    (OperationType::RELU1, relu1),
    (OperationType::RELU6, relu6),
    (OperationType::LOGISTIC, logistic),
    (OperationType::TANH, tanh),
    (OperationType::ELU, elu),
    (tflite::RELU, relu),
    (tflite::RELU1, relu1),
    (tflite::RELU6, relu6),
    (tflite::LOGISTIC, logistic),
    (tflite::TANH, tanh),
];

fn relu(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    clamp(context, Activation::Relu)
}

fn relu1(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    clamp(context, Activation::Relu1)
}

fn relu6(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    clamp(context, Activation::Relu6)
}

fn logistic(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_QUANT16_SYMM => unary_sixteen_bit(context, LOGISTIC.float),
        _ => sigmoid(context, LOGISTIC),
    }
}

fn tanh(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_QUANT16_SYMM => interpolated::tanh(context),
        _ => sigmoid(context, TANH),
    }
}

fn clamp(context: &mut KernelContext<'_>, activation: Activation) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => unary_float(context, |value| activation.apply(value)),
        [u8, i8, i16] => clamp_quantized(context, activation),
    })
}

fn clamp_quantized<T: Quantized>(
    context: &mut KernelContext<'_>,
    activation: Activation,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let clamp = clamp_steps::<T>(activation, (input.scale(), input.zero_point()));
    unary::<T, T>(context, |value| T::saturate(clamp(value.to_i32())))
}

/// What clamps quantised values of this scale and zero point.
fn clamp_steps<T: Quantized>(activation: Activation, (scale, zero_point): (f32, i32)) -> impl Fn(i32) -> i32 {
    let (low, high) = activation.quantized_range(scale, zero_point, T::LEAST, T::MOST);
    move |value| value.max(low).min(high)
}

/// A function that flattens towards both ends, in floating and in fixed point.
#[derive(Clone, Copy)]
struct Sigmoid {
    float: fn(f32) -> f32,
    /// From a value with these integer bits to one with none.
    fixed: fn(i32, u32) -> i32,
    /// Bits that the quantised output drops from the fixed-point result.
    dropped_bits: i32,
    /// The quantised results, without zero point, that stand for the two ends.
    ends: (i32, i32),
}

const LOGISTIC: Sigmoid = Sigmoid {
    float: |value| 1.0 / (1.0 + (-value).exp()),
    fixed: fixed_point_functions::logistic,
    dropped_bits: 23,
    ends: (0, 255),
};

const TANH: Sigmoid = Sigmoid {
    float: f32::tanh,
    fixed: fixed_point_functions::tanh,
    dropped_bits: 24,
    ends: (-128, 127),
};

fn sigmoid(context: &mut KernelContext<'_>, function: Sigmoid) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => unary_float(context, function.float),
        [u8, i8] => sigmoid_quantized(context, function),
    })
}

fn sigmoid_quantized<T: Quant8>(
    context: &mut KernelContext<'_>,
    function: Sigmoid,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let output_zero = context.outputs.tensor(0)?.zero_point();
    let compute = sigmoid_steps(function, (input.scale(), input.zero_point()), output_zero);
    unary_quantized::<T>(context, compute)
}

/// The function of quantised values with this scale and zero point, in steps of the scale that the output
/// must have.
fn sigmoid_steps(
    function: Sigmoid,
    (scale, zero_point): (f32, i32),
    output_zero: i32,
) -> impl Fn(i32) -> i32 {
    const INTEGER_BITS: u32 = 4;
    let multiplier = Multiplier::new(f64::from(scale) * f64::from(1 << (31 - INTEGER_BITS)));
    let radius = multiplier.input_radius(INTEGER_BITS);
    let (low, high) = function.ends;
    move |value| {
        let value = value - zero_point;
        let result = if value <= -radius {
            low
        } else if value >= radius {
            high
        } else {
            let fixed = (function.fixed)(multiplier.apply(value), INTEGER_BITS);
            rounding_divide_by_power_of_two(fixed, function.dropped_bits).min(high)
        };
        result + output_zero
    }
}

fn elu(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let alpha = context.inputs.f32(1)?;
    let compute = |value: f32| {
        if value < 0.0 {
            alpha * value.exp_m1()
        } else {
            value
        }
    };
    by_element!(context, { [f32, f16] => unary_float(context, compute) })
}

/// What an operation makes of each value of an 8-bit type, from the least one on, given scale and zero point
/// of input and output; `None` if it is no function of one operand, or takes floats only.
pub(crate) fn quantized_results<T: Quant8>(
    operation: OperationType,
    input: (f32, i32),
    output: (f32, i32),
) -> Option<[T; 256]> {
    let clamp = |activation| results(clamp_steps::<T>(activation, input));
    Some(match operation {
        OperationType::RELU => clamp(Activation::Relu),
        OperationType::RELU1 => clamp(Activation::Relu1),
        OperationType::RELU6 => clamp(Activation::Relu6),
        OperationType::LOGISTIC => results(sigmoid_steps(LOGISTIC, input, output.1)),
        OperationType::TANH => results(sigmoid_steps(TANH, input, output.1)),
        OperationType::HARD_SWISH => results(hard_swish::steps(input, output)),
        OperationType::RSQRT => results(functions::rsqrt_steps::<T>(input, output)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn of_steps(operation: OperationType, scale: f32, output_scale: f32) -> Result<Vec<i16>, String> {
        let steps = |scale| Operand::new(T::TENSOR_QUANT16_SYMM, &[5]).with_quantization(scale, 0);
        let (_, data) = OneOperation::new(operation)
            .operand(steps(scale), &[-32_768_i16, -1000, 0, 1000, 32_767])
            .output_operand(steps(output_scale))
            .run_one::<i16>()?;
        Ok(data)
    }

    #[test]
    fn sixteen_bit_steps_are_clamped() {
        assert_eq!(
            of_steps(tflite::RELU, 0.001, 0.001).unwrap(),
            [0, 0, 0, 1000, 32_767]
        );
        assert_eq!(
            of_steps(tflite::RELU1, 0.01, 0.01).unwrap(),
            [-100, -100, 0, 100, 100]
        );
        assert_eq!(
            of_steps(tflite::RELU6, 0.001, 0.001).unwrap(),
            [0, 0, 0, 1000, 6000]
        );
        let error = of_steps(tflite::RELU, 0.001, 0.002).unwrap_err();
        assert!(error.contains("must have those of input 0"), "{error}");
    }

    #[test]
    fn sixteen_bit_results_are_the_nearest_steps() {
        let step = 1.0 / 32_768.0;
        assert_eq!(
            of_steps(tflite::LOGISTIC, 0.001, step).unwrap(),
            [0, 8813, 16_384, 23_955, 32_767]
        );
    }

    #[test]
    fn activations_may_have_as_many_axes_as_there_are() {
        let (dims, data) = OneOperation::new(tflite::RELU)
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 1, 1, 1, 1, 2], &[-1.0_f32, 2.0])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        assert_eq!((dims.len(), data), (8, vec![0.0, 2.0]));
    }
}
