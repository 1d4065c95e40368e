//! Values as people read them.

use nnhal_client::tflite::TensorInfo;
use nnhal_hal::OperandType;
use serde::Serialize;

use crate::feed::Value;

/// A tensor of so many values is printed whole, a larger one in part.
const SHOWN: usize = 10;

/// Classes printed of one tensor.
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

/// Whether a value looks like the scores of classes: a single row of real numbers.
fn are_scores(tensor: &TensorInfo, value: &Value) -> bool {
    let ty = tensor.operand_type;
    let are_real = ty == OperandType::TENSOR_FLOAT32
        || ty == OperandType::TENSOR_FLOAT16
        || tensor.quantization.is_some();
    let longer_than_one = value.dimensions.iter().filter(|extent| **extent != 1).count();
    are_real && longer_than_one == 1 && value.dimensions.last().is_some_and(|extent| *extent > 1)
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
    /// The likeliest classes, if it looks like the scores of classes, and there are many or names for them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) classes: Vec<Class>,
}

impl TensorReport {
    /// What is told of `value`, with these names of classes.
    pub(crate) fn new(tensor: &TensorInfo, value: &Value, labels: Option<&[String]>) -> TensorReport {
        let values = elements(tensor, value);
        let has_classes = are_scores(tensor, value) && (values.len() > SHOWN || labels.is_some());
        TensorReport {
            name: tensor.name.clone(),
            element_type: tensor.element_type.to_string(),
            dimensions: value.dimensions.clone(),
            classes: if has_classes {
                best_classes(tensor, value, labels.unwrap_or_default())
            } else {
                Vec::new()
            },
            values,
        }
    }

    /// One line: name, type, dimensions and the values, in full or what of them a person wants to see.
    pub(crate) fn line(&self, is_full: bool) -> String {
        let name = if self.name.is_empty() {
            "output"
        } else {
            &self.name
        };
        let head = format!("{name} {}{:?}:", self.element_type, self.dimensions);
        let count = self.values.len();
        if !is_full && !self.classes.is_empty() {
            let classes = classes(&self.classes);
            return format!("{head} {classes} (the largest of {count} values)");
        }
        let shown = if is_full { count } else { count.min(SHOWN) };
        let values: String = self.values[..shown].iter().map(|value| number(*value)).collect();
        if shown < count {
            format!("{head}{values} ... ({count} values)")
        } else {
            format!("{head}{values}")
        }
    }
}

/// Integers in full; for floats the shortest text that gives the same float32.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!(" {value}")
    } else {
        format!(" {}", value as f32)
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

/// Classes one after the other, by their names or indices.
fn classes(classes: &[Class]) -> String {
    let named: Vec<String> = classes
        .iter()
        .map(|class| {
            let name = class
                .label
                .clone()
                .unwrap_or_else(|| format!("[{}]", class.class));
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
    use nnhal_client::tflite::{ElementType, Quantization, TensorInfo};
    use nnhal_hal::OperandType;

    use super::{TensorReport, microseconds};
    use crate::feed::Value;

    /// Integers of these dimensions that stand for halves of what they are above -128.
    fn scores(dimensions: &[u32], integers: impl IntoIterator<Item = i8>) -> (TensorInfo, Value) {
        let info = TensorInfo {
            name: "scores".into(),
            signature_name: None,
            open: Vec::new(),
            element_type: ElementType::Int8,
            operand_type: OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            dimensions: dimensions.to_vec(),
            quantization: Some(Quantization {
                scale: 0.5,
                zero_point: -128,
            }),
        };
        let value = Value {
            dimensions: dimensions.to_vec(),
            bytes: integers.into_iter().map(i8::cast_unsigned).collect(),
        };
        (info, value)
    }

    #[test]
    fn few_values_are_printed_as_stored_or_as_classes_with_names() {
        let (info, value) = scores(&[1, 3], [-128, -126, -126]);
        let plain = TensorReport::new(&info, &value, None);
        assert_eq!(plain.line(false), "scores int8[1, 3]: -128 -126 -126");
        let labels = ["zero".into(), "one".into()];
        let named = TensorReport::new(&info, &value, Some(&labels));
        assert_eq!(
            named.line(false),
            "scores int8[1, 3]: one 1.0000, [2] 1.0000, zero 0.0000 (the largest of 3 values)"
        );
    }

    #[test]
    fn row_of_many_real_numbers_is_printed_as_its_likeliest_classes() {
        let (info, value) = scores(&[1, 1, 12], -128..-116);
        let report = TensorReport::new(&info, &value, None);
        assert_eq!(
            report.line(false),
            "scores int8[1, 1, 12]: [11] 5.5000, [10] 5.0000, [9] 4.5000, [8] 4.0000, [7] 3.5000 \
             (the largest of 12 values)"
        );
        assert_eq!(
            report.line(true),
            "scores int8[1, 1, 12]: -128 -127 -126 -125 -124 -123 -122 -121 -120 -119 -118 -117"
        );
    }

    #[test]
    fn what_is_no_row_of_real_numbers_is_printed_from_its_beginning() {
        let (table, value) = scores(&[2, 6], -128..-116);
        let (mut integers, row) = scores(&[12], -128..-116);
        integers.quantization = None;
        for (info, value, dimensions) in [(table, value, "[2, 6]"), (integers, row, "[12]")] {
            let report = TensorReport::new(&info, &value, Some(&[]));
            assert_eq!(
                report.line(false),
                format!(
                    "scores int8{dimensions}: -128 -127 -126 -125 -124 -123 -122 -121 -120 -119 ... (12 values)"
                )
            );
        }
    }

    #[test]
    fn durations_have_a_unit_that_suits() {
        assert_eq!(microseconds(1.234), "1.23 us");
        assert_eq!(microseconds(12_345.0), "12.35 ms");
        assert_eq!(microseconds(2_500_000.0), "2.50 s");
    }
}
