//! Element-wise arithmetic on two operands: ADD, MUL, SUB, DIV, MAXIMUM, MINIMUM and POW.
//!
//! Quantised ADD and SUB follow the HAL reference: inputs shifted left by 20 bits, rescaled to twice the
//! larger input scale, summed, rescaled to the output. Quantised MUL rescales the product of the offset
//! inputs once. Inputs of 16 bits are shifted by 15.

use bytemuck::Pod;
use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::activation_range::Activation;
use super::broadcast::{binary, binary_float};
use super::element::{Float, Integer, Quantized, by_element};
use super::fixed_point::{Multiplier, requantize};
use super::floor_division::floored_quotient;
use crate::kernel::{Kernel, KernelContext, KernelError, Tensor};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ADD, add),
    (OperationType::SUB, sub),
    (OperationType::MUL, mul),
    (OperationType::DIV, div),
    (OperationType::MAXIMUM, maximum),
    (OperationType::MINIMUM, minimum),
    (OperationType::POW, |context| floats(context, f32::powf)),
    (tflite::ADD, add),
    (tflite::SUB, sub),
    (tflite::MUL, mul),
    (tflite::DIV, div),
    (tflite::MAXIMUM, maximum),
    (tflite::MINIMUM, minimum),
    (tflite::ATAN2, |context| floats(context, f32::atan2)),
];

fn add(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_activation(context, Arithmetic::Add)
}

fn sub(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_activation(context, Arithmetic::Sub)
}

fn mul(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_activation(context, Arithmetic::Mul)
}

fn div(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_activation(context, Arithmetic::Div)
}

fn maximum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    extremum(context, true)
}

fn minimum(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    extremum(context, false)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Sub,
    Mul,
    Div,
}

fn with_activation(context: &mut KernelContext<'_>, arithmetic: Arithmetic) -> Result<(), KernelError> {
    let activation = Activation::from_code(2, context.inputs.i32(2)?)?;
    match context.inputs.tensor(0)?.ty() {
        OperandType::TENSOR_INT32 => {
            let is_wider = context.inputs.rules().operation().is_extension();
            if activation != Activation::None && !is_wider {
                return Err(OpError::input(2, "(activation) must be 0 (NONE) for TENSOR_INT32").into());
            }
            integer::<i32>(context, arithmetic, activation)
        }
        tflite::TENSOR_INT64 => integer::<i64>(context, arithmetic, activation),
        _ => by_element!(context, {
            [f32, f16] => float(context, arithmetic, activation),
            [u8, i8, i16] => quantized(context, arithmetic, activation),
        }),
    }
}

fn float<T: Float>(
    context: &mut KernelContext<'_>,
    arithmetic: Arithmetic,
    activation: Activation,
) -> Result<(), KernelError> {
    let (low, high) = activation.range();
    binary::<T, T>(context, |left, right| {
        let (left, right) = (left.to_f32(), right.to_f32());
        let result = match arithmetic {
            Arithmetic::Add => left + right,
            Arithmetic::Sub => left - right,
            Arithmetic::Mul => left * right,
            Arithmetic::Div => left / right,
        };
        // Not `clamp`, which would let the compiler assume ordered ends; a NaN stays one.
        T::from_f32(if result < low {
            low
        } else if result > high {
            high
        } else {
            result
        })
    })
}

/// Integers wrap; the quotient is rounded down, and 0 where the divisor is 0.
fn integer<T: Integer>(
    context: &mut KernelContext<'_>,
    arithmetic: Arithmetic,
    activation: Activation,
) -> Result<(), KernelError> {
    let (low, high) = activation.integer_range();
    let (low, high) = (T::saturate(low), T::saturate(high));
    binary::<T, T>(context, |left, right| {
        let (left, right): (i64, i64) = (left.into(), right.into());
        let result = match arithmetic {
            Arithmetic::Add => left.wrapping_add(right),
            Arithmetic::Sub => left.wrapping_sub(right),
            Arithmetic::Mul => left.wrapping_mul(right),
            Arithmetic::Div if right == 0 => 0,
            Arithmetic::Div => floored_quotient(left, right),
        };
        T::wrap(result).clamp(low, high)
    })
}

