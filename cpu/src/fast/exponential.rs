//! Exponentials and what is made of them, of 32-bit floats, without calls and branches, so that loops over
//! them become loops over vectors. Bounds of the errors stand with each function; tests hold them over the
//! whole range.

use super::simd::{Instructions, Work, dispatch};
use crate::kernels::cell_activation::Functions;

/// Below it the exponential is no normal number.
const LEAST: f32 = -87.336_54;
/// From here on the exponential is infinite; the largest finite ones are infinite, too.
const MOST: f32 = 88.8;
/// Adding it rounds to an integer, which is then in the lowest bits.
const ROUNDING: f32 = 12_582_912.0;
/// The part of ln 2 whose products with small integers are exact.
const LN_2_HIGH: f32 = 0.693_359_4;
/// The rest of ln 2.
const LN_2_LOW: f32 = -2.121_944_4e-4;
/// The exponent's offset in a float.
const EXPONENT_BIAS: u32 = 127;
/// Bits of a float behind the point.
const FRACTION_BITS: u32 = 23;

/// `left * right + sum`, rounded once where that is one instruction: it is a call where it is not.
#[inline(always)]
fn mul_add<S: Instructions>(left: f32, right: f32, sum: f32) -> f32 {
    if S::FUSES {
        left.mul_add(right, sum)
    } else {
        left * right + sum
    }
}

/// A value's exponential as a number near 1 and how often it is doubled: the latter in the lowest bits of a
/// float to which [`ROUNDING`] was added.
#[inline(always)]
fn parted<S: Instructions>(value: f32) -> (f32, f32) {
    let shifted = mul_add::<S>(value, std::f32::consts::LOG2_E, ROUNDING);
    let doublings = shifted - ROUNDING;
    let rest = mul_add::<S>(doublings, -LN_2_HIGH, value);
    let rest = mul_add::<S>(doublings, -LN_2_LOW, rest);
    // The series of the exponential, within half a doubling.
    let series = mul_add::<S>(1.0 / 5040.0, rest, 1.0 / 720.0);
    let series = mul_add::<S>(series, rest, 1.0 / 120.0);
    let series = mul_add::<S>(series, rest, 1.0 / 24.0);
    let series = mul_add::<S>(series, rest, 1.0 / 6.0);
    let series = mul_add::<S>(series, rest, 0.5);
    (mul_add::<S>(series * rest, rest, rest) + 1.0, shifted)
}

/// `e^value`, with a relative error of at most 3e-7: at least 1.17e-38, infinite from 88.38 on. A NaN stays
/// one.
#[inline(always)]
pub(super) fn exp<S: Instructions>(value: f32) -> f32 {
    let (near_one, shifted) = parted::<S>(value.clamp(LEAST, MOST));
    near_one * f32::from_bits(shifted.to_bits().wrapping_add(EXPONENT_BIAS) << FRACTION_BITS)
}

/// The same up to the ends of what a float holds: 0 is the exponential of what is far below, and only what is
/// above the largest float is infinite.
#[inline(always)]
pub(super) fn exp_of_any<S: Instructions>(value: f32) -> f32 {
    /// Whose exponentials are 0 and infinite.
    const ENDS: [f32; 2] = [-104.0, 89.0];
    let (near_one, shifted) = parted::<S>(value.clamp(ENDS[0], ENDS[1]));
    // In two steps, since one may be no exponent of a float.
    let doublings = shifted.to_bits().wrapping_sub(ROUNDING.to_bits()) as i32;
    let power = |doublings: i32| f32::from_bits(((doublings + EXPONENT_BIAS as i32) as u32) << FRACTION_BITS);
    let first = doublings >> 1;
    near_one * power(first) * power(doublings - first)
}

/// `1 / (1 + e^-value)`, with an error of at most 2e-7. A NaN stays one.
#[inline(always)]
pub(super) fn logistic<S: Instructions>(value: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-value))
}

