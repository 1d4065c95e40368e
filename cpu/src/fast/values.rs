//! What element-wise loops have in common: what values are clamped to, and what moving them takes.

use crate::threads::Cost;

/// What an operation takes that does little more than to read and write so many bytes.
pub(super) fn cost(bytes: usize) -> Cost {
    Cost {
        multiply_adds: 0,
        bytes: bytes as u64,
    }
}

/// `value` clamped to a range; a NaN stays one.
#[inline(always)]
pub(super) fn clamp(value: f32, low: f32, high: f32) -> f32 {
    // One after the other, so that each is one instruction of a vector.
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}
