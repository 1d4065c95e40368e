//! What everything around executing costs: connecting, preparing, first executions, memories, fences, and
//! processes at rest.
//!
//! - `private_driver_to_first_result`: no driver runs; one is started, connected to, a model prepared and
//!   executed;
//! - `connect_to_first_result`: the same with a driver that runs and has a worker waiting;
//! - `connect`, `prepare`, `first_execution`: its parts;
//! - `connect_at_once`: connecting again and again, faster than the driver starts workers;
//! - `new_memory_64_kib`, `known_memory_64_kib`: an execution on a memory that the driver has not seen, and
//!   on one it knows;
//! - `make_memory_64_kib`: a memory of zeros, which no driver knows yet;
//! - `register_memory_64_kib`: having the driver know it, by registering a request on it with a burst;
//! - `register_request`: the same on a memory that it knows, which is what the row above has besides: one
//!   cell each way;
//! - `burst`: rings, and their thread in the worker;
//! - `fence`: a fence created, signalled and waited for;
//! - for each model in a `.tflite` file: preparing it, preparing it and saving the result, preparing it from
//!   what was saved, and preparing it through a cache directory that has it, which includes naming it by its
//!   constants; and the private memory of a second client's worker that has the same model, beside that of
//!   one that shares no weights;
//! - the private memory of supervisor and worker at rest, and the sizes of the binaries beside this one.
//!
//! `cargo bench --bench costs -- [--json FILE] [MODEL.tflite]...`
#![forbid(unsafe_code)]

mod cached;
mod cost;
mod shared;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use nnhal_bench::conditions::Conditions;
use nnhal_bench::machine::private_kib;
use nnhal_bench::program;
use nnhal_bench::report::duration;
use nnhal_bench::{Error, Result, models};
use nnhal_client::{BurstOptions, Deadline, Device, ExecuteOptions, Fence, Memory, PreparedModel, Request};
use serde::Serialize;

use cost::{Cost, cost};

/// How often what starts processes is done.
const STARTS: u32 = 15;
/// How often the rest is done.
const REPEATS: u32 = 200;
const MEMORY_BYTES: u64 = 64 * 1024;
/// How long the driver has between two connections to start another worker.
const REST: Duration = Duration::from_millis(100);

/// What to measure beside the costs of a small model.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    common: program::Options,
    /// `.tflite` files to prepare, with and without a compilation cache.
    #[arg(value_name = "MODEL")]
    models: Vec<PathBuf>,
}

/// A process at rest, or a file.
#[derive(Debug, Serialize)]
struct Size {
    name: String,
    kib: u64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    costs: Vec<Cost>,
    sizes: Vec<Size>,
    shares: Vec<shared::Shares>,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Arguments) -> Result<()> {
    let mut costs = vec![time("private_driver_to_first_result", STARTS, REST, || {
        let devices = program::own_driver()?;
        let result = first_result(devices.fastest()?)?;
        Ok((devices, result))
    })?];
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let connect = || Ok(devices.device(device.name())?);
    costs.push(time("connect_to_first_result", STARTS, REST, || {
        first_result(connect()?)
    })?);
    costs.push(time("connect", STARTS, REST, connect)?);
    costs.push(time("connect_at_once", STARTS, Duration::ZERO, connect)?);
    costs.push(time("prepare", REPEATS, Duration::ZERO, || {
        models::prepare_add(&device)
    })?);
    costs.push(first_executions(&device)?);
    let prepared = models::prepare_add(&device)?;
    costs.extend(memories(&prepared)?);
    costs.extend(registrations(&prepared)?);
    costs.push(time("burst", REPEATS, Duration::ZERO, || {
        Ok(prepared.burst(&BurstOptions::new())?)
    })?);
    costs.push(time("fence", REPEATS, Duration::ZERO, fence)?);
    for model in &options.models {
        costs.extend(cached::costs(&device, model)?);
    }
    let shares = options.models.iter().map(|model| shared::shares(model));
    let shares = shares.collect::<Result<Vec<_>>>()?;
    let conditions = program::unpinned_conditions(REPEATS, device.name());
    let report = Report {
        conditions,
        costs,
        sizes: sizes(&devices.device(device.name())?),
        shares,
    };
    print(&report)?;
    program::write_json(&report, options.common.json.as_deref())
}

/// The device and the model that were used, to be let go when the time has been taken.
fn first_result(device: Device) -> Result<(Device, PreparedModel)> {
    let prepared = models::prepare_add(&device)?;
    models::run_add(&prepared, "costs")?;
    Ok((device, prepared))
}

