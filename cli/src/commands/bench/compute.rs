//! `nnhal bench compute`: how long models take, from the call to the answer.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::arguments::ComputeArguments;
use crate::driver;
use crate::error::Error;
use crate::feed;
use crate::latency::Latencies;
use crate::progress;
use crate::session::Session;

/// Calls before the first that counts.
const WARM_UP: usize = 3;

/// Fewest calls of a round.
const LEAST_CALLS: usize = 5;

#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Row>,
}

/// What must be known to compare figures.
#[derive(Debug, Serialize)]
struct Conditions {
    version: &'static str,
    cpu: String,
    processors: usize,
    load_before: String,
    optimised: bool,
    path: &'static str,
    rounds: u32,
}

/// One model.
#[derive(Debug, Serialize)]
struct Row {
    model: PathBuf,
    device: String,
    /// Threads that compute.
    threads: u32,
    /// Median over the rounds of their medians, in milliseconds.
    nnhal_ms: f64,
    /// The fastest call of all, in milliseconds.
    nnhal_min_ms: f64,
    calls: u64,
}

/// Measures every model and reports.
pub(crate) fn run(arguments: &ComputeArguments) -> Result<(), Error> {
    let conditions = Conditions {
        version: env!("CARGO_PKG_VERSION"),
        cpu: cpu_model(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        load_before: std::fs::read_to_string("/proc/loadavg")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        optimised: !cfg!(debug_assertions),
        path: arguments.path.name(),
        rounds: arguments.rounds,
    };
    let bar = progress::bar(arguments.models.len() as u64, "measuring");
    let mut rows = Vec::with_capacity(arguments.models.len());
    for model in &arguments.models {
        rows.push(measure(model, arguments)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report { conditions, rows };
    if arguments.json {
        return super::super::print_json(&report);
    }
    print(&report)
}

fn measure(path: &std::path::Path, arguments: &ComputeArguments) -> Result<Row, Error> {
    let model = super::super::import(path)?;
    let inputs = feed::inputs(&model, &[])?;
    let opened = driver::open(&model.model, arguments.path, arguments.device.as_deref())?;
    let mut session = Session::new(&model, opened.subject);
    for _ in 0..WARM_UP {
        session.call(&inputs[0])?;
    }
    let budget = Duration::from_millis(u64::from(arguments.round_ms));
    let mut medians = Vec::new();
    let mut least = f64::INFINITY;
    let mut calls = 0;
    for _ in 0..arguments.rounds {
        session.reset();
        let mut latencies = Latencies::new();
        let started = Instant::now();
        let mut done = 0;
        while done < LEAST_CALLS || started.elapsed() < budget {
            let (_, latency) = session.call(&inputs[0])?;
            latencies.record(latency);
            done += 1;
        }
        let summary = latencies.summary();
        medians.push(summary.p50);
        least = least.min(summary.min);
        calls += summary.count;
    }
    medians.sort_by(f64::total_cmp);
    Ok(Row {
        model: path.to_owned(),
        device: opened.device,
        threads: 1,
        nnhal_ms: medians[medians.len() / 2] / 1000.0,
        nnhal_min_ms: least / 1000.0,
        calls,
    })
}

fn print(report: &Report) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let conditions = &report.conditions;
    writeln!(
        out,
        "{}, {} processors, load {}, by {}, {} rounds{}",
        conditions.cpu,
        conditions.processors,
        conditions.load_before,
        conditions.path,
        conditions.rounds,
        if conditions.optimised {
            ""
        } else {
            ", NOT OPTIMISED"
        }
    )?;
    writeln!(out, "{:>10}  {:>10}  model", "p50 ms", "least ms")?;
    for row in &report.rows {
        writeln!(
            out,
            "{:>10.3}  {:>10.3}  {} on {}",
            row.nnhal_ms,
            row.nnhal_min_ms,
            row.model.display(),
            row.device
        )?;
    }
    Ok(())
}

/// The processor's name as the kernel gives it.
fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line
        .and_then(|line| line.split_once(':'))
        .map(|(_, name)| name.trim());
    name.unwrap_or("unknown processor").to_owned()
}
