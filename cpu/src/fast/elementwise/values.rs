//! What element-wise loops clamp values by.

/// `value` clamped to a range; a NaN stays one.
#[inline(always)]
pub(in crate::fast) fn clamp(value: f32, low: f32, high: f32) -> f32 {
    // One after the other, so that each is one instruction of a vector.
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}
