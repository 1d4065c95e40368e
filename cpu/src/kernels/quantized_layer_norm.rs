//! Layer normalisation of 16-bit sums, for QUANTIZED_LSTM.
//!
//! Source: the integer arithmetic that the HAL's reference shares with TFLite. Normalised values keep 10
//! fractional bits; the inverse of the standard deviation is a multiplier in fixed point.

use super::fixed_point::Multiplier;

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
        let inverse_deviation = Multiplier::inverse_square_root(i64::from(variance));
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

#[cfg(test)]
mod tests {
    use super::LayerNorm;

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