/// Up to here the hyperbolic tangent is taken from a polynomial.
const SMALL: f32 = 0.64;

/// The hyperbolic tangent, with an error of at most 2e-7, relative to it, too. A NaN stays one.
#[inline(always)]
pub(super) fn tanh<S: Instructions>(value: f32) -> f32 {
    let magnitude = value.abs();
    let square = value * value;
    // Fitted to (tanh(x) / x - 1) / x^2.
    let fitted = mul_add::<S>(-0.006_001_805, square, 0.020_931_44);
    let fitted = mul_add::<S>(fitted, square, -0.053_837_024);
    let fitted = mul_add::<S>(fitted, square, 0.133_326_8);
    let fitted = mul_add::<S>(fitted, square, -0.333_333_28);
    let small = value * mul_add::<S>(square, fitted, 1.0);
    let large = (1.0 - 2.0 / (exp::<S>(2.0 * magnitude) + 1.0)).copysign(value);
    // A NaN is not below.
    if magnitude < SMALL { small } else { large }
}

/// `e^value - 1` of a value that is not above 0, with an error of at most 7e-7, relative to it, too. A NaN
/// stays one.
#[inline(always)]
pub(super) fn exp_minus_one<S: Instructions>(value: f32) -> f32 {
    // So small that it is the result, and that half of it may lose bits.
    const TINY: f32 = -1e-30;
    // Exact, and without the difference of two like numbers that the exponential itself would leave near 0.
    let half = tanh::<S>(0.5 * value);
    let result = 2.0 * half / (1.0 - half);
    if value > TINY { value } else { result }
}

/// The error function's distance from 1 at a value that is not below 0, with an error of at most 4e-7. A NaN
/// stays one.
#[inline(always)]
fn erfc<S: Instructions>(value: f32) -> f32 {
    // Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
    let place = 1.0 / mul_add::<S>(0.327_591_1, value, 1.0);
    let series = mul_add::<S>(1.061_405_4, place, -1.453_152_1);
    let series = mul_add::<S>(series, place, 1.421_413_8);
    let series = mul_add::<S>(series, place, -0.284_496_74);
    let series = mul_add::<S>(series, place, 0.254_829_6);
    series * place * exp::<S>(-value * value)
}

/// A value times the probability that a normal variable is less, with an error of at most 5e-7, or relative
/// to it. A NaN stays one.
#[inline(always)]
pub(super) fn gelu<S: Instructions>(value: f32) -> f32 {
    let outside = 0.5 * erfc::<S>(value.abs() * std::f32::consts::FRAC_1_SQRT_2);
    value * if value < 0.0 { outside } else { 1.0 - outside }
}

/// The same as it is approximated by the hyperbolic tangent, with the same error.
#[inline(always)]
pub(super) fn gelu_by_tanh<S: Instructions>(value: f32) -> f32 {
    // Twice the square root of 2 / pi.
    let inner = 1.595_769 * value * mul_add::<S>(0.044_715 * value, value, 1.0);
    value * logistic::<S>(inner)
}

/// Puts a function of each value in its place: the hyperbolic tangent, or the logistic function.
struct InPlace<'a, const TANH: bool>(&'a mut [f32]);

impl<const TANH: bool> Work for InPlace<'_, TANH> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        for value in self.0 {
            *value = if TANH {
                tanh::<S>(*value)
            } else {
                logistic::<S>(*value)
            };
        }
    }
}

/// Puts the logistic function of each value in its place.
fn logistic_of_each(values: &mut [f32]) {
    dispatch(InPlace::<false>(values));
}

/// Puts the hyperbolic tangent of each value in its place.
fn tanh_of_each(values: &mut [f32]) {
    dispatch(InPlace::<true>(values));
}

/// The functions of recurrent cells, of many values side by side.
pub(super) static SIDE_BY_SIDE: Functions = Functions {
    logistic: logistic_of_each,
    tanh: tanh_of_each,
};

