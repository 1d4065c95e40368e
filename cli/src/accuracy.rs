//! How far a model's outputs may be off from what a reference gives.
//!
//! The rules are those of the recorded outputs of real models: quantized outputs bit for bit on the reference
//! device and one step off on others; floats within `1e-5 + 1e-4 * |expected|`, or within a thousandth of the
//! output's range where the weights are float16; indexes and truth values exactly.

use nnhal_client::tflite::ElementType;
use serde::Serialize;

/// What one output is allowed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// `|actual - expected|` at most this.
    Absolute(f64),
    /// `|actual - expected|` at most 1e-5 + 1e-4 * |expected|.
    Float,
    /// `|actual - expected|` at most a thousandth of the range of the values that are expected.
    FloatOfFloat16Weights,
}

/// What the rule depends on beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// Whether the device claims the reference's own arithmetic.
    pub(crate) is_reference_device: bool,
    /// Whether weights are stored as float16.
    pub(crate) has_float16_weights: bool,
}

/// The rule for outputs of this type.
pub(crate) fn rule(element_type: ElementType, circumstances: Circumstances) -> Rule {
    match element_type {
        ElementType::Float32 | ElementType::Float16 => {
            if circumstances.has_float16_weights {
                Rule::FloatOfFloat16Weights
            } else {
                Rule::Float
            }
        }
        ElementType::Int8 | ElementType::Uint8 | ElementType::Int16 if !circumstances.is_reference_device => {
            Rule::Absolute(1.0)
        }
        _ => Rule::Absolute(0.0),
    }
}

/// How far off an output is, over all calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Deviation {
    /// The largest `|actual - expected|`; not a number if one of them is none.
    pub(crate) maximum_error: f64,
    /// How many elements were compared.
    pub(crate) elements: u64,
    /// How many are further off than the rule allows.
    pub(crate) wrong: u64,
    /// The first of those.
    pub(crate) first_wrong: Option<Wrong>,
}

/// An element that is further off than the rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Wrong {
    /// Which call.
    pub(crate) call: usize,
    /// Which element.
    pub(crate) element: usize,
    /// What it is.
    pub(crate) actual: f64,
    /// What it should be.
    pub(crate) expected: f64,
}

impl Deviation {
    /// Nothing compared yet.
    pub(crate) const NONE: Deviation = Deviation {
        maximum_error: 0.0,
        elements: 0,
        wrong: 0,
        first_wrong: None,
    };

    /// Compares the elements of one call; `range` is that of all expected values of the output. A missing or
    /// surplus element counts as wrong.
    pub(crate) fn compare(&mut self, call: usize, actual: &[f64], expected: &[f64], rule: Rule, range: f64) {
        for element in 0..actual.len().max(expected.len()) {
            let at = |values: &[f64]| values.get(element).copied().unwrap_or(f64::NAN);
            let (actual, expected) = (at(actual), at(expected));
            let allowed = match rule {
                Rule::Absolute(allowed) => allowed,
                Rule::Float => 1e-5 + 1e-4 * expected.abs(),
                Rule::FloatOfFloat16Weights => 1e-3 * range,
            };
            // Equal infinities differ by nothing.
            let error = if actual == expected {
                0.0
            } else {
                (actual - expected).abs()
            };
            self.elements += 1;
            if error.is_nan() || error > self.maximum_error {
                self.maximum_error = error;
            }
            if error.is_nan() || error > allowed {
                self.wrong += 1;
                self.first_wrong.get_or_insert(Wrong {
                    call,
                    element,
                    actual,
                    expected,
                });
            }
        }
    }
}

/// The distance between the least and the greatest value.
pub(crate) fn range<'a>(values: impl IntoIterator<Item = &'a f64>) -> f64 {
    let (least, greatest) = values
        .into_iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| {
            (least.min(*value), greatest.max(*value))
        });
    (greatest - least).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Circumstances, Deviation, Rule, range, rule};
    use nnhal_client::tflite::ElementType;

    const REFERENCE: Circumstances = Circumstances {
        is_reference_device: true,
        has_float16_weights: false,
    };

    fn deviation(actual: &[f64], expected: &[f64], rule: Rule) -> Deviation {
        let mut deviation = Deviation::NONE;
        deviation.compare(0, actual, expected, rule, range(expected));
        deviation
    }

    #[test]
    fn quantized_outputs_are_exact_on_the_reference_device_only() {
        let exact = rule(ElementType::Int8, REFERENCE);
        assert_eq!(deviation(&[1.0, 2.0], &[1.0, 3.0], exact).wrong, 1);
        let fast = Circumstances {
            is_reference_device: false,
            ..REFERENCE
        };
        assert_eq!(
            deviation(&[1.0, 2.0], &[1.0, 3.0], rule(ElementType::Int8, fast)).wrong,
            0
        );
        assert_eq!(rule(ElementType::Int64, fast), Rule::Absolute(0.0));
    }

    #[test]
    fn floats_are_allowed_a_share_of_the_value_or_of_the_range() {
        assert_eq!(deviation(&[1.0001, 100.01], &[1.0, 100.0], Rule::Float).wrong, 0);
        let off = deviation(&[0.0, 1.1], &[0.0, 1.0], Rule::Float);
        assert_eq!((off.wrong, off.first_wrong.unwrap().element), (1, 1));
        assert_eq!(
            deviation(&[0.0, 1.0009], &[0.0, 1.0], Rule::FloatOfFloat16Weights).wrong,
            0
        );
        assert_eq!(
            deviation(&[0.0, 1.0011], &[0.0, 1.0], Rule::FloatOfFloat16Weights).wrong,
            1
        );
    }

    #[test]
    fn nan_and_missing_elements_are_wrong() {
        let nan = deviation(&[f64::NAN, 5.0], &[0.0, 5.0], Rule::Float);
        assert!(nan.maximum_error.is_nan());
        assert_eq!(nan.wrong, 1);
        assert_eq!(deviation(&[1.0], &[1.0, 2.0], Rule::Float).wrong, 1);
        assert_eq!(deviation(&[1.0, 2.0], &[1.0], Rule::Float).wrong, 1);
        assert_eq!(
            deviation(&[f64::INFINITY], &[f64::INFINITY], Rule::Float).wrong,
            0
        );
    }
}
