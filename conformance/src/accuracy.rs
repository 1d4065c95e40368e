//! How far outputs may be off, and whether they are.
//!
//! Source: the accuracy criteria of the HAL's generated tests, as the corpus' description states them.

use nnhal_hal::OperandType;

use crate::corpus::Case;

/// An element passes if `|actual - expected| <= absolute + relative * |expected|`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the value.
    pub absolute: f64,
    /// Allowed in proportion to the value.
    pub relative: f64,
}

impl Tolerance {
    /// Whether `actual` is near enough. A NaN never is.
    #[must_use]
    pub fn allows(self, actual: f64, expected: f64) -> bool {
        (actual - expected).abs() <= self.absolute + self.relative * expected.abs()
    }
}

/// Five units in the last place of a binary16 near 1.
const FLOAT16: Tolerance = Tolerance {
    absolute: 5.0 / 1024.0,
    relative: 5.0 / 1024.0,
};

/// Five units in the last place of a binary32 near 1, and a little for values near 0.
const FLOAT32: Tolerance = Tolerance {
    absolute: 1e-5,
    relative: 5.0 / (1 << 23) as f64,
};

const fn steps(absolute: f64) -> Tolerance {
    Tolerance {
        absolute,
        relative: 0.0,
    }
}

/// What outputs of type `ty` are allowed in `case`.
#[must_use]
pub fn tolerance(case: &Case, ty: OperandType) -> Tolerance {
    match ty {
        OperandType::TENSOR_FLOAT32 | OperandType::FLOAT32 => {
            if case.relaxed || has_float16_tensor(case) {
                FLOAT16
            } else {
                FLOAT32
            }
        }
        OperandType::TENSOR_FLOAT16 | OperandType::FLOAT16 => FLOAT16,
        OperandType::TENSOR_QUANT8_ASYMM
        | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
        | OperandType::TENSOR_QUANT8_SYMM
            if case.name.contains("mobilenet") =>
        {
            steps(3.0)
        }
        OperandType::TENSOR_BOOL8 | OperandType::BOOL => steps(0.0),
        _ => steps(1.0),
    }
}

fn has_float16_tensor(case: &Case) -> bool {
    case.graphs()
        .flat_map(|graph| &graph.operands)
        .any(|operand| operand.operand_type == "TENSOR_FLOAT16")
}

/// Compares all elements.
///
/// # Errors
/// How many are off, and the first of them.
pub fn compare(actual: &[f64], expected: &[f64], tolerance: Tolerance) -> Result<(), String> {
    const SHOWN: usize = 3;
    if actual.len() != expected.len() {
        return Err(format!(
            "has {} elements, {} are expected",
            actual.len(),
            expected.len()
        ));
    }
    let wrong = || {
        actual
            .iter()
            .zip(expected)
            .enumerate()
            .filter(|(_, (actual, expected))| !tolerance.allows(**actual, **expected))
    };
    let count = wrong().count();
    if count == 0 {
        return Ok(());
    }
    let shown: Vec<String> = wrong()
        .take(SHOWN)
        .map(|(index, (actual, expected))| format!("[{index}] is {actual}, expected {expected}"))
        .collect();
    Err(format!(
        "{count} of {} elements are off by more than {:e} + {:e} * |expected|: {}",
        actual.len(),
        tolerance.absolute,
        tolerance.relative,
        shown.join("; ")
    ))
}

/// Compares how often each class was drawn with the probabilities that unnormalised logarithms stand for.
///
/// # Errors
/// A class that is off by more than `tolerance`, or does not exist.
pub fn compare_frequencies(drawn: &[f64], logarithms: &[f64], tolerance: f64) -> Result<(), String> {
    if drawn.is_empty() || logarithms.is_empty() {
        return Err("there is nothing to compare".into());
    }
    let mut counts = vec![0_u32; logarithms.len()];
    for &class in drawn {
        match counts.get_mut(class as usize).filter(|_| class >= 0.0) {
            Some(count) => *count += 1,
            None => return Err(format!("class {class} was drawn, there are {}", counts.len())),
        }
    }
    let total: f64 = logarithms.iter().map(|logarithm| logarithm.exp()).sum();
    for (class, (&count, logarithm)) in counts.iter().zip(logarithms).enumerate() {
        let probability = logarithm.exp() / total;
        let frequency = f64::from(count) / drawn.len() as f64;
        let difference = (frequency - probability).abs();
        if difference > tolerance || difference.is_nan() {
            return Err(format!(
                "class {class} has frequency {frequency}, its probability is {probability}, tolerance {tolerance}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{FLOAT32, compare, compare_frequencies, steps};

    #[test]
    fn nan_never_passes() {
        assert!(compare(&[f64::NAN], &[0.0], steps(1e9)).is_err());
    }

    #[test]
    fn difference_at_the_limit_passes_and_beyond_it_fails() {
        assert!(compare(&[4.0], &[3.0], steps(1.0)).is_ok());
        assert!(compare(&[5.0], &[3.0], steps(1.0)).is_err());
        assert!(compare(&[1.0 + 1.05e-5], &[1.0], FLOAT32).is_ok());
        assert!(compare(&[1.0 + 1.07e-5], &[1.0], FLOAT32).is_err());
    }

    #[test]
    fn wrong_elements_are_counted_and_named() {
        let error = compare(&[1.0, 2.0, 9.0], &[1.0, 5.0, 5.0], steps(1.0)).unwrap_err();
        assert!(
            error.starts_with("2 of 3 elements") && error.contains("[1] is 2, expected 5"),
            "{error}"
        );
    }

    #[test]
    fn frequencies_are_held_to_probabilities() {
        let logarithms = [0.0, 0.0];
        assert!(compare_frequencies(&[0.0, 1.0, 1.0, 0.0], &logarithms, 0.01).is_ok());
        assert!(compare_frequencies(&[0.0, 1.0, 1.0, 1.0], &logarithms, 0.2).is_err());
        assert!(compare_frequencies(&[2.0], &logarithms, 1.0).is_err());
        assert!(compare_frequencies(&[-1.0], &logarithms, 1.0).is_err());
        assert!(compare_frequencies(&[], &logarithms, 1.0).is_err());
    }
}
