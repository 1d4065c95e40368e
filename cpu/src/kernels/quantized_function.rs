//! Functions of quantised values.

use super::broadcast::unary;
use super::element::{Quant8, Quantized};
use super::fixed_point::quantize;
use crate::kernel::{KernelContext, KernelError};

/// Applies `compute` to every element of input 0 of an 8-bit quantised type; a table serves larger tensors.
pub(super) fn unary_quantized<T: Quant8>(
    context: &mut KernelContext<'_>,
    compute: impl Fn(i32) -> i32,
) -> Result<(), KernelError> {
    if context.inputs.tensor(0)?.bytes.len() < 256 {
        return unary::<T, T>(context, |value| T::saturate(compute(value.to_i32())));
    }
    let table = results::<T>(compute);
    unary::<T, T>(context, |value| table[(value.to_i32() - T::LEAST) as usize])
}

/// A function of each value of a type, from the least one on, clamped to the type.
pub(super) fn results<T: Quant8>(compute: impl Fn(i32) -> i32) -> [T; 256] {
    let mut results = [T::zeroed(); 256];
    for (result, value) in results.iter_mut().zip(T::LEAST..=T::MOST) {
        *result = T::saturate(compute(value));
    }
    results
}

/// A function of real numbers as one of steps: from those of input 0 to the nearest of output 0, not clamped
/// to its type.
pub(super) fn of_numbers(
    context: &mut KernelContext<'_>,
    function: fn(f32) -> f32,
) -> Result<impl Fn(i32) -> i32 + use<>, KernelError> {
    let (input, output) = (context.inputs.tensor(0)?, context.outputs.tensor(0)?);
    let (from, to) = (
        (input.scale(), input.zero_point()),
        (output.scale(), output.zero_point()),
    );
    Ok(of_steps(function, from, to))
}

/// The same between steps of these scales and zero points.
pub(super) fn of_steps(
    function: fn(f32) -> f32,
    (scale, zero_point): (f32, i32),
    (output_scale, output_zero): (f32, i32),
) -> impl Fn(i32) -> i32 {
    move |value| {
        let result = function((value - zero_point) as f32 * scale);
        quantize(result, output_scale, output_zero)
    }
}

/// Applies a function of real numbers to every element of input 0, of 16-bit steps.
pub(super) fn unary_sixteen_bit(
    context: &mut KernelContext<'_>,
    function: fn(f32) -> f32,
) -> Result<(), KernelError> {
    let compute = of_numbers(context, function)?;
    unary::<i16, i16>(context, |value| i16::saturate(compute(value.to_i32())))
}
