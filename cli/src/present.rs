//! Values as people read them.

use nnhal_client::tflite::TensorInfo;
use serde::Serialize;

use crate::feed::Value;

/// Values printed of one tensor, from its beginning.
const SHOWN: usize = 10;

/// Classes printed of one call.
const BEST: usize = 5;

/// The elements of an output: integers as they are stored.
pub(crate) fn elements(tensor: &TensorInfo, value: &Value) -> Vec<f64> {
    nnhal_conformance::element::decode(tensor.operand_type, &value.bytes)
}

/// The elements of an output as real numbers.
fn real_elements(tensor: &TensorInfo, value: &Value) -> Vec<f64> {
    let mut elements = elements(tensor, value);
    if let Some(quantization) = tensor.quantization {
        for element in &mut elements {
            *element = (*element - f64::from(quantization.zero_point)) * f64::from(quantization.scale);
        }
    }
    elements
}

/// A tensor's value.
#[derive(Debug, Serialize)]
pub(crate) struct TensorReport {
    /// Its name in the file.
    pub(crate) name: String,
    /// The type of its elements in the file.
    pub(crate) element_type: String,
    /// Its dimensions.
    pub(crate) dimensions: Vec<u32>,
    /// Its elements; integers as they are stored.
    pub(crate) values: Vec<f64>,
}

impl TensorReport {
    /// What is told of `value`.
    pub(crate) fn new(tensor: &TensorInfo, value: &Value) -> TensorReport {
        TensorReport {
            name: tensor.name.clone(),
            element_type: tensor.element_type.to_string(),
            dimensions: value.dimensions.clone(),
            values: elements(tensor, value),
        }
    }
}

/// One line: name, type, dimensions and the first values.
impl std::fmt::Display for TensorReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() {
            "output"
        } else {
            &self.name
        };
        write!(f, "{name} {}{:?}:", self.element_type, self.dimensions)?;
        for value in self.values.iter().take(SHOWN) {
            // Integers in full; for floats the shortest text that gives the same float32.
            if value.fract() == 0.0 {
                write!(f, " {value}")?;
            } else {
                write!(f, " {}", *value as f32)?;
            }
        }
        if self.values.len() > SHOWN {
            write!(f, " ... ({} values)", self.values.len())?;
        }
        Ok(())
    }
}

/// A class and how likely the model takes it to be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Class {
    /// Its index.
    pub(crate) class: usize,
    /// Its name, if the labels have one.
    pub(crate) label: Option<String>,
    /// The model's figure for it.
    pub(crate) score: f64,
}

/// The most likely classes, the likeliest first; among equals the one with the lower index.
pub(crate) fn best_classes(tensor: &TensorInfo, value: &Value, labels: &[String]) -> Vec<Class> {
    let scores = real_elements(tensor, value);
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|left, right| scores[*right].total_cmp(&scores[*left]));
    order
        .into_iter()
        .take(BEST)
        .map(|class| Class {
            class,
            label: labels.get(class).cloned(),
            score: scores[class],
        })
        .collect()
}

/// One line with classes.
pub(crate) fn classes(classes: &[Class]) -> String {
    let named: Vec<String> = classes
        .iter()
        .map(|class| {
            let name = class
                .label
                .clone()
                .unwrap_or_else(|| format!("class {}", class.class));
            format!("{name} {:.4}", class.score)
        })
        .collect();
    named.join(", ")
}

/// Duration in microseconds with a unit that suits it.
pub(crate) fn microseconds(microseconds: f64) -> String {
    if microseconds < 1000.0 {
        format!("{microseconds:.2} us")
    } else if microseconds < 1_000_000.0 {
        format!("{:.2} ms", microseconds / 1000.0)
    } else {
        format!("{:.2} s", microseconds / 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use nnhal::hal::OperandType;
    use nnhal_client::tflite::{ElementType, Quantization, TensorInfo};

    use super::{TensorReport, best_classes, classes, microseconds};
    use crate::feed::Value;

    fn scores() -> (TensorInfo, Value) {
        let info = TensorInfo {
            name: "scores".into(),
            signature_name: None,
            element_type: ElementType::Int8,
            operand_type: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            dimensions: vec![1, 3],
            quantization: Some(Quantization {
                scale: 0.5,
                zero_point: -128,
            }),
        };
        let value = Value {
            dimensions: vec![1, 3],
            bytes: vec![0x80, 0x82, 0x82],
        };
        (info, value)
    }

    #[test]
    fn classes_are_named_and_dequantized() {
        let (info, value) = scores();
        let best = best_classes(&info, &value, &["zero".into(), "one".into()]);
        assert_eq!(classes(&best), "one 1.0000, class 2 1.0000, zero 0.0000");
    }

    #[test]
    fn tensors_are_printed_as_stored() {
        let (info, value) = scores();
        assert_eq!(
            TensorReport::new(&info, &value).to_string(),
            "scores int8[1, 3]: -128 -126 -126"
        );
    }

    #[test]
    fn durations_have_a_unit_that_suits() {
        assert_eq!(microseconds(1.234), "1.23 us");
        assert_eq!(microseconds(12_345.0), "12.35 ms");
        assert_eq!(microseconds(2_500_000.0), "2.50 s");
    }
}
