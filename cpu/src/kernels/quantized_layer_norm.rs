//! Layer normalisation of 16-bit sums, for QUANTIZED_LSTM.
//!
//! Source: the integer arithmetic that the HAL's reference shares with TFLite. Normalised values keep 10 fractional
//! bits; the inverse of the standard deviation comes from five steps of Newton's method in 32-bit fixed point.

use super::fixed_point::{
    Multiplier, rounding_divide_by_power_of_two, saturating_rounding_doubling_high_multiply as multiply,
};

/// Fractional bits of normalised values.
const VALUE_BITS: u32 = 10;

/// The weights, bias and rescaling of one gate's normalisation.
pub(super) struct LayerNorm<'a> {
    weights: &'a [i16],
    bias: &'a [i32],
    rescale: Multiplier,
    /// Stands in for a variance that rounds to 0.
    least_variance: i32,
}

impl<'a> LayerNorm<'a> {
    /// A normalisation with weights of this scale; results have three integer bits of 16.
    pub(super) fn new(weights: &'a [i16], bias: &'a [i32], scale: f32) -> LayerNorm<'a> {
        let rescale = Multiplier::new(f64::from(scale));
        LayerNorm {
            weights,
            bias,
            rescale: Multiplier {
                exponent: (rescale.exponent + 12).min(30),
                ..rescale
            },
            // The conversion saturates.
            least_variance: ((10_000.0 * scale) as i32).max(1),
        }
    }

    /// Normalises the sums of one batch in place.
    pub(super) fn apply(&self, sums: &mut [i16]) {
        if sums.is_empty() {
            return;
        }
        let count = sums.len() as i64;
        let sum: i64 = sums.iter().map(|value| i64::from(*value)).sum();
        let squares: i64 = sums
            .iter()
            .map(|value| i64::from(*value) * i64::from(*value))
            .sum();
        let mean = (sum << VALUE_BITS) / count;
        // The mean of squares is taken by a factor, which is exact where the count is a power of two.
        let variance = squares * ((1_i64 << (2 * VALUE_BITS)) / count) - mean * mean;
        let variance = (variance / (1 << (2 * VALUE_BITS))) as i32;
        let variance = if variance < 1 {
            self.least_variance
        } else {
            variance
        };
        let inverse_deviation = inverse_square_root(variance);
        for ((value, weight), bias) in sums.iter_mut().zip(self.weights).zip(self.bias) {
            let centred = (i64::from(*value) << VALUE_BITS) - mean;
            let normalised = inverse_deviation.apply(centred as i32);
            let weighted = i64::from(normalised) * i64::from(*weight) + i64::from(*bias);
            let half = 1_i64 << (VALUE_BITS - 1);
            let rounded = (weighted + if weighted > 0 { half } else { -half }) / (1 << VALUE_BITS);
            let rounded = rounded.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            let result = self.rescale.apply(rounded);
            *value = result.clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;
        }
    }
}

/// `1 / sqrt(value)` for a value of at least 1, as a multiplier.
fn inverse_square_root(value: i32) -> Multiplier {
    if value <= 1 {
        return Multiplier {
            mantissa: i32::MAX,
            exponent: 0,
        };
    }
    const HALF_SQRT_2: i32 = 1_518_500_250;
    let saturating_shift_left = |value: i32, bits: u32| {
        (i64::from(value) << bits).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    };
    let mut value = value;
    let mut right_shift = 11_i32;
    while value >= 1 << 29 {
        value /= 4;
        right_shift += 1;
    }
    // Bring the value to from 2^27 to below 2^29 by an even number of bits.
    let pairs = ((value.leading_zeros() - 1) / 2).saturating_sub(1);
    right_shift -= pairs as i32;
    value <<= 2 * pairs;
    // Three integer bits give room for the steps.
    let half_value = rounding_divide_by_power_of_two(value >> 1, 1);
    let three_halves = (1 << 28) + (1 << 27);
    let mut x = 1 << 28;
    for _ in 0..5 {
        let cube = saturating_shift_left(multiply(multiply(x, x), x), 6);
        x = saturating_shift_left(multiply(three_halves, x) - multiply(half_value, cube), 3);
    }
    let mut mantissa = multiply(x, HALF_SQRT_2);
    if right_shift < 0 {
        mantissa = saturating_shift_left(mantissa, right_shift.unsigned_abs());
        right_shift = 0;
    }
    Multiplier {
        mantissa,
        exponent: -right_shift,
    }
}

#[cfg(test)]
mod tests {
    use super::{LayerNorm, inverse_square_root};

    #[test]
    fn inverse_square_roots_are_close_over_the_whole_range() {
        for value in (1..100).chain([1000, 65_535, 1 << 20, (1 << 29) - 1, 1 << 29, 1 << 30, i32::MAX]) {
            let multiplier = inverse_square_root(value);
            let real = f64::from(multiplier.mantissa) / 2f64.powi(31) * f64::from(multiplier.exponent).exp2();
            let expected = 1.0 / f64::from(value).sqrt();
            assert!((real / expected - 1.0).abs() < 1e-5, "{value}: {real}");
        }
    }

    #[test]
    fn sums_are_centred_and_scaled_to_their_deviation() {
        let weights = [i16::MAX; 4];
        let norm = LayerNorm::new(&weights, &[0; 4], 1.0 / 32768.0);
        let mut sums = [-3000, -1000, 1000, 3000];
        norm.apply(&mut sums);
        // One deviation, sqrt(5) * 1000, is 1.0: 4096 steps.
        for (found, expected) in sums.iter().zip([-1.342, -0.447, 0.447, 1.342]) {
            assert!((f64::from(*found) / 4096.0 - expected).abs() < 0.002, "{sums:?}");
        }
    }

    #[test]
    fn equal_and_extreme_sums_do_not_overflow() {
        let weights = [i16::MIN; 3];
        for scale in [f32::MIN_POSITIVE, 1.0, f32::MAX] {
            let norm = LayerNorm::new(&weights, &[i32::MIN, i32::MAX, 0], scale);
            for value in [0, i16::MIN, i16::MAX] {
                norm.apply(&mut [value; 3]);
            }
            norm.apply(&mut [i16::MIN, i16::MAX, 0]);
        }
        LayerNorm::new(&[], &[], 1.0).apply(&mut []);
    }
}
