//! What one application notices of it when the worker of another is killed.
//!
//! Two clients of one driver, each a process with a worker and a burst of its own, execute as fast as they
//! can. In each round the worker of one, the neighbour, is killed by SIGKILL; the executions of the other,
//! the survivor, are timed
//! - `before`: while both execute;
//! - `during`: from the moment before the kill on, while the neighbour finds out and the driver starts
//!   another worker;
//! - `after`: when the survivor is alone.
//!
//! Printed for each of them: p50 and p99, medians over the rounds, and the longest execution of all rounds.
//!
//! `cargo bench --bench neighbour -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nnhal_bench::bursting_client::{self, Seen, Task};
use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{Caller, Role};
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::median;
use nnhal_bench::{Error, OtherSide, Result};
use nnhal_client::Remedy;
use serde::Serialize;

const NEIGHBOUR: Role = ("neighbour", execute_until_killed);

const ROUNDS: u32 = 15;
const VALUES: u32 = 1;
/// How long the survivor is watched: before the kill, from then on, and later, in milliseconds.
const WINDOWS: [u32; 3] = [300, 100, 300];
const PHASES: [&str; 3] = ["before", "during", "after"];

/// One kill.
#[derive(Debug, Serialize)]
struct Round {
    /// From the kill to the neighbour's word that it has the error.
    noticed_ns: u64,
    /// What the survivor saw in each phase.
    survivor: [Seen; 3],
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    phases: [&'static str; 3],
    windows_ms: [u32; 3],
    rounds: Vec<Round>,
}

fn main() -> ExitCode {
    program::run(&[bursting_client::ROLE, NEIGHBOUR], measure)
}

fn measure(options: Options) -> Result<()> {
    let count = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(count, device.name());

    let task = Task::new(&device, VALUES).to_bytes()?;
    let invocation = program::other_sides();
    let survivor = invocation.start(bursting_client::ROLE.0, &task, &[])?;
    let rounds = (0..count).map(|_| round(&survivor, &invocation.start(NEIGHBOUR.0, &task, &[])?));
    let report = Report {
        conditions,
        phases: PHASES,
        windows_ms: WINDOWS,
        rounds: rounds.collect::<Result<_>>()?,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

/// Kills the neighbour's worker while the survivor executes.
fn round(survivor: &OtherSide, neighbour: &OtherSide) -> Result<Round> {
    let worker = String::from_utf8_lossy(&neighbour.receive()?)
        .parse()
        .map_err(Error::row("the neighbour's worker"))?;
    let [before, during, after] = WINDOWS;
    let watch = |millis: u32| -> Result<Seen> {
        survivor.begin(millis)?;
        Seen::from_bytes(&survivor.receive()?)
    };
    let before = watch(before)?;
    survivor.begin(during)?;
    let killed = Instant::now();
    kill(Pid::from_raw(worker), Signal::SIGKILL).map_err(Error::row("the neighbour's worker"))?;
    neighbour.receive()?;
    let noticed_ns = killed.elapsed().as_nanos() as u64;
    let during = Seen::from_bytes(&survivor.receive()?)?;
    Ok(Round {
        noticed_ns,
        survivor: [before, during, watch(after)?],
    })
}

/// A neighbour: tells who its worker is, executes until that is dead, and says so.
fn execute_until_killed() -> Result<()> {
    let (caller, setup) = Caller::setup()?;
    let mut subject = Task::from_bytes(&setup.bytes)?.open()?;
    caller.say_ready()?;
    caller.send(subject.worker().to_string().as_bytes())?;
    loop {
        match subject.execute() {
            Ok(()) => {}
            Err(error) if error.remedy() == Remedy::Reconnect => return caller.send(b"dead"),
            Err(error) => return Err(error.into()),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = &self.conditions;
        let noticed: Vec<f64> = self.rounds.iter().map(|round| round.noticed_ns as f64).collect();
        writeln!(
            f,
            "{} processors, {}, kernel {}, load before {}, device {}; {} kills, noticed after {} (median)\n{:<8} {:>10} {:>10} {:>10} {:>12}",
            conditions.cpus_online,
            conditions.cpu,
            conditions.kernel,
            conditions.load_before,
            conditions.device,
            self.rounds.len(),
            duration(median(&noticed)),
            "survivor",
            "p50",
            "p99",
            "longest",
            "executions"
        )?;
        for (index, phase) in PHASES.into_iter().enumerate() {
            let seen = || self.rounds.iter().filter_map(|round| round.survivor.get(index));
            let of = |what: fn(&Seen) -> u64| seen().map(|seen| what(seen) as f64).collect::<Vec<_>>();
            writeln!(
                f,
                "{phase:<8} {:>10} {:>10} {:>10} {:>12}",
                duration(median(&of(|seen| seen.p50_ns))),
                duration(median(&of(|seen| seen.p99_ns))),
                duration(of(|seen| seen.max_ns).into_iter().fold(0.0, f64::max)),
                of(|seen| seen.executions).iter().sum::<f64>()
            )?;
        }
        Ok(())
    }
}
