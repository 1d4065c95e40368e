//! How long an execution takes whose driver's process has died, with recovery: the device is opened again,
//! the model is prepared again, and the execution is done once more.
//!
//! - `undisturbed`: the same execution when nothing has died;
//! - `runtime_sync`, `runtime_burst`: by the Rust API's runtime, with a model of one addition;
//! - `capi_sync`, `capi_burst`: by the shared library, whose policy is set by the environment;
//! - for each model in a `.tflite` file: by the runtime, prepared anew and from a compilation cache.
//!
//! Before each sample every worker is killed but the one that waits for a client, and its end is waited for;
//! then the driver has time to start another. Rows take turns.
//!
//! `cargo bench --bench recovery -- [--rounds N] [--json FILE] [MODEL.tflite]...`
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use nix::sys::signal::Signal;
use nnhal_bench::conditions::Conditions;
use nnhal_bench::models::{self, ADDEND};
use nnhal_bench::other_side::default_deadline;
use nnhal_bench::program;
use nnhal_bench::report::duration;
use nnhal_bench::{Error, Result, library};
use nnhal_capi_caller::{Arguments, Burst, ReusableExecution};
use nnhal_client::runtime::{
    Compilation, CompilationOptions, Recovery, RunBurst, RunInput, RunOutput, Runtime,
};
use nnhal_client::{ExecuteOptions, Model, TfliteModel};
use nnhal_os::pidfd;
use serde::Serialize;

/// Deaths in each row.
const ROUNDS: u32 = 50;
/// How long the driver has to start another worker.
const REST: Duration = Duration::from_millis(100);
/// Once is enough where one process dies.
const ONCE: Recovery = Recovery::Reopen { attempts: 1 };
/// The same for programs that are told nothing else.
const RECOVERY: (&str, &str) = ("NNHAL_RECOVERY", "1");
const VALUE: f32 = 1.0;

#[derive(Clone, Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: program::Options,
    /// `.tflite` files to execute beside the addition.
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
}

/// What dies and comes back.
struct Row {
    name: String,
    execute: Box<dyn FnMut() -> Result<()>>,
    /// Whether workers are killed before.
    is_disturbed: bool,
    histogram: Histogram<u64>,
}

/// What was measured of a row, in nanoseconds.
#[derive(Debug, Serialize)]
struct Figures {
    name: String,
    p50_ns: u64,
    p90_ns: u64,
    max_ns: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Figures>,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let Some(devices) = library::devices(&[RECOVERY])? else {
        return Ok(());
    };
    let (name, supervisor) = {
        let device = devices.fastest()?;
        (device.name().to_owned(), device.supervisor().pid)
    };
    let runtime = Runtime::open().map_err(Error::row("runtime"))?;
    let caches = tempfile::tempdir().map_err(Error::io("make a directory for the cache"))?;
    let mut rows = additions(&runtime, &name)?;
    for path in &options.models {
        rows.extend(of_file(&runtime, &name, path, caches.path())?);
    }
    let rounds = options.common.rounds.unwrap_or(ROUNDS);
    for _ in 0..rounds {
        for row in &mut rows {
            row.sample(supervisor)?;
        }
    }
    let report = Report {
        conditions: program::unpinned_conditions(rounds, &name),
        rows: rows.iter().map(Row::figures).collect(),
    };
    program::print(&report)?;
    program::write_json(&report, options.common.json.as_deref())
}

impl Row {
    fn new(name: impl Into<String>, execute: impl FnMut() -> Result<()> + 'static) -> Result<Row> {
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(Error::row("histogram"))?;
        Ok(Row {
            name: name.into(),
            execute: Box::new(execute),
            is_disturbed: true,
            histogram,
        })
    }

    fn sample(&mut self, supervisor: u32) -> Result<()> {
        if self.is_disturbed {
            std::thread::park_timeout(REST);
            kill_serving(supervisor)?;
        }
        let start = Instant::now();
        (self.execute)()?;
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.histogram.saturating_record(nanos.max(1));
        Ok(())
    }

    fn figures(&self) -> Figures {
        Figures {
            name: self.name.clone(),
            p50_ns: self.histogram.value_at_quantile(0.5),
            p90_ns: self.histogram.value_at_quantile(0.9),
            max_ns: self.histogram.max(),
        }
    }
}

/// Kills the workers that serve clients, and waits for their end.
fn kill_serving(supervisor: u32) -> Result<()> {
    let workers = library::workers(supervisor);
    let Some((_waiting, serving)) = workers.split_last() else {
        return Err(Error::wrong_answer("the driver has no worker"));
    };
    for worker in serving {
        // One that has ended meanwhile needs no killing.
        let Ok(process) = pidfd::open(worker.cast_signed()) else {
            continue;
        };
        pidfd::send_signal(&process, Signal::SIGKILL)?;
        if !pidfd::wait_for_end(&process, default_deadline())? {
            return Err(Error::wrong_answer("a worker that was killed goes on"));
        }
    }
    Ok(())
}

