//! Element-wise activations: RELU, RELU1, RELU6, LOGISTIC, TANH and ELU.
//!
//! Quantised LOGISTIC and TANH follow the HAL reference: the input in fixed point with four integer bits,
//! inputs beyond what those hold at the end of the output's range.

use half::f16;
use nnhal_hal::OperationType;

use super::activation_range::Activation;
use super::broadcast::{unary, unary_float};
use super::element::{Quant8, by_element};
use super::fixed_point::{Multiplier, rounding_divide_by_power_of_two};
use super::quantized_function::{results, unary_quantized};
use super::{fixed_point_functions, hard_swish, unary as functions};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RELU, |context| clamp(context, Activation::Relu)),
    (OperationType::RELU1, |context| clamp(context, Activation::Relu1)),
    (OperationType::RELU6, |context| clamp(context, Activation::Relu6)),
    (OperationType::LOGISTIC, |context| sigmoid(context, LOGISTIC)),
    (OperationType::TANH, |context| sigmoid(context, TANH)),
    (OperationType::ELU, elu),
];

fn clamp(context: &mut KernelContext<'_>, activation: Activation) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => unary_float(context, |value| activation.apply(value)),
        [u8, i8] => clamp_quantized(context, activation),
    })
}

fn clamp_quantized<T: Quant8>(
    context: &mut KernelContext<'_>,
    activation: Activation,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let clamp = clamp_steps::<T>(activation, (input.scale(), input.zero_point()));
    unary::<T, T>(context, |value| T::saturate(clamp(value.to_i32())))
}

/// What clamps quantised values of this scale and zero point.
fn clamp_steps<T: Quant8>(activation: Activation, (scale, zero_point): (f32, i32)) -> impl Fn(i32) -> i32 {
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
