//! Functions of 8-bit quantised values.

use super::broadcast::unary;
use super::element::Quant8;
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