/// The rows of a model that adds.
fn additions(runtime: &Runtime, device: &str) -> Result<Vec<Row>> {
    let model = models::add(1)?;
    let compilation = compile(runtime, &model, device, None)?;
    let mut undisturbed = {
        let compilation = compilation.clone();
        Row::new("undisturbed", move || add(&compilation))?
    };
    undisturbed.is_disturbed = false;
    let mut burst = compilation.burst().map_err(Error::row("burst"))?;
    let sync = Row::new("runtime_sync", move || add(&compilation))?;
    let by_burst = Row::new("runtime_burst", move || add_by(&mut burst))?;

    let compilation = library::compile(library::open()?, &model, device)?;
    let execution =
        || ReusableExecution::new(&compilation, Arguments::Own, &VALUE.to_ne_bytes(), 4).map_err(called);
    let (mut one, mut other) = (execution()?, execution()?);
    let mut burst = Burst::new(&compilation).map_err(called)?;
    let capi_sync = Row::new("capi_sync", move || {
        one.compute().map_err(called)?;
        expect_sum(&one)
    })?;
    let capi_burst = Row::new("capi_burst", move || {
        other.compute_by(&mut burst).map_err(called)?;
        expect_sum(&other)
    })?;
    Ok(vec![undisturbed, sync, by_burst, capi_sync, capi_burst])
}

/// The rows of a model in a file, whose inputs are zeros.
fn of_file(runtime: &Runtime, device: &str, path: &Path, caches: &Path) -> Result<Vec<Row>> {
    let model = TfliteModel::load(path)?.model;
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    [("prepared anew", None), ("from the cache", Some(caches))]
        .into_iter()
        .map(|(how, cache)| {
            let compilation = compile(runtime, &model, device, cache)?;
            Row::new(format!("{file}, {how}"), move || run(&compilation))
        })
        .collect()
}

fn compile(runtime: &Runtime, model: &Model, device: &str, cache: Option<&Path>) -> Result<Compilation> {
    let device = runtime
        .device(device)
        .ok_or_else(|| Error::wrong_answer("the runtime has not the device"))?;
    let mut options = CompilationOptions::new()
        .devices(std::slice::from_ref(device))
        .recovery(ONCE);
    if let Some(directory) = cache {
        options = options.caching(directory, [0; 32]);
    }
    runtime.compile(model, &options).map_err(Error::row("compile"))
}

fn add(compilation: &Compilation) -> Result<()> {
    let (input, mut output) = (VALUE.to_ne_bytes(), [0; 4]);
    let outputs = &mut [RunOutput::bytes(&mut output)];
    compilation
        .execute(&[RunInput::bytes(&input)], outputs, &ExecuteOptions::new())
        .map_err(Error::row("runtime_sync"))?;
    expect(output)
}

fn add_by(burst: &mut RunBurst) -> Result<()> {
    let (input, mut output) = (VALUE.to_ne_bytes(), [0; 4]);
    let outputs = &mut [RunOutput::bytes(&mut output)];
    burst
        .execute(&[RunInput::bytes(&input)], outputs, &ExecuteOptions::new())
        .map_err(Error::row("runtime_burst"))?;
    expect(output)
}

/// Executes a model with zeros.
fn run(compilation: &Compilation) -> Result<()> {
    let zeros = |types: &[nnhal_client::TensorType]| -> Vec<Vec<u8>> {
        let sizes = types.iter().map(|ty| {
            let shape = nnhal_hal::Shape::new(ty.dimensions()).ok();
            let layouts = compilation.layouts();
            shape.and_then(|shape| layouts.byte_size(ty.operand_type(), &shape))
        });
        sizes.map(|size| vec![0; size.unwrap_or(0)]).collect()
    };
    let inputs = zeros(compilation.inputs());
    let mut outputs = zeros(compilation.outputs());
    let inputs: Vec<RunInput<'_>> = inputs.iter().map(|bytes| RunInput::bytes(bytes)).collect();
    let mut outputs: Vec<RunOutput<'_>> = outputs.iter_mut().map(|bytes| RunOutput::bytes(bytes)).collect();
    compilation
        .execute(&inputs, &mut outputs, &ExecuteOptions::new())
        .map_err(Error::row("a model"))?;
    Ok(())
}

fn expect_sum(execution: &ReusableExecution) -> Result<()> {
    let mut sum = [0; 4];
    execution.output(&mut sum).map_err(called)?;
    expect(sum)
}

fn expect(sum: [u8; 4]) -> Result<()> {
    if f32::from_ne_bytes(sum) == VALUE + ADDEND {
        Ok(())
    } else {
        Err(Error::wrong_answer("recovery"))
    }
}

fn called(error: nnhal_capi_caller::CallError) -> Error {
    Error::row("the C API")(error)
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            f,
            "executions whose driver's process has died, until the right result: {} deaths each; {}, kernel {}, load before \
             {}, device {}",
            conditions.rounds, conditions.cpu, conditions.kernel, conditions.load_before, conditions.device
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:<44} {:>10} p50 {:>10} p90 {:>10} max",
                row.name,
                duration(row.p50_ns as f64),
                duration(row.p90_ns as f64),
                duration(row.max_ns as f64)
            )?;
        }
        Ok(())
    }
}
