//! `nnhal run --profile`: what each operation of a model takes.

mod table;
mod times;

use std::io::Write as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use nnhal_client::TfliteModel;
use nnhal_cpu::{Peak, Program};
use serde::Serialize;

use self::table::{Row, Table};
use self::times::{Medians, Observed, Source};
use crate::arguments::{Path, RunArguments};
use crate::driver::{self, Processes};
use crate::error::Error;
use crate::feed::Value;
use crate::in_process::{InProcess, Kernels};
use crate::latency::Latencies;
use crate::present;
use crate::session::Session;

/// Calls before the first that counts.
const WARM_UP: u32 = 3;

/// Fewest calls that are looked at.
const LEAST_CALLS: u32 = 20;

#[derive(Debug, Serialize)]
struct Report {
    model: PathBuf,
    device: String,
    path: &'static str,
    processes: Processes,
    /// None if they are a driver's that has not said.
    threads: Option<u32>,
    /// Those that times are medians of.
    calls: usize,
    /// What one thread reaches where nothing but products are summed: 32-bit floats, by vectors and by tiles
    /// (0 where there are none), and 8-bit values likewise.
    peak_gflops: f64,
    peak_tiles_gflops: f64,
    peak_gops: f64,
    peak_tiles_gops: f64,
    /// All operations, one after the other.
    total_us: f64,
    /// Median of whole calls by the path.
    call_us: f64,
    operations: Vec<Row>,
}

/// A model that is ready to be profiled.
struct Subject<'a> {
    device: String,
    processes: Processes,
    session: Session<'a>,
    source: Source,
    /// What the device runs, if it is one of those that this process can make programs for.
    program: Option<Arc<Program>>,
}

impl<'a> Subject<'a> {
    /// In this process, with so many threads.
    fn here(model: &'a TfliteModel, name: Option<&str>, threads: usize) -> Result<Subject<'a>, Error> {
        let kernels = Kernels::of_device(Some(name.unwrap_or(Kernels::FAST)))?;
        let observed = Rc::new(Observed::default());
        let subject = InProcess::with_threads(&model.model, kernels.set, threads)?
            .observed_by(Rc::clone(&observed) as Rc<_>);
        Ok(Subject {
            device: kernels.device.to_owned(),
            processes: Processes::here(),
            program: Some(Arc::clone(subject.program())),
            session: Session::new(model, Box::new(subject)),
            source: Source::Here(observed),
        })
    }

    /// In the worker of a driver, which tells of its operations by the spans that it records.
    fn by_driver(model: &'a TfliteModel, path: Path, arguments: &RunArguments) -> Result<Subject<'a>, Error> {
        let device = driver::open_device(arguments.device.as_deref(), arguments.threads)?;
        let spans = device.record_spans()?;
        let subject = driver::subject(&device, &model.model, path)?;
        // The same program as the device makes of it.
        let program = match Kernels::of_device(Some(device.name())) {
            Ok(kernels) => Some(Arc::clone(InProcess::new(&model.model, kernels.set)?.program())),
            Err(_) => None,
        };
        Ok(Subject {
            device: device.name().to_owned(),
            processes: driver::processes(&device),
            program,
            session: Session::new(model, subject),
            source: Source::Worker(spans),
        })
    }
}

/// Runs the model and tells what each operation took.
pub(super) fn run(arguments: &RunArguments, model: &TfliteModel, inputs: &[Vec<Value>]) -> Result<(), Error> {
    let path = arguments.path.unwrap_or(Path::InProcess);
    let (mut subject, known_threads) = match path {
        Path::InProcess => {
            let threads = arguments.threads.unwrap_or(1);
            let name = arguments.device.as_deref();
            (Subject::here(model, name, threads as usize)?, Some(threads))
        }
        path => (Subject::by_driver(model, path, arguments)?, arguments.threads),
    };
    let mut latencies = Latencies::new();
    let mut seen = Vec::new();
    let calls = arguments.iterations.max(LEAST_CALLS);
    for call in 0..WARM_UP + calls {
        subject.session.reset();
        for values in inputs {
            let (_, latency) = subject.session.call(values)?;
            let last = subject.source.last_call();
            if call >= WARM_UP {
                latencies.record(latency);
                seen.extend(last);
            }
        }
    }
    if seen.is_empty() {
        return Err(Error::Result(
            "a call runs more operations than a worker keeps times of; --path in-process keeps all".into(),
        ));
    }
    if seen.iter().all(Vec::is_empty) {
        return Err(Error::Result(format!(
            "{} does not tell what its operations take",
            subject.device
        )));
    }
    let main = &model.model.hal().main;
    let program = subject.program.as_deref();
    // A driver that has not said computes with as many as there are processors, unless its settings say
    // otherwise.
    let threads = known_threads.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        |threads| threads as usize,
    );
    let medians = Medians::of(&seen, main.operations.len(), program, threads);
    let table = Table {
        main,
        program,
        total_us: medians.times.iter().sum(),
        medians,
        peak: Peak::measure(),
        knows_threads: known_threads.is_some(),
    };
    let Table { medians, peak, .. } = &table;
    let report = Report {
        model: arguments.model.clone(),
        device: subject.device,
        path: path.name(),
        processes: subject.processes,
        threads: known_threads,
        calls: medians.calls,
        peak_gflops: peak.float,
        peak_tiles_gflops: peak.tiles,
        peak_gops: peak.byte,
        peak_tiles_gops: peak.byte_tiles,
        total_us: table.total_us,
        call_us: latencies.summary().p50,
        operations: (0..medians.times.len()).map(|index| table.row(index)).collect(),
    };
    if arguments.json {
        super::super::print_json(&report)
    } else {
        print(&report)
    }
}

fn print(report: &Report) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    let by_tiles = |peak: f64| match peak {
        0.0 => String::new(),
        peak => format!(" ({peak:.1} by tiles)"),
    };
    let (tiles, byte_tiles) = (
        by_tiles(report.peak_tiles_gflops),
        by_tiles(report.peak_tiles_gops),
    );
    let threads = match report.threads {
        Some(threads) => format!("{threads} threads"),
        None => "threads as its driver has them".to_owned(),
    };
    writeln!(
        out,
        "{} by {}, {threads}, medians of {} calls; one thread reaches {:.1} GFLOP/s{tiles}, and {:.1} GOP/s{byte_tiles} of 8-bit values",
        report.device, report.path, report.calls, report.peak_gflops, report.peak_gops
    )?;
    writeln!(
        out,
        "{:>5}  {:>10}  {:>8}  {:>6}  {:>8}  {:>6}  {:>9}  {:<34}  operation",
        "", "us", "expected", "share", "G/s", "peak", "KiB", "kernel"
    )?;
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    for row in &report.operations {
        writeln!(
            out,
            "{:>5}  {:>10.1}  {:>8}  {:>6}  {:>8}  {:>6}  {:>9}  {:<34}  {}",
            row.index,
            row.time_us,
            row.expected_us
                .map_or_else(|| "-".to_owned(), |time| format!("{time:.1}")),
            percent(row.share),
            row.giga_per_second
                .map_or_else(|| "-".to_owned(), |speed| format!("{speed:.1}")),
            row.share_of_peak.map_or_else(|| "-".to_owned(), percent),
            row.bytes
                .map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1024.0)),
            row.kernel.unwrap_or("-"),
            row.operation
        )?;
    }
    writeln!(out, "{:>5}  {:>10.1}", "all", report.total_us)?;
    let call = present::microseconds(report.call_us);
    writeln!(
        out,
        "a call by {} takes {call}; {}",
        report.path, report.processes
    )?;
    Ok(())
}