#[cfg(test)]
mod tests {
    use super::{
        LEAST, SIDE_BY_SIDE, exp, exp_minus_one, exp_of_any, gelu, gelu_by_tanh, logistic, logistic_of_each,
        tanh, tanh_of_each,
    };
    use crate::fast::simd::{Instructions, Work, run_by_each};
    use crate::kernels::cell_activation::{CellActivation, EXACT};

    /// What users are told of the functions.
    const PAGE: &str = include_str!("../../../docs/accuracy.md");

    /// Every 4093rd float: some 2000 of each exponent and sign, down to subnormal ones. No NaN.
    fn everywhere() -> Vec<f32> {
        let floats = (0..=u32::MAX).step_by(4093).map(f32::from_bits);
        floats.filter(|value| !value.is_nan()).collect()
    }

    /// What is to hold whatever the instructions.
    trait Check {
        fn check<S: Instructions>();
    }

    fn check_by_each<C: Check>() {
        struct Checks<C>(std::marker::PhantomData<C>);

        impl<C: Check> Work for Checks<C> {
            type Output = ();

            #[inline(always)]
            fn run<S: Instructions>(self, _: S) {
                C::check::<S>();
            }
        }

        run_by_each(|| Checks::<C>(std::marker::PhantomData));
    }

    /// Holds a function to what the page says of it, at those of all values that `range` has.
    fn assert_within(
        (name, bound): (&str, &str),
        range: std::ops::Range<f32>,
        function: impl Fn(f32) -> f32,
        error: impl Fn(f64, f64) -> f64,
    ) {
        let values = everywhere().into_iter().filter(|value| range.contains(value));
        let largest = values.fold(0.0, |largest: f64, value| {
            let error = error(value.into(), function(value).into());
            // What is no number is as wrong as can be.
            if error.is_nan() {
                f64::INFINITY
            } else {
                error.max(largest)
            }
        });
        println!("{name}: {largest:e}");
        assert!(largest <= bound.parse().unwrap(), "{name}: {largest:e}");
        let row = format!("| {name} | {bound} |");
        assert!(
            PAGE.contains(&row),
            "docs/accuracy.md does not have the row {row}"
        );
    }

    /// The error of what was found, relative to what is exact.
    fn relative(found: f64, exact: f64) -> f64 {
        if exact == 0.0 {
            found.abs()
        } else {
            (found / exact - 1.0).abs()
        }
    }

    #[test]
    fn errors_are_within_the_bounds_that_the_documentation_states() {
        struct Errors;

        impl Check for Errors {
            #[inline(always)]
            fn check<S: Instructions>() {
                let all = f32::NEG_INFINITY..f32::INFINITY;
                let exponential = |value: f64, found| relative(found, value.exp());
                let row = ("exponential, relative", "3e-7");
                assert_within(row, LEAST..88.376, exp::<S>, exponential);
                let row = ("exponential of EXP, relative", "3e-7");
                assert_within(row, LEAST..88.722, exp_of_any::<S>, exponential);
                let row = ("logistic, absolute", "2e-7");
                let error = |value: f64, found: f64| (found - 1.0 / (1.0 + (-value).exp())).abs();
                assert_within(row, all.clone(), logistic::<S>, error);
                let row = ("tanh, relative", "2e-7");
                assert_within(row, all, tanh::<S>, |value, found| relative(found, value.tanh()));
                let row = ("exponential less one of ELU, relative", "7e-7");
                let error = |value: f64, found| relative(found, value.exp_m1());
                assert_within(row, f32::NEG_INFINITY..0.0, exp_minus_one::<S>, error);
                let finite = f32::MIN..f32::INFINITY;
                let beside = |exact: f64, found: f64| (found - exact).abs() / exact.abs().max(1.0);
                let row = ("GELU, absolute up to 1, relative above", "5e-7");
                let error = |value: f64, found| {
                    beside(
                        0.5 * value * libm::erfc(-value * std::f64::consts::FRAC_1_SQRT_2),
                        found,
                    )
                };
                assert_within(row, finite.clone(), gelu::<S>, error);
                let row = ("GELU by tanh, absolute up to 1, relative above", "5e-7");
                let error = |value: f64, found| {
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044_715 * value.powi(3));
                    beside(value / (1.0 + (-2.0 * inner).exp()), found)
                };
                assert_within(row, finite, gelu_by_tanh::<S>, error);
            }
        }

