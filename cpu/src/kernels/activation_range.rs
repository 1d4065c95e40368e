//! Fused activations, as ranges that results are clamped to.

use nnhal_hal::ops::OpError;

use super::fixed_point::quantize;

/// HAL `FusedActivationFunc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// No clamp.
    None,
    /// Nothing below 0.
    Relu,
    /// From -1 to 1.
    Relu1,
    /// From 0 to 6.
    Relu6,
}

impl Activation {
    /// The activation with this operand value, given as input `index`.
    pub fn from_code(index: usize, code: i32) -> Result<Activation, OpError> {
        match code {
            0 => Ok(Activation::None),
            1 => Ok(Activation::Relu),
            2 => Ok(Activation::Relu1),
            3 => Ok(Activation::Relu6),
            _ => Err(OpError::input(
                index,
                format!("(activation) is {code}, must be 0 to 3"),
            )),
        }
    }

    /// Lower and upper end for real values.
    #[must_use]
    pub fn range(self) -> (f32, f32) {
        match self {
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu1 => (-1.0, 1.0),
            Activation::Relu6 => (0.0, 6.0),
        }
    }

    /// Lower and upper end for integers.
    #[must_use]
    pub fn integer_range(self) -> (i64, i64) {
        match self {
            Activation::None => (i64::MIN, i64::MAX),
            Activation::Relu => (0, i64::MAX),
            Activation::Relu1 => (-1, 1),
            Activation::Relu6 => (0, 6),
        }
    }

    /// The value clamped to the range; a NaN stays one.
    #[inline]
    #[must_use]
    pub fn apply(self, value: f32) -> f32 {
        clamp(value, self.range())
    }

    /// Lower and upper end for quantised values of this scale and zero point, inside `least..=most`.
    #[must_use]
    pub fn quantized_range(self, scale: f32, zero_point: i32, least: i32, most: i32) -> (i32, i32) {
        let (low, high) = self.range();
        let quantized = |real: f32, unbounded: i32| {
            if real.is_finite() {
                quantize(real, scale, zero_point).clamp(least, most)
            } else {
                unbounded
            }
        };
        (quantized(low, least), quantized(high, most))
    }
}

/// The value clamped to a range. Not `f32::clamp`, which would let the compiler assume ordered ends; a NaN
/// stays one.
#[inline]
pub(crate) fn clamp(value: f32, (low, high): (f32, f32)) -> f32 {
    if value < low {
        low
    } else if value > high {
        high
    } else {
        value
    }
}
