//! What the jail of workers costs: a driver with it beside one without, in interleaved rounds.
//!
//! - `burst`: a registered request by a burst;
//! - `connect_to_first_result`: connecting to a driver that has a worker waiting, preparing and executing;
//! - `private_memory`: of a worker that has just done that, as root only: others may not look at it.
//!
//! `cargo bench --bench jail -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::fmt;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nnhal_bench::conditions::Conditions;
use nnhal_bench::machine::private_kib;
use nnhal_bench::report::duration;
use nnhal_bench::samples::{Samples, median, quantile};
use nnhal_bench::{Error, Result, models, program};
use nnhal_client::{
    Burst, BurstOptions, Device, Devices, ExecuteOptions, Memory, RegisteredRequest, Request,
};
use serde::Serialize;

const ROUNDS: u32 = 25;
/// Executions in each round, as many as take some tens of milliseconds.
const TRIPS: u32 = 20_000;
/// How long the driver has between two connections to start another worker.
const REST: Duration = Duration::from_millis(100);

/// The settings of the two drivers.
const JAILED: &str = "";
const FREE: &str = "[jail]\nsystem_calls = false\nfiles = false\nnamespaces = false\n";

/// What was measured of one driver: a value for each round.
#[derive(Debug, Default, Serialize)]
struct Taken {
    burst_p50_ns: Vec<f64>,
    connect_to_first_result_ns: Vec<f64>,
    private_memory_kib: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    jailed: Taken,
    free: Taken,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: program::Options) -> Result<()> {
    let mut jailed = (Side::new(JAILED)?, Taken::default());
    let mut free = (Side::new(FREE)?, Taken::default());
    let mut samples = Samples::new();
    let rounds = options.rounds.unwrap_or(ROUNDS);
    for _ in 0..rounds {
        for (side, taken) in [&mut jailed, &mut free] {
            side.take(taken, &mut samples)?;
        }
    }
    let report = Report {
        conditions: program::unpinned_conditions(rounds, jailed.0.device.name()),
        jailed: jailed.1,
        free: free.1,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

/// A client of one of the drivers.
struct Side {
    devices: Devices,
    device: Device,
    burst: Burst,
    registered: RegisteredRequest,
    _memory: Memory,
}

impl Side {
    fn new(settings: &str) -> Result<Side> {
        let mut file = tempfile::NamedTempFile::new().map_err(Error::io("make a settings file"))?;
        file.write_all(settings.as_bytes())
            .map_err(Error::io("write the settings"))?;
        let devices = program::own_driver_with(Some(file.path()))?;
        // The driver has read the file once the first connection is there.
        let device = devices.fastest()?;
        let mut burst = models::prepare_add(&device)?.burst(&BurstOptions::new())?;
        let memory = Memory::new(128)?;
        let request = Request::new().input(&memory, 0..4).output(&memory, 64..68);
        let registered = burst.register(&request)?;
        Ok(Side {
            devices,
            device,
            burst,
            registered,
            _memory: memory,
        })
    }

    fn take(&mut self, taken: &mut Taken, samples: &mut Samples) -> Result<()> {
        samples.start(TRIPS);
        for _ in 0..TRIPS {
            self.burst.fire(&self.registered, &ExecuteOptions::new())?;
            samples.lap();
        }
        taken.burst_p50_ns.push(quantile(samples.taken(), 0.5) as f64);
        std::thread::park_timeout(REST);
        let start = Instant::now();
        let device = self.devices.device(self.device.name())?;
        let prepared = models::prepare_add(&device)?;
        models::run_add(&prepared, "jail")?;
        let elapsed = start.elapsed().as_nanos() as f64;
        taken.connect_to_first_result_ns.push(elapsed);
        let kib = private_kib(device.worker().pid);
        taken.private_memory_kib.extend(kib.map(|kib| kib as f64));
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (jailed, free) = (&self.jailed, &self.free);
        let ratios: Vec<f64> = jailed
            .burst_p50_ns
            .iter()
            .zip(&free.burst_p50_ns)
            .map(|(a, b)| a / b)
            .collect();
        writeln!(
            f,
            "burst: p50 {}, {} without a jail, {:.3} x",
            duration(median(&jailed.burst_p50_ns)),
            duration(median(&free.burst_p50_ns)),
            median(&ratios)
        )?;
        let [with, without] = [jailed, free].map(|taken| median(&taken.connect_to_first_result_ns));
        writeln!(
            f,
            "connect_to_first_result: {}, {} without a jail, {:+.2} ms",
            duration(with),
            duration(without),
            (with - without) / 1e6
        )?;
        let [with, without] = [jailed, free].map(|taken| median(&taken.private_memory_kib));
        writeln!(
            f,
            "private_memory: {with:.0} KiB, {without:.0} KiB without a jail, {:+.2} MiB",
            (with - without) / 1024.0
        )
    }
}
