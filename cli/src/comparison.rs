//! The outputs of a run against what is expected of them.

use nnhal_client::TfliteModel;
use serde::Serialize;

use crate::accuracy::{self, Circumstances, Deviation, Rule};
use crate::feed::{Sequence, Value};
use crate::present;

/// A comparison in progress.
#[derive(Debug)]
pub(crate) struct Comparison<'a> {
    model: &'a TfliteModel,
    outputs: Vec<OutputComparison>,
}

#[derive(Debug)]
struct OutputComparison {
    rule: Rule,
    range: f64,
    /// By call.
    expected: Vec<Vec<f64>>,
    deviation: Deviation,
}

/// How an output compares with what is expected of it.
#[derive(Debug, Serialize)]
pub(crate) struct OutputReport {
    /// The output's name.
    pub(crate) name: String,
    /// How far off it is.
    #[serde(flatten)]
    pub(crate) deviation: Deviation,
}

impl<'a> Comparison<'a> {
    /// A comparison with `expected`, which holds every output of every call.
    pub(crate) fn new(
        model: &'a TfliteModel,
        expected: &Sequence,
        circumstances: Circumstances,
    ) -> Comparison<'a> {
        let outputs = model.outputs.iter().enumerate().map(|(output, tensor)| {
            let calls = expected.iter().filter_map(|call| call.get(output));
            let expected: Vec<Vec<f64>> = calls.map(|value| present::elements(tensor, value)).collect();
            OutputComparison {
                rule: accuracy::rule(tensor.element_type, circumstances),
                range: accuracy::range(expected.iter().flatten()),
                expected,
                deviation: Deviation::NONE,
            }
        });
        Comparison {
            model,
            outputs: outputs.collect(),
        }
    }

    /// Adds the outputs of a call.
    pub(crate) fn add(&mut self, call: usize, results: &[Value]) {
        for ((output, tensor), value) in self.outputs.iter_mut().zip(&self.model.outputs).zip(results) {
            let actual = present::elements(tensor, value);
            let expected = output.expected.get(call).map_or(&[][..], Vec::as_slice);
            output
                .deviation
                .compare(call, &actual, expected, output.rule, output.range);
        }
    }

    /// What has come out.
    pub(crate) fn into_reports(self) -> Vec<OutputReport> {
        self.model
            .outputs
            .iter()
            .zip(self.outputs)
            .map(|(tensor, output)| OutputReport {
                name: tensor.name.clone(),
                deviation: output.deviation,
            })
            .collect()
    }
}

/// One line for people.
pub(crate) fn line(report: &OutputReport) -> String {
    let deviation = &report.deviation;
    let head = format!(
        "{}: maximum error {} over {} elements",
        if report.name.is_empty() {
            "output"
        } else {
            &report.name
        },
        steps_or_real(deviation.maximum_error),
        deviation.elements
    );
    match deviation.first_wrong {
        None => format!("{head}, within tolerance"),
        Some(wrong) => format!(
            "{head}; {} beyond tolerance, first element {} of call {}: {} instead of {}",
            deviation.wrong, wrong.element, wrong.call, wrong.actual, wrong.expected
        ),
    }
}

/// Steps of integers in full, others in short.
fn steps_or_real(error: f64) -> String {
    if error.fract() == 0.0 {
        error.to_string()
    } else {
        format!("{error:.2e}")
    }
}