/// The first execution of a prepared model; preparing it is not counted.
fn first_executions(device: &Device) -> Result<Cost> {
    let mut nanos = Vec::new();
    for _ in 0..REPEATS {
        let prepared = models::prepare_add(device)?;
        let start = Instant::now();
        models::run_add(&prepared, "costs")?;
        nanos.push(start.elapsed().as_nanos() as f64);
    }
    Ok(cost("first_execution", &nanos))
}

/// An execution on a new memory, and the next one on the same.
fn memories(prepared: &PreparedModel) -> Result<[Cost; 2]> {
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let memory = Memory::new(MEMORY_BYTES)?;
        let request = Request::new().input(&memory, 0..4).output(&memory, 64..68);
        for nanos in [&mut new, &mut known] {
            let start = Instant::now();
            prepared.execute(&request, &ExecuteOptions::new())?;
            nanos.push(start.elapsed().as_nanos() as f64);
        }
    }
    Ok([
        cost("new_memory_64_kib", &new),
        cost("known_memory_64_kib", &known),
    ])
}

/// Making a memory, having the driver know it, and registering a request on it when it does.
fn registrations(prepared: &PreparedModel) -> Result<[Cost; 3]> {
    let mut burst = prepared.burst(&BurstOptions::new())?;
    let [mut made, mut new, mut known] = [const { Vec::new() }; 3];
    for _ in 0..REPEATS {
        let start = Instant::now();
        let memory = Memory::new(MEMORY_BYTES)?;
        made.push(start.elapsed().as_nanos() as f64);
        let request = Request::new().input(&memory, 0..4).output(&memory, 64..68);
        for nanos in [&mut new, &mut known] {
            let start = Instant::now();
            let registered = burst.register(&request)?;
            nanos.push(start.elapsed().as_nanos() as f64);
            burst.unregister(registered)?;
        }
    }
    Ok([
        cost("make_memory_64_kib", &made),
        cost("register_memory_64_kib", &new),
        cost("register_request", &known),
    ])
}

fn fence() -> Result<()> {
    let (source, fence) = Fence::create().map_err(Error::row("fence"))?;
    source.signal().map_err(Error::row("fence"))?;
    fence.wait(Deadline::NONE).map_err(Error::row("fence"))?;
    Ok(())
}

/// Times `each` without letting go of what it made, with a rest before each time.
fn time<T>(
    name: &'static str,
    repeats: u32,
    rest: Duration,
    mut each: impl FnMut() -> Result<T>,
) -> Result<Cost> {
    let mut nanos = Vec::new();
    for _ in 0..repeats {
        if !rest.is_zero() {
            std::thread::park_timeout(rest);
        }
        let start = Instant::now();
        let made = each().map_err(Error::row(name))?;
        nanos.push(start.elapsed().as_nanos() as f64);
        drop(made);
    }
    Ok(cost(name, &nanos))
}

/// The private memory of the driver's processes for a client that has done nothing yet, and the binaries that
/// were built beside this one.
fn sizes(device: &Device) -> Vec<Size> {
    let processes = [
        ("supervisor", device.supervisor().pid),
        ("worker", device.worker().pid),
    ];
    let memory = processes.into_iter().filter_map(|(name, pid)| {
        Some(Size {
            name: format!("{name}, private memory at rest"),
            kib: private_kib(pid)?,
        })
    });
    let executable = std::env::current_exe().unwrap_or_default();
    let target = executable
        .parent()
        .and_then(Path::parent)
        .unwrap_or(Path::new("."));
    let files = ["nnhal", "nnhald"].into_iter().filter_map(|name| {
        let metadata = std::fs::metadata(target.join(name)).ok()?;
        Some(Size {
            name: format!("{name}, file with line tables"),
            kib: metadata.len() / 1024,
        })
    });
    memory.chain(files).collect()
}

fn print(report: &Report) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let conditions = &report.conditions;
    let mut lines = vec![format!(
        "{}, kernel {}, load before {}, device {}",
        conditions.cpu, conditions.kernel, conditions.load_before, conditions.device
    )];
    let costs = report.costs.iter().map(|cost| {
        format!(
            "{:<60} {:>10} p50 {:>10} min {:>10} max",
            cost.name,
            duration(cost.p50_ns),
            duration(cost.min_ns),
            duration(cost.max_ns)
        )
    });
    lines.extend(costs);
    lines.extend(
        report
            .sizes
            .iter()
            .map(|size| format!("{:<60} {:>7} KiB", size.name, size.kib)),
    );
    lines.extend(report.shares.iter().map(shared::Shares::line));
    writeln!(out, "{}", lines.join("\n")).map_err(Error::io("print the table"))
}
