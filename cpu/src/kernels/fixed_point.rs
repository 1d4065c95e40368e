//! Fixed-point rescaling of quantised values.
//!
//! Source: the arithmetic that the NN HAL reference and TFLite's reference kernels share: a real multiplier
//! is held as a 32-bit mantissa in [2^30, 2^31) and a power of two; products are rounded to nearest in two
//! steps, a doubling high multiply with ties towards positive infinity, then a rounding shift with ties away
//! from zero.

/// A positive real multiplier in fixed point: `mantissa / 2^31 * 2^exponent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C)]
pub struct Multiplier {
    /// 0, or from 2^30 up to 2^31 - 1.
    pub mantissa: i32,
    /// Positive for multipliers of 1 and above.
    pub exponent: i32,
}

impl Multiplier {
    /// The closest fixed-point number to `real`, which must be finite and not negative; anything else, or a
    /// multiplier too small to matter, gives 0.
    #[must_use]
    pub fn new(real: f64) -> Multiplier {
        if !real.is_finite() || real <= 0.0 {
            return Multiplier::default();
        }
        let mut exponent = real.log2().floor() as i32 + 1;
        let mut fraction = real / f64::from(exponent).exp2();
        if fraction >= 1.0 {
            fraction /= 2.0;
            exponent += 1;
        }
        if fraction < 0.5 {
            fraction *= 2.0;
            exponent -= 1;
        }
        let mut mantissa = (fraction * (1_i64 << 31) as f64).round() as i64;
        if mantissa == 1 << 31 {
            mantissa /= 2;
            exponent += 1;
        }
        if exponent < -31 {
            return Multiplier::default();
        }
        Multiplier {
            mantissa: mantissa as i32,
            exponent: exponent.min(30),
        }
    }

    /// `1 / sqrt(value)`, by five steps of Newton's method. Values below 1 count as 1.
    #[must_use]
    pub fn inverse_square_root(value: i64) -> Multiplier {
        use saturating_rounding_doubling_high_multiply as multiply;
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
        let value = value as i32;
        let pairs = ((value.leading_zeros() - 1) / 2).saturating_sub(1);
        right_shift -= pairs as i32;
        let value = value << (2 * pairs);
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

    /// The smallest magnitude that, times the multiplier, is no longer below the largest number of
    /// `integer_bits` bits before the point and `31 - integer_bits` after it; fixed-point functions saturate
    /// from there on.
    #[must_use]
    pub fn input_radius(self, integer_bits: u32) -> i32 {
        let largest = f64::from((1_u32 << integer_bits) - 1) * f64::from(1_u32 << (31 - integer_bits));
        // The conversion saturates.
        (largest / f64::from(self.exponent).exp2()).floor() as i32
    }

    /// `value` times the multiplier, rounded, clamped to 32 bits.
    #[inline]
    #[must_use]
    pub fn apply(self, value: i32) -> i32 {
        let left = self.exponent.max(0);
        let right = (-self.exponent).max(0);
        let shifted = (i64::from(value) << left).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        rounding_divide_by_power_of_two(
            saturating_rounding_doubling_high_multiply(shifted, self.mantissa),
            right,
        )
    }
}

impl Multiplier {
    /// A sum of 64 bits times the multiplier, rounded, ties up, clamped to 32 bits. Of the mantissa the
    /// highest 16 bits count, as where TFLite's kernels sum in 64 bits.
    #[inline]
    #[must_use]
    pub fn apply_to_sum(self, sum: i64) -> i32 {
        let mantissa = if self.mantissa < 0x7FFF_0000 {
            (self.mantissa + (1 << 15)) >> 16
        } else {
            0x7FFF
        };
        let product = i128::from(sum) * i128::from(mantissa);
        let right = 15 - self.exponent;
        let scaled = if right > 0 {
            (product + (1 << (right - 1))) >> right
        } else {
            product << -right
        };
        scaled.clamp(i128::from(i32::MIN), i128::from(i32::MAX)) as i32
    }
}

/// `(left * right * 2) / 2^32` rounded to nearest, clamped to 32 bits.
#[inline]
#[must_use]
pub fn saturating_rounding_doubling_high_multiply(left: i32, right: i32) -> i32 {
    if left == i32::MIN && right == i32::MIN {
        return i32::MAX;
    }
    let product = i64::from(left) * i64::from(right);
    let nudge = if product >= 0 {
        1_i64 << 30
    } else {
        1 - (1_i64 << 30)
    };
    ((product + nudge) / (1_i64 << 31)) as i32
}

/// `value / 2^exponent` rounded to nearest, ties away from zero; `exponent` from 0 to 31.
#[inline]
#[must_use]
pub fn rounding_divide_by_power_of_two(value: i32, exponent: i32) -> i32 {
    let mask = ((1_i64 << exponent) - 1) as i32;
    let remainder = value & mask;
    let threshold = (mask >> 1) + i32::from(value < 0);
    (value >> exponent) + i32::from(remainder > threshold)
}

/// The quantised value nearest to `real` for this scale and zero point, ties away from zero, not yet clamped
/// to a range narrower than 32 bits.
#[inline]
#[must_use]
pub fn quantize(real: f32, scale: f32, zero_point: i32) -> i32 {
    // The conversion saturates, so that the sum needs to.
    ((real / scale).round() as i32).saturating_add(zero_point)
}

/// The value, in output steps, of a quantised value in input steps: exact up to one rounding, ties away from
/// zero, not yet clamped to a range narrower than 32 bits. Scales and zero points are given as `(scale, zero
/// point)`.
#[inline]
#[must_use]
pub fn requantize(value: i32, from: (f32, i32), to: (f32, i32)) -> i32 {
    if from == to {
        return value;
    }
    let real = f64::from(value - from.1) * f64::from(from.0);
    ((real / f64::from(to.0)).round() as i32).saturating_add(to.1)
}

#[cfg(test)]
mod tests {
    use super::{Multiplier, requantize, rounding_divide_by_power_of_two};

