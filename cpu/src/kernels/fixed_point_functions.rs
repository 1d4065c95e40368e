//! Exponential, logistic function, hyperbolic tangent and reciprocal in 32-bit fixed point.
//!
//! Source: the arithmetic that the NN HAL reference and TFLite's reference kernels share (gemmlowp's), so that
//! quantised results agree bit for bit. A number with `n` integer bits is `raw / 2^(31 - n)`; results have none, and
//! 1 is the largest raw value. Products are rounding doubling high multiplies.

use super::fixed_point::{
    rounding_divide_by_power_of_two as divide_by_power_of_two,
    saturating_rounding_doubling_high_multiply as multiply,
};

/// 1 with no integer bits, as close as it gets.
const ONE: i32 = i32::MAX;

/// 1 with two integer bits.
const ONE_OF_2_BITS: i32 = 1 << 29;

/// `value * 2^exponent`, cut to 32 bits.
#[inline]
fn saturating_shift_left(value: i32, exponent: u32) -> i32 {
    (i64::from(value) << exponent).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
}

/// `e^-(2^k)` for `k` from -2 to 4, with no integer bits.
const EXP_OF_MINUS_POWERS_OF_TWO: [i32; 7] = [
    1_672_461_947,
    1_302_514_674,
    790_015_084,
    290_630_308,
    39_332_535,
    720_401,
    242,
];

/// `e^value` for `value` from -1/4 to below 0, with no integer bits: the Taylor polynomial of degree 4 around -1/8.
fn exp_of_small(value: i32) -> i32 {
    const EXP_OF_MINUS_EIGHTH: i32 = 1_895_147_668;
    const THIRD: i32 = 715_827_883;
    const EIGHTH: i32 = 1 << 28;
    let x = value + EIGHTH;
    let x2 = multiply(x, x);
    let x3 = multiply(x2, x);
    let x4 = multiply(x2, x2);
    let cubic_and_quartic = multiply(divide_by_power_of_two(x4, 2) + x3, THIRD);
    let beyond_linear = divide_by_power_of_two(cubic_and_quartic + x2, 1);
    EXP_OF_MINUS_EIGHTH + multiply(EXP_OF_MINUS_EIGHTH, x + beyond_linear)
}

/// `e^value` for `value` not above 0 with `integer_bits`, which are from 1 to 5; the result has none.
#[must_use]
pub fn exp_of_negative(value: i32, integer_bits: u32) -> i32 {
    debug_assert!(value <= 0 && (1..=5).contains(&integer_bits));
    if value == 0 {
        return ONE;
    }
    let fractional_bits = 31 - integer_bits;
    let quarter = 1 << (fractional_bits - 2);
    // The part between -1/4 and 0 by polynomial, what is left by one factor for each of its bits.
    let small = (value & (quarter - 1)) - quarter;
    let rest = small - value;
    let mut result = exp_of_small(small << integer_bits);
    for (bit, factor) in (fractional_bits - 2..31).zip(EXP_OF_MINUS_POWERS_OF_TWO) {
        if rest & (1 << bit) != 0 {
            result = multiply(result, factor);
        }
    }
    result
}

/// `2 / (1 + value)` with two integer bits, for `value` from 0 to 1 with none: Newton's division.
fn two_over_one_plus(value: i32) -> i32 {
    const FORTY_EIGHT_17THS: i32 = 1_515_870_810;
    const MINUS_THIRTY_TWO_17THS: i32 = -1_010_580_540;
    // Never negative, so that adding 1 before halving rounds to nearest.
    let half_denominator = ((i64::from(value) + i64::from(ONE) + 1) / 2) as i32;
    let mut x = FORTY_EIGHT_17THS + multiply(half_denominator, MINUS_THIRTY_TWO_17THS);
    for _ in 0..3 {
        let error = ONE_OF_2_BITS - multiply(half_denominator, x);
        x += saturating_shift_left(multiply(x, error), 2);
    }
    x
}

/// `1 / (1 + value)` for `value` from 0 to 1, both with no integer bits.
#[must_use]
pub fn reciprocal_of_one_plus(value: i32) -> i32 {
    // Halving the number with two integer bits leaves the raw value with one.
    saturating_shift_left(two_over_one_plus(value), 1)
}

/// `1 / (1 + e^-value)` for a value with `integer_bits`, which are from 1 to 5; the result has none.
#[must_use]
pub fn logistic(value: i32, integer_bits: u32) -> i32 {
    if value == 0 {
        return 1 << 30;
    }
    let of_magnitude = reciprocal_of_one_plus(exp_of_negative(minus_magnitude(value), integer_bits));
    if value > 0 {
        of_magnitude
    } else {
        ONE - of_magnitude
    }
}

/// The hyperbolic tangent of a value with `integer_bits`, which are from 0 to 4; the result has none.
#[must_use]
pub fn tanh(value: i32, integer_bits: u32) -> i32 {
    if value == 0 {
        return 0;
    }
    // One more integer bit doubles the number: tanh x = (1 - e^-2x) / (1 + e^-2x).
    let exponential = exp_of_negative(minus_magnitude(value), integer_bits + 1);
    let of_magnitude = saturating_shift_left(two_over_one_plus(exponential) - ONE_OF_2_BITS, 2);
    if value > 0 { of_magnitude } else { -of_magnitude }
}

fn minus_magnitude(value: i32) -> i32 {
    if value < 0 { value } else { -value }
}

#[cfg(test)]
mod tests {
    use super::{exp_of_negative, logistic, reciprocal_of_one_plus, tanh};

    fn real(raw: i32) -> f64 {
        f64::from(raw) / 2f64.powi(31)
    }

    #[test]
    fn functions_are_close_to_the_real_ones_over_their_whole_range() {
        for integer_bits in 1..=4 {
            let unit = 2f64.powi(31 - integer_bits as i32);
            for step in -1000..=1000_i64 {
                let raw = (i64::from(i32::MAX) * step / 1000) as i32;
                let x = f64::from(raw) / unit;
                assert!(
                    (real(logistic(raw, integer_bits)) - 1.0 / (1.0 + (-x).exp())).abs() < 1e-7,
                    "{x}"
                );
                assert!((real(tanh(raw, integer_bits)) - x.tanh()).abs() < 1e-6, "{x}");
                if raw <= 0 {
                    assert!(
                        (real(exp_of_negative(raw, integer_bits)) - x.exp()).abs() < 1e-6,
                        "{x}"
                    );
                }
            }
        }
    }

    #[test]
    fn ends_of_the_range_do_not_overflow() {
        assert_eq!(exp_of_negative(0, 5), i32::MAX);
        assert!(exp_of_negative(i32::MIN, 5) >= 0);
        assert!(logistic(i32::MIN, 4) >= 0);
        assert!(tanh(i32::MIN, 4) <= -(i32::MAX - 2000));
        assert_eq!(reciprocal_of_one_plus(0), i32::MAX);
        assert!((real(reciprocal_of_one_plus(i32::MAX)) - 0.5).abs() < 1e-8);
    }
}