        check_by_each::<Errors>();
    }

    #[test]
    fn exponentials_beyond_the_range_of_normal_numbers_are_its_ends() {
        struct Beyond;

        impl Check for Beyond {
            #[inline(always)]
            fn check<S: Instructions>() {
                for value in everywhere() {
                    if value < LEAST {
                        assert!((1.17e-38..1.18e-38).contains(&exp::<S>(value)), "{value}");
                        // Numbers that are not normal, rounded to a multiple of the least of them.
                        let exact = f64::from(value).exp();
                        let error = f64::from(exp_of_any::<S>(value)) - exact;
                        assert!(error.abs() <= 0.75e-45 + 3e-7 * exact, "{value}: {error}");
                    } else if value >= 88.38 {
                        assert_eq!(exp::<S>(value), f32::INFINITY, "{value}");
                    }
                }
            }
        }

        check_by_each::<Beyond>();
    }

    #[test]
    fn ends_are_those_of_the_functions() {
        struct Ends;

        impl Check for Ends {
            #[inline(always)]
            fn check<S: Instructions>() {
                assert_eq!((exp::<S>(0.0), exp::<S>(f32::INFINITY)), (1.0, f32::INFINITY));
                assert!(exp::<S>(f32::NEG_INFINITY) < 1.2e-38);
                let ends = [f32::NEG_INFINITY, f32::INFINITY];
                assert_eq!(ends.map(exp_of_any::<S>), [0.0, f32::INFINITY]);
                assert_eq!(ends.map(logistic::<S>), [0.0, 1.0]);
                assert_eq!(ends.map(tanh::<S>), [-1.0, 1.0]);
                assert_eq!(exp_minus_one::<S>(ends[0]), -1.0);
                assert_eq!(tanh::<S>(-0.0).to_bits(), (-0.0_f32).to_bits());
                let of_nan = [
                    exp::<S>,
                    exp_of_any::<S>,
                    logistic::<S>,
                    tanh::<S>,
                    exp_minus_one::<S>,
                    gelu::<S>,
                    gelu_by_tanh::<S>,
                ];
                assert!(of_nan.iter().all(|function| function(f32::NAN).is_nan()));
            }
        }

        check_by_each::<Ends>();
    }

    #[test]
    fn whole_slices_are_computed() {
        let mut values: Vec<f32> = (0..19).map(|at| at as f32 / 3.0 - 3.0).collect();
        let exact: Vec<f32> = values
            .iter()
            .map(|value| (1.0 / (1.0 + (-value).exp())).tanh())
            .collect();
        logistic_of_each(&mut values);
        tanh_of_each(&mut values);
        let close = |(found, exact): (&f32, &f32)| (found - exact).abs() < 3e-7;
        assert!(values.iter().zip(&exact).all(close));
    }

    #[test]
    fn functions_side_by_side_are_near_the_exact_ones() {
        for code in [4, 6] {
            let activation = CellActivation::from_code(5, code).unwrap();
            let values: Vec<f32> = (-40..40).map(|at| at as f32 / 8.0).collect();
            let (mut exact, mut fast) = (values.clone(), values);
            activation.apply(&EXACT, &mut exact);
            activation.apply(&SIDE_BY_SIDE, &mut fast);
            for (exact, fast) in exact.iter().zip(&fast) {
                assert!((exact - fast).abs() < 1e-6, "{exact} {fast}");
            }
        }
    }
}
