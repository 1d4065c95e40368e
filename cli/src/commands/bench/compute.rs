//! `nnhal bench compute`: how long models take, from the call to the answer.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::arguments::ComputeArguments;
use crate::driver;
use crate::error::Error;
use crate::feed::{self, Value};
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
    /// Most threads that compute.
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
    let mut rows = Vec::new();
    for model in &arguments.models {
        rows.extend(measure(model, arguments)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = Report { conditions, rows };
    if arguments.json {
        return super::super::print_json(&report);
    }
    print(&report)
}

/// A model with some number of threads, and what its rounds took.
struct Contestant<'a> {
    threads: u32,
    device: String,
    session: Session<'a>,
    medians: Vec<f64>,
    least: f64,
    calls: u64,
}

impl Contestant<'_> {
    /// Calls the model for a while.
    fn round(&mut self, input: &[Value], budget: Duration) -> Result<(), Error> {
        self.session.reset();
        let mut latencies = Latencies::new();
        let started = Instant::now();
        let mut done = 0;
        while done < LEAST_CALLS || started.elapsed() < budget {
            let (_, latency) = self.session.call(input)?;
            latencies.record(latency);
            done += 1;
        }
        let summary = latencies.summary();
        self.medians.push(summary.p50);
        self.least = self.least.min(summary.min);
        self.calls += summary.count;
        Ok(())
    }

    fn into_row(mut self, model: &Path) -> Row {
        self.medians.sort_by(f64::total_cmp);
        Row {
            model: model.to_owned(),
            device: self.device,
            threads: self.threads,
            nnhal_ms: self.medians[self.medians.len() / 2] / 1000.0,
            nnhal_min_ms: self.least / 1000.0,
            calls: self.calls,
        }
    }
}

/// Measures a model with each number of threads, in rounds that take turns.
fn measure(path: &Path, arguments: &ComputeArguments) -> Result<Vec<Row>, Error> {
    let model = super::super::load_relaxed(path, arguments.relaxed)?;
    let files = super::super::read_arrays(&feed::files_beside(path, model.inputs.len()))?;
    let inputs = feed::inputs(&model, &files)?;
    let mut contestants = Vec::new();
    for &threads in &arguments.threads {
        let device = arguments.device.as_deref();
        let opened = driver::open(&model.model, arguments.path, device, Some(threads))?;
        let mut session = Session::new(&model, opened.subject);
        for _ in 0..WARM_UP {
            session.call(&inputs[0])?;
        }
        contestants.push(Contestant {
            threads,
            device: opened.device,
            session,
            medians: Vec::new(),
            least: f64::INFINITY,
            calls: 0,
        });
    }
    let budget = Duration::from_millis(u64::from(arguments.round_ms));
    for _ in 0..arguments.rounds {
        for contestant in &mut contestants {
            contestant.round(&inputs[0], budget)?;
        }
    }
    let rows = contestants.into_iter();
    Ok(rows.map(|contestant| contestant.into_row(path)).collect())
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
    writeln!(
        out,
        "{:>10}  {:>10}  {:>7}  model",
        "p50 ms", "least ms", "threads"
    )?;
    for row in &report.rows {
        writeln!(
            out,
            "{:>10.3}  {:>10.3}  {:>7}  {} on {}",
            row.nnhal_ms,
            row.nnhal_min_ms,
            row.threads,
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
