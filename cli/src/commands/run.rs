//! `nnhal run`: a model on a device.

mod products;
mod profile;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use nnhal_client::TfliteModel;
use serde::Serialize;

use crate::accuracy::Circumstances;
use crate::arguments::{self, RunArguments};
use crate::comparison::{self, Comparison, OutputReport};
use crate::driver::{self, Processes};
use crate::error::Error;
use crate::feed::{self, Value};
use crate::in_process::Kernels;
use crate::latency::{Latencies, Summary};
use crate::present::{self, TensorReport};
use crate::progress;
use crate::session::Session;

/// Everything that is told of a run.
#[derive(Debug, Serialize)]
struct Report {
    model: PathBuf,
    device: String,
    path: &'static str,
    processes: Processes,
    calls: usize,
    iterations: u32,
    latency_us: Summary,
    outputs: Vec<CallReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expectations: Vec<OutputReport>,
}

/// The outputs of one call of the first iteration.
#[derive(Debug, Serialize)]
struct CallReport {
    tensors: Vec<TensorReport>,
}

/// Runs the model and reports; an output that is further off than it may be is an error.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Error> {
    let arrays = super::read_arrays(&arguments.input)?;
    let model = super::load_for(arguments, &arrays)?;
    let inputs = feed::inputs(&model, &arrays)?;
    if arguments.profile {
        return profile::run(arguments, &model, &inputs);
    }
    let expected = match &arguments.expect[..] {
        [] => None,
        files => Some(feed::expectations(
            &model,
            &super::read_arrays(files)?,
            inputs.len(),
        )?),
    };
    let labels = arguments.labels.as_deref().map(read_labels).transpose()?;

    let path = arguments.path.unwrap_or(arguments::Path::Sync);
    let opened = driver::open(&model.model, path, arguments.device.as_deref(), arguments.threads)?;
    let circumstances = Circumstances {
        is_reference_device: opened.device == Kernels::REFERENCE,
        has_float16_weights: model.has_float16_weights || arguments.relaxed,
    };
    let mut comparison = expected
        .as_ref()
        .map(|expected| Comparison::new(&model, expected, circumstances));
    let mut session = Session::new(&model, opened.subject);
    let mut latencies = Latencies::new();
    let mut outputs = Vec::with_capacity(inputs.len());
    let bar = progress::bar(u64::from(arguments.iterations) * inputs.len() as u64, "running");
    for iteration in 0..arguments.iterations {
        session.reset();
        for (call, values) in inputs.iter().enumerate() {
            let (results, latency) = session.call(values)?;
            latencies.record(latency);
            if let Some(comparison) = &mut comparison {
                comparison.add(call, results);
            }
            if iteration == 0 {
                let report = report_call(&model, results, labels.as_deref());
                if let (0, Some(labels)) = (call, &labels) {
                    check_labels(labels, &report)?;
                }
                outputs.push(report);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let report = Report {
        model: arguments.model.clone(),
        device: opened.device,
        path: path.name(),
        processes: opened.processes,
        calls: inputs.len(),
        iterations: arguments.iterations,
        latency_us: latencies.summary(),
        outputs,
        expectations: comparison.map(Comparison::into_reports).unwrap_or_default(),
    };
    if arguments.json {
        super::print_json(&report)?;
    } else {
        print(&report, arguments.full)?;
    }
    verdict(&report)
}

fn read_labels(path: &Path) -> Result<Vec<String>, Error> {
    let text = crate::input_file::read_text(path).map_err(Error::read(path))?;
    Ok(text.lines().map(|line| line.trim().to_owned()).collect())
}

fn report_call(model: &TfliteModel, results: &[Value], labels: Option<&[String]>) -> CallReport {
    let tensors = model.outputs.iter().zip(results);
    CallReport {
        tensors: tensors
            .map(|(tensor, value)| TensorReport::new(tensor, value, labels))
            .collect(),
    }
}

/// Tells of labels that cannot be the names of the model's classes.
fn check_labels(labels: &[String], report: &CallReport) -> Result<(), Error> {
    let mut named = report
        .tensors
        .iter()
        .filter(|tensor| !tensor.classes.is_empty())
        .peekable();
    if named.peek().is_none() {
        return Err(Error::Result(
            "no output of the model is a row of real numbers, whose classes --labels could name".into(),
        ));
    }
    for tensor in named.filter(|tensor| tensor.values.len() != labels.len()) {
        tracing::warn!(
            "there are {} labels, and output {:?} has {} values: names may be those of other classes",
            labels.len(),
            tensor.name,
            tensor.values.len()
        );
    }
    Ok(())
}

fn print(report: &Report, is_full: bool) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    for (call, outputs) in report.outputs.iter().enumerate() {
        if report.outputs.len() > 1 {
            writeln!(out, "call {call}")?;
        }
        for tensor in &outputs.tensors {
            writeln!(out, "  {}", tensor.line(is_full))?;
        }
    }
    for expectation in &report.expectations {
        writeln!(out, "{}", comparison::line(expectation))?;
    }
    let latency = &report.latency_us;
    writeln!(
        out,
        "latency by {}: p50 {}, p99 {} ({} calls)",
        report.path,
        present::microseconds(latency.p50),
        present::microseconds(latency.p99),
        latency.count
    )?;
    writeln!(out, "{} on {}", report.processes, report.device)?;
    Ok(())
}

fn verdict(report: &Report) -> Result<(), Error> {
    let wrong = report
        .expectations
        .iter()
        .filter(|output| output.deviation.wrong > 0)
        .count();
    if wrong == 0 {
        return Ok(());
    }
    Err(Error::Result(format!(
        "{wrong} of {} outputs are further off than the accuracy rules allow",
        report.expectations.len()
    )))
}