    #[test]
    fn multipliers_scale_and_round_to_nearest() {
        assert_eq!(Multiplier::new(0.5).apply(7), 4);
        // The doubling high multiply rounds ties towards positive infinity.
        assert_eq!(Multiplier::new(0.5).apply(-7), -3);
        assert_eq!(Multiplier::new(3.0).apply(5), 15);
        assert_eq!(Multiplier::new(1.0).apply(i32::MAX / 2), i32::MAX / 2);
        assert_eq!(Multiplier::new(0.0).apply(5), 0);
        assert_eq!(Multiplier::new(f64::NAN).apply(5), 0);
    }

    #[test]
    fn products_beyond_32_bits_are_cut() {
        assert!(Multiplier::new(1e9).apply(1000) > i32::MAX / 2);
        assert!(Multiplier::new(1e9).apply(-1000) < i32::MIN / 2);
    }

    #[test]
    fn sums_of_64_bits_are_scaled_and_cut() {
        let half = Multiplier::new(0.5);
        assert_eq!([7, -7, 8].map(|sum| half.apply_to_sum(sum)), [4, -3, 4]);
        assert_eq!(Multiplier::new(1e-6).apply_to_sum(5_000_000_000), 5000);
        assert_eq!(Multiplier::new(3.0).apply_to_sum(5), 15);
        assert_eq!(Multiplier::new(0.999_999).apply_to_sum(1 << 15), (1 << 15) - 1);
        for real in [1e-9, 1.0, 1e9] {
            let multiplier = Multiplier::new(real);
            assert!(multiplier.apply_to_sum(i64::MAX) > 0);
            assert!(multiplier.apply_to_sum(i64::MIN) < 0);
        }
        assert_eq!(Multiplier::new(1e9).apply_to_sum(i64::MIN), i32::MIN);
    }

    #[test]
    fn requantizing_rounds_before_the_zero_point_is_added() {
        assert_eq!(requantize(3, (0.5, 0), (1.0, 0)), 2);
        assert_eq!(requantize(131, (0.5, 128), (1.0, -128)), -126);
        assert_eq!(requantize(-3, (0.5, 0), (1.0, 10)), 8);
        assert_eq!(requantize(255, (1e30, 0), (1e-30, 5)), i32::MAX);
    }

    #[test]
    fn inverse_square_roots_are_close_over_the_whole_range() {
        let large = [
            1000,
            65_535,
            1 << 20,
            (1 << 29) - 1,
            1 << 29,
            1 << 30,
            (1 << 31) - 1,
            1 << 40,
        ];
        for value in (1..100_i64).chain(large) {
            let multiplier = Multiplier::inverse_square_root(value);
            let real = f64::from(multiplier.mantissa) / 2f64.powi(31) * f64::from(multiplier.exponent).exp2();
            let expected = 1.0 / (value as f64).sqrt();
            assert!((real / expected - 1.0).abs() < 1e-5, "{value}: {real}");
        }
        let of_nothing = Multiplier::inverse_square_root(0);
        assert_eq!(of_nothing, Multiplier::inverse_square_root(1));
    }

    #[test]
    fn mantissa_is_normal() {
        for real in [1e-6, 0.1, 0.25, 0.999_999_999_9, 1.0, 1.5, 100.0] {
            let multiplier = Multiplier::new(real);
            assert!(multiplier.mantissa >= 1 << 30, "{real}");
            let back = f64::from(multiplier.mantissa) / 2f64.powi(31) * f64::from(multiplier.exponent).exp2();
            assert!((back - real).abs() <= real * 1e-9, "{real}");
        }
    }

    #[test]
    fn division_rounds_ties_away_from_zero() {
        assert_eq!(rounding_divide_by_power_of_two(6, 2), 2);
        assert_eq!(rounding_divide_by_power_of_two(-6, 2), -2);
        assert_eq!(rounding_divide_by_power_of_two(5, 0), 5);
    }
}
