//! Element-wise arithmetic on two operands: ADD, MUL, SUB, DIV, MAXIMUM, MINIMUM and POW.
//!
//! Quantised ADD and SUB follow the HAL reference: inputs shifted left by 20 bits, rescaled to twice the
//! larger input scale, summed, rescaled to the output. Quantised MUL rescales the product of the offset
//! inputs once.

use bytemuck::Pod;
use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::activation_range::Activation;
use super::broadcast::{binary, binary_float};
use super::element::{Float, Quant8, by_element};
use super::fixed_point::{Multiplier, requantize};
use crate::kernel::{Kernel, KernelContext, KernelError, Tensor};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ADD, |context| {
        with_activation(context, Arithmetic::Add)
    }),
    (OperationType::SUB, |context| {
        with_activation(context, Arithmetic::Sub)
    }),
    (OperationType::MUL, |context| {
        with_activation(context, Arithmetic::Mul)
    }),
    (OperationType::DIV, |context| {
        with_activation(context, Arithmetic::Div)
    }),
    (OperationType::MAXIMUM, |context| extremum(context, true)),
    (OperationType::MINIMUM, |context| extremum(context, false)),
    (OperationType::POW, |context| floats(context, f32::powf)),
    (tflite::ATAN2, |context| floats(context, f32::atan2)),
];

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
        OperandType::TENSOR_INT32 if activation == Activation::None => integer(context, arithmetic),
        OperandType::TENSOR_INT32 => {
            Err(OpError::input(2, "(activation) must be 0 (NONE) for TENSOR_INT32").into())
        }
        _ => by_element!(context, {
            [f32, f16] => float(context, arithmetic, activation),
            [u8, i8] => quantized(context, arithmetic, activation),
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
fn integer(context: &mut KernelContext<'_>, arithmetic: Arithmetic) -> Result<(), KernelError> {
    binary::<i32, i32>(context, |left, right| match arithmetic {
        Arithmetic::Add => left.wrapping_add(right),
        Arithmetic::Sub => left.wrapping_sub(right),
        Arithmetic::Mul => left.wrapping_mul(right),
        Arithmetic::Div if right == 0 => 0,
        Arithmetic::Div => {
            let quotient = left.wrapping_div(right);
            let inexact = left.wrapping_rem(right) != 0;
            if inexact && (left < 0) != (right < 0) {
                quotient - 1
            } else {
                quotient
            }
        }
    })
}

fn quantized<T: Quant8>(
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
            let sum = QuantizedSum::new(&left, &right, scale);
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
    left_zero: i32,
    right_zero: i32,
    left: Multiplier,
    right: Multiplier,
    output: Multiplier,
}

/// Head room for the rescaled inputs, in bits.
const SUM_SHIFT: i32 = 20;

impl QuantizedSum {
    fn new(left: &Tensor<'_>, right: &Tensor<'_>, output_scale: f32) -> QuantizedSum {
        let (left_scale, right_scale) = (f64::from(left.scale()), f64::from(right.scale()));
        let twice_the_larger = 2.0 * left_scale.max(right_scale);
        QuantizedSum {
            left_zero: left.zero_point(),
            right_zero: right.zero_point(),
            left: Multiplier::new(left_scale / twice_the_larger),
            right: Multiplier::new(right_scale / twice_the_larger),
            output: Multiplier::new(twice_the_larger / (f64::from(1 << SUM_SHIFT) * f64::from(output_scale))),
        }
    }

    /// The sum in output steps, before the output's zero point.
    fn compute(&self, left: i32, right: i32, sign: i32) -> i32 {
        let left = self.left.apply((left - self.left_zero) << SUM_SHIFT);
        let right = self.right.apply((right - self.right_zero) << SUM_SHIFT);
        self.output.apply(left + sign * right)
    }
}

fn extremum(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16, i32] => plain_extremum(context, largest),
        [u8, i8] => quantized_extremum(context, largest),
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
fn quantized_extremum<T: Quant8>(context: &mut KernelContext<'_>, largest: bool) -> Result<(), KernelError> {
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
mod tests {
    use nnhal_hal::{OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn angles_have_the_quadrant_of_their_point() {
        let (dims, data) = OneOperation::new(tflite::ATAN2)
            .tensor(T::TENSOR_FLOAT32, &[2, 1], &[1.0_f32, -1.0])
            .tensor(T::TENSOR_FLOAT32, &[2], &[1.0_f32, -1.0])
            .output(T::TENSOR_FLOAT32, &[])
            .run_one::<f32>()
            .unwrap();
        let eighth = std::f32::consts::FRAC_PI_4;
        assert_eq!(dims, [2, 2]);
        for (found, eighths) in data.iter().zip([1.0, 3.0, -1.0, -3.0]) {
            assert!((found - eighth * eighths).abs() < 1e-6, "{data:?}");
        }
    }
}
