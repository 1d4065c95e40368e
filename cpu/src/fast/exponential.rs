//! Exponentials and what is made of them, of 32-bit floats, without calls and branches, so that loops over them become
//! loops over vectors. Bounds of the errors stand with each function; tests hold them over the whole range.

use super::simd::{Instructions, Work, dispatch};

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

/// `e^value`, with a relative error of at most 3e-7: at least 1.17e-38, infinite from 88.38 on. A NaN stays one.
#[inline(always)]
pub(super) fn exp(value: f32) -> f32 {
    let value = value.clamp(LEAST, MOST);
    let shifted = value * std::f32::consts::LOG2_E + ROUNDING;
    let doublings = shifted - ROUNDING;
    let rest = value - doublings * LN_2_HIGH - doublings * LN_2_LOW;
    // The series of the exponential, within half a doubling.
    let series = 1.0 / 5040.0;
    let series = series * rest + 1.0 / 720.0;
    let series = series * rest + 1.0 / 120.0;
    let series = series * rest + 1.0 / 24.0;
    let series = series * rest + 1.0 / 6.0;
    let series = series * rest + 0.5;
    let series = series * rest * rest + rest + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(EXPONENT_BIAS) << FRACTION_BITS);
    series * power
}

/// `1 / (1 + e^-value)`, with an error of at most 2e-7. A NaN stays one.
#[inline(always)]
pub(super) fn logistic(value: f32) -> f32 {
    1.0 / (1.0 + exp(-value))
}

/// Up to here the hyperbolic tangent is taken from a polynomial.
const SMALL: f32 = 0.64;

/// The hyperbolic tangent, with an error of at most 2e-7, relative to it, too. A NaN stays one.
#[inline(always)]
pub(super) fn tanh(value: f32) -> f32 {
    let magnitude = value.abs();
    let square = value * value;
    // Fitted to (tanh(x) / x - 1) / x^2.
    let fitted = -0.006_001_805;
    let fitted = fitted * square + 0.020_931_44;
    let fitted = fitted * square - 0.053_837_024;
    let fitted = fitted * square + 0.133_326_8;
    let fitted = fitted * square - 0.333_333_28;
    let small = value * (1.0 + square * fitted);
    let large = (1.0 - 2.0 / (exp(2.0 * magnitude) + 1.0)).copysign(value);
    // A NaN is not below.
    if magnitude < SMALL { small } else { large }
}

/// Puts [`logistic`] of each value in its place.
pub(crate) fn logistic_of_each(values: &mut [f32]) {
    dispatch(Each(values, logistic));
}

/// Puts [`tanh`] of each value in its place.
pub(crate) fn tanh_of_each(values: &mut [f32]) {
    dispatch(Each(values, tanh));
}

struct Each<'a, F>(&'a mut [f32], F);

impl<F: Fn(f32) -> f32> Work for Each<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        for value in self.0 {
            *value = (self.1)(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{exp, logistic, logistic_of_each, tanh, tanh_of_each};

    fn everywhere(from: f32, to: f32) -> impl Iterator<Item = f32> {
        const COUNT: u32 = 400_000;
        (0..=COUNT).map(move |at| from + (to - from) * (at as f32 / COUNT as f32))
    }

    #[test]
    fn errors_are_within_their_bounds() {
        for value in everywhere(-87.3, 88.3) {
            let exact = f64::from(value).exp();
            assert!((f64::from(exp(value)) / exact - 1.0).abs() < 3e-7, "{value}");
        }
        for value in everywhere(-100.0, 100.0).chain(everywhere(-2.0, 2.0)) {
            let exact = 1.0 / (1.0 + (-f64::from(value)).exp());
            assert!((f64::from(logistic(value)) - exact).abs() < 2e-7, "{value}");
            let exact = f64::from(value).tanh();
            let error = (f64::from(tanh(value)) - exact).abs();
            assert!(error <= 2e-7 * exact.abs(), "{value}: {error}");
        }
    }

    #[test]
    fn ends_are_those_of_the_functions() {
        assert_eq!((exp(0.0), exp(f32::INFINITY)), (1.0, f32::INFINITY));
        assert!(exp(f32::NEG_INFINITY) < 1.2e-38);
        assert_eq!((logistic(f32::NEG_INFINITY), logistic(f32::INFINITY)), (0.0, 1.0));
        assert_eq!((tanh(f32::NEG_INFINITY), tanh(f32::INFINITY)), (-1.0, 1.0));
        assert_eq!(tanh(-0.0).to_bits(), (-0.0_f32).to_bits());
        assert!(exp(f32::NAN).is_nan() && logistic(f32::NAN).is_nan() && tanh(f32::NAN).is_nan());
    }

    #[test]
    fn whole_slices_are_computed() {
        let mut values: Vec<f32> = (0..19).map(|at| at as f32 / 3.0 - 3.0).collect();
        let exact: Vec<f32> = values.iter().map(|value| logistic(*value).tanh()).collect();
        logistic_of_each(&mut values);
        tanh_of_each(&mut values);
        let close = |(found, exact): (&f32, &f32)| (found - exact).abs() < 3e-7;
        assert!(values.iter().zip(&exact).all(close));
    }
}