fn quantized<T: Quantized>(
    context: &mut KernelContext<'_>,
    arithmetic: Arithmetic,
    activation: Activation,
) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let (scale, zero_point) = (output.scale(), output.zero_point());
    let (low, high) = activation.quantized_range(scale, zero_point, T::LEAST, T::MOST);
    match arithmetic {
        Arithmetic::Add | Arithmetic::Sub => {
            let sum = QuantizedSum::new::<T>(&left, &right, scale);
            let sign = if arithmetic == Arithmetic::Sub { -1 } else { 1 };
            binary::<T, T>(context, |left, right| {
                let sum = sum.compute(left.to_i32(), right.to_i32(), sign);
                T::saturate(sum.saturating_add(zero_point).max(low).min(high))
            })
        }
        Arithmetic::Mul => {
            let multiplier =
                Multiplier::new(f64::from(left.scale()) * f64::from(right.scale()) / f64::from(scale));
            let (left_zero, right_zero) = (left.zero_point(), right.zero_point());
            binary::<T, T>(context, |left, right| {
                let product = (left.to_i32() - left_zero) * (right.to_i32() - right_zero);
                T::saturate(
                    multiplier
                        .apply(product)
                        .saturating_add(zero_point)
                        .max(low)
                        .min(high),
                )
            })
        }
        Arithmetic::Div => Err(OpError::input(0, "is quantised, which DIV does not take").into()),
    }
}

/// The rescaling of a quantised sum.
struct QuantizedSum {
    /// Head room for the rescaled inputs, in bits.
    shift: u32,
    left_zero: i32,
    right_zero: i32,
    left: Multiplier,
    right: Multiplier,
    output: Multiplier,
}

impl QuantizedSum {
    fn new<T: Quantized>(left: &Tensor<'_>, right: &Tensor<'_>, output_scale: f32) -> QuantizedSum {
        let shift = if size_of::<T>() == 1 { 20 } else { 15 };
        let (left_scale, right_scale) = (f64::from(left.scale()), f64::from(right.scale()));
        let twice_the_larger = 2.0 * left_scale.max(right_scale);
        QuantizedSum {
            shift,
            left_zero: left.zero_point(),
            right_zero: right.zero_point(),
            left: Multiplier::new(left_scale / twice_the_larger),
            right: Multiplier::new(right_scale / twice_the_larger),
            output: Multiplier::new(twice_the_larger / (f64::from(1 << shift) * f64::from(output_scale))),
        }
    }

    /// The sum in output steps, before the output's zero point.
    fn compute(&self, left: i32, right: i32, sign: i32) -> i32 {
        let left = self.left.apply((left - self.left_zero) << self.shift);
        let right = self.right.apply((right - self.right_zero) << self.shift);
        self.output.apply(left + sign * right)
    }
}

fn extremum(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16, i32, i64] => plain_extremum(context, largest),
        [u8, i8, i16] => quantized_extremum(context, largest),
    })
}

fn plain_extremum<T: Pod + PartialOrd>(
    context: &mut KernelContext<'_>,
    largest: bool,
) -> Result<(), KernelError> {
    binary::<T, T>(
        context,
        |left, right| if (left > right) == largest { left } else { right },
    )
}

/// Both inputs are rescaled to the output's scale before they are compared.
fn quantized_extremum<T: Quantized>(
    context: &mut KernelContext<'_>,
    largest: bool,
) -> Result<(), KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    let (scale, zero_point) = (output.scale(), output.zero_point());
    let rescale = |operand: &Tensor<'_>| {
        let from = (operand.scale(), operand.zero_point());
        move |value: T| requantize(value.to_i32(), from, (scale, zero_point))
    };
    let (rescale_left, rescale_right) = (rescale(&left), rescale(&right));
    binary::<T, T>(context, |left, right| {
        let (left, right) = (rescale_left(left), rescale_right(right));
        T::saturate(if largest { left.max(right) } else { left.min(right) })
    })
}

fn floats(context: &mut KernelContext<'_>, compute: fn(f32, f32) -> f32) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => binary_float(context, compute) })
}

#[cfg(test)]
#[path = "arithmetic_tests.rs"]
mod tests;
