//! Exponential, logistic function, hyperbolic tangent and reciprocal in fixed point of 32 and of 16 bits.
//!
//! Source: the arithmetic that the NN HAL reference and TFLite's reference kernels share (gemmlowp's), so
//! that quantised results agree bit for bit. A number of `BITS` bits with `n` integer bits is
//! `raw / 2^(BITS - 1 - n)`; results have none, and 1 is the largest raw value. Products are rounding
//! doubling high multiplies. Raw values are held in 32 bits whatever `BITS` is, and constants are those of 32
//! bits, rounded.

use super::fixed_point::rounding_divide_by_power_of_two as divide_by_power_of_two;

/// The largest raw value: 1 with no integer bits, as close as it gets.
const fn largest<const BITS: u32>() -> i32 {
    i32::MAX >> (32 - BITS)
}

/// 1 with two integer bits.
const fn one_of_2_bits<const BITS: u32>() -> i32 {
    1 << (BITS - 3)
}

/// A constant given in 32 bits.
#[inline]
fn constant<const BITS: u32>(raw: i32) -> i32 {
    divide_by_power_of_two(raw, 32 - BITS as i32)
}

/// `left * right * 2 / 2^BITS` rounded to nearest, clamped to the range.
#[inline]
fn multiply<const BITS: u32>(left: i32, right: i32) -> i32 {
    let product = i64::from(left) * i64::from(right);
    let half = 1_i64 << (BITS - 2);
    let nudge = if product >= 0 { half } else { 1 - half };
    // Only the product of the smallest value with itself is beyond the range.
    ((product + nudge) / (1_i64 << (BITS - 1))).min(i64::from(largest::<BITS>())) as i32
}

/// `value * 2^exponent`, clamped to the range.
#[inline]
fn saturating_shift_left<const BITS: u32>(value: i32, exponent: u32) -> i32 {
    let most = i64::from(largest::<BITS>());
    (i64::from(value) << exponent).clamp(-most - 1, most) as i32
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

/// `e^value` for `value` from -1/4 to below 0, with no integer bits: the Taylor polynomial of degree 4 around
/// -1/8.
fn exp_of_small<const BITS: u32>(value: i32) -> i32 {
    let exp_of_minus_eighth = constant::<BITS>(1_895_147_668);
    let third = constant::<BITS>(715_827_883);
    let x = value + (1 << (BITS - 4));
    let x2 = multiply::<BITS>(x, x);
    let x3 = multiply::<BITS>(x2, x);
    let x4 = multiply::<BITS>(x2, x2);
    let cubic_and_quartic = multiply::<BITS>(divide_by_power_of_two(x4, 2) + x3, third);
    let beyond_linear = divide_by_power_of_two(cubic_and_quartic + x2, 1);
    exp_of_minus_eighth + multiply::<BITS>(exp_of_minus_eighth, x + beyond_linear)
}

/// `e^value` for `value` not above 0 with `integer_bits`, at least 1 and at least 3 fewer than `BITS`.
fn exp<const BITS: u32>(value: i32, integer_bits: u32) -> i32 {
    if value == 0 {
        return largest::<BITS>();
    }
    let fractional_bits = BITS - 1 - integer_bits;
    // Below -32 nothing is left, and the factors end.
    if integer_bits > 5 && value < -(32 << fractional_bits) {
        return 0;
    }
    let quarter = 1 << (fractional_bits - 2);
    // The part between -1/4 and 0 by polynomial, what is left by one factor for each of its bits.
    let small = (value & (quarter - 1)) - quarter;
    let rest = small - value;
    let mut result = exp_of_small::<BITS>(small << integer_bits);
    for (bit, factor) in (fractional_bits - 2..BITS - 1).zip(EXP_OF_MINUS_POWERS_OF_TWO) {
        if rest & (1 << bit) != 0 {
            result = multiply::<BITS>(result, constant::<BITS>(factor));
        }
    }
    result
}

/// `2 / (1 + value)` with two integer bits, for `value` from 0 to 1 with none: Newton's division.
fn two_over_one_plus<const BITS: u32>(value: i32) -> i32 {
    let forty_eight_17ths = constant::<BITS>(1_515_870_810);
    let minus_thirty_two_17ths = constant::<BITS>(-1_010_580_540);
    // Never negative, so that adding 1 before halving rounds to nearest.
    let half_denominator = ((i64::from(value) + i64::from(largest::<BITS>()) + 1) / 2) as i32;
    let mut x = forty_eight_17ths + multiply::<BITS>(half_denominator, minus_thirty_two_17ths);
    for _ in 0..3 {
        let error = one_of_2_bits::<BITS>() - multiply::<BITS>(half_denominator, x);
        x += saturating_shift_left::<BITS>(multiply::<BITS>(x, error), 2);
    }
    x
}

fn reciprocal<const BITS: u32>(value: i32) -> i32 {
    // Halving the number with two integer bits leaves the raw value with one.
    saturating_shift_left::<BITS>(two_over_one_plus::<BITS>(value), 1)
}

fn logistic_of<const BITS: u32>(value: i32, integer_bits: u32) -> i32 {
    if value == 0 {
        return 1 << (BITS - 2);
    }
    let of_magnitude = reciprocal::<BITS>(exp::<BITS>(minus_magnitude(value), integer_bits));
    if value > 0 {
        of_magnitude
    } else {
        largest::<BITS>() - of_magnitude
    }
}

fn tanh_of<const BITS: u32>(value: i32, integer_bits: u32) -> i32 {
    if value == 0 {
        return 0;
    }
    // One more integer bit doubles the number: tanh x = (1 - e^-2x) / (1 + e^-2x).
    let exponential = exp::<BITS>(minus_magnitude(value), integer_bits + 1);
    let above_one = two_over_one_plus::<BITS>(exponential) - one_of_2_bits::<BITS>();
    let of_magnitude = saturating_shift_left::<BITS>(above_one, 2);
    if value > 0 { of_magnitude } else { -of_magnitude }
}

fn minus_magnitude(value: i32) -> i32 {
    if value < 0 { value } else { -value }
}

/// `e^value` for `value` not above 0 with `integer_bits`, which are from 1 to 5; the result has none.
#[must_use]
pub fn exp_of_negative(value: i32, integer_bits: u32) -> i32 {
    debug_assert!(value <= 0 && (1..=5).contains(&integer_bits));
    exp::<32>(value, integer_bits)
}

/// `1 / (1 + value)` for `value` from 0 to 1, both with no integer bits.
#[must_use]
pub fn reciprocal_of_one_plus(value: i32) -> i32 {
    reciprocal::<32>(value)
}

/// `1 / (1 + e^-value)` for a value with `integer_bits`, which are from 1 to 5; the result has none.
#[must_use]
pub fn logistic(value: i32, integer_bits: u32) -> i32 {
    logistic_of::<32>(value, integer_bits)
}

/// The hyperbolic tangent of a value with `integer_bits`, which are from 0 to 4; the result has none.
#[must_use]
pub fn tanh(value: i32, integer_bits: u32) -> i32 {
    tanh_of::<32>(value, integer_bits)
}

/// `left * right * 2 / 2^16` rounded to nearest, clamped to the range.
#[must_use]
pub fn multiply_16(left: i16, right: i16) -> i16 {
    multiply::<16>(i32::from(left), i32::from(right)) as i16
}

/// `value * 2^exponent`, clamped to the range, for exponents up to 30.
#[must_use]
pub fn saturating_shift_left_16(value: i16, exponent: u32) -> i16 {
    saturating_shift_left::<16>(i32::from(value), exponent) as i16
}

/// [`logistic`] in 16 bits, for `integer_bits` from 1 to 7.
#[must_use]
pub fn logistic_16(value: i16, integer_bits: u32) -> i16 {
    logistic_of::<16>(i32::from(value), integer_bits) as i16
}

/// [`tanh`] in 16 bits, for `integer_bits` from 0 to 6.
#[must_use]
pub fn tanh_16(value: i16, integer_bits: u32) -> i16 {
    tanh_of::<16>(i32::from(value), integer_bits) as i16
}

#[cfg(test)]
mod tests {
    use super::{exp_of_negative, logistic, logistic_16, reciprocal_of_one_plus, tanh, tanh_16};

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

    #[test]
    fn functions_of_16_bits_are_close_to_the_real_ones_over_their_whole_range() {
        for integer_bits in 0..=7 {
            let unit = 2f64.powi(15 - integer_bits as i32);
            for raw in i16::MIN..=i16::MAX {
                let x = f64::from(raw) / unit;
                let real = |raw: i16| f64::from(raw) / 32768.0;
                if integer_bits >= 1 {
                    let error = real(logistic_16(raw, integer_bits)) - 1.0 / (1.0 + (-x).exp());
                    assert!(error.abs() < 3e-4, "logistic of {x}: {error}");
                }
                if integer_bits <= 6 {
                    let error = real(tanh_16(raw, integer_bits)) - x.tanh();
                    assert!(error.abs() < 1e-3, "tanh of {x}: {error}");
                }
            }
        }
    }
}
