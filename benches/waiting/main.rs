//! What a round trip costs when not both sides poll, and what a burst costs when nothing happens.
//!
//! - `futex`: the least that two processes need that both sleep: one word and one system call to wake, each
//!   way;
//! - `burst_asleep`: an execution of ADD by a burst whose sides sleep at once, as models prepared for low
//!   power have them;
//! - `burst_after_thought`: an execution by a burst as it is by default, by a client that first thinks for
//!   longer than any polling window, so that the worker sleeps;
//! - idle: a burst as it is by default, after executions, for a second in which nobody uses it: how often its
//!   processes were scheduled in, and for how long they ran. The thread that measures is left out.
//!
//! Rows take turns in each round; p50 and p99 are medians over the rounds. Nothing is pinned.
//!
//! `cargo bench --bench waiting -- [--rounds N] [--json FILE]`; with `--record DIRECTORY` it measures nothing
//! and writes there how long the sides of a burst wait in several situations, for the tests of the waiting
//! policy (`src/fmq/traces`).
#![forbid(unsafe_code)]

mod record;

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{Caller, OtherSide, Role, default_deadline};
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{median, quantile};
use nnhal_bench::{Error, Result, models};
use nnhal_client::{
    Burst, BurstOptions, Device, ExecuteOptions, ExecutionPreference, Input, Output, PrepareOptions,
};
use nnhal_os::futex;
use nnhal_os::shm::{Access, Mapping, SharedMemory};
use serde::Serialize;

const ROUNDS: u32 = 7;
/// Round trips of a row in a round.
const TRIPS: u32 = 1000;
/// Executions after which a burst is left alone.
const BEFORE_REST: u32 = 10_000;
/// Longer than any polling window.
const THOUGHT: Duration = Duration::from_micros(200);
/// A burst may poll for so long after its last execution.
const SETTLING: Duration = Duration::from_millis(100);
const REST: Duration = Duration::from_secs(1);

const NAME: &str = "futex";
const ROLES: [Role; 1] = [(NAME, answer)];
const MEMORY_BYTES: u64 = 4096;
/// Of the words of the two sides, which have lines of their own.
const OFFSETS: [u64; 2] = [0, 128];

/// One row.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    p50_ns: f64,
    p99_ns: f64,
}

/// A process for as long as it had nothing to do.
#[derive(Debug, Serialize)]
struct Idle {
    name: &'static str,
    seconds: f64,
    wake_ups: u64,
    run_ns: u64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Row>,
    idle: Vec<Idle>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}, kernel {}, load before {}, device {}, {} rounds of {TRIPS}\n",
            self.conditions.cpu,
            self.conditions.kernel,
            self.conditions.load_before,
            self.conditions.device,
            self.conditions.rounds
        )?;
        writeln!(f, "{:<20} {:>10} {:>10}", "way", "p50", "p99")?;
        for row in &self.rows {
            let (p50, p99) = (duration(row.p50_ns), duration(row.p99_ns));
            writeln!(f, "{:<20} {p50:>10} {p99:>10}", row.name)?;
        }
        for idle in &self.idle {
            writeln!(
                f,
                "{}, idle for {:.1} s: scheduled in {} times, ran for {}",
                idle.name,
                idle.seconds,
                idle.wake_ups,
                duration(idle.run_ns as f64)
            )?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    program::run(&ROLES, run)
}

/// What the program is told.
#[derive(Debug, Parser)]
struct WaitingOptions {
    #[command(flatten)]
    common: Options,
    /// Write how long the sides of a burst wait into files there, and measure nothing.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["rounds", "json"])]
    record: Option<PathBuf>,
}

fn run(options: WaitingOptions) -> Result<()> {
    match &options.record {
        Some(directory) => record::record(directory),
        None => measure(&options.common),
    }
}

fn measure(options: &Options) -> Result<()> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(rounds, device.name());
    let futexes = Futexes::start()?;
    let mut asleep = burst(&device, ExecutionPreference::LowPower)?;
    let mut awake = burst(&device, ExecutionPreference::FastSingleAnswer)?;
    let names = [NAME, "burst_asleep", "burst_after_thought"];
    let mut quantiles = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let [futex, burst_asleep, burst_after_thought] = &mut quantiles;
        futexes.other.begin(TRIPS)?;
        futex.push(times(Duration::ZERO, || futexes.trip())?);
        burst_asleep.push(times(Duration::ZERO, || execute(&mut asleep))?);
        burst_after_thought.push(times(THOUGHT, || execute(&mut awake))?);
    }
    let rows = names.into_iter().zip(&quantiles).map(|(name, rounds)| Row {
        name,
        p50_ns: median(&rounds.iter().map(|[p50, _]| *p50).collect::<Vec<_>>()),
        p99_ns: median(&rounds.iter().map(|[_, p99]| *p99).collect::<Vec<_>>()),
    });
    let report = Report {
        rows: rows.collect(),
        idle: idle(&device, &mut awake)?,
        conditions,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

fn burst(device: &Device, preference: ExecutionPreference) -> Result<Burst> {
    let options = PrepareOptions::new().preference(preference);
    let prepared = device.prepare(&models::add(1)?, &options)?;
    Ok(prepared.burst(&BurstOptions::new())?)
}

fn execute(burst: &mut Burst) -> Result<()> {
    let mut sum = [0.0_f32];
    burst.run(
        &[Input::from(&[1.0_f32])],
        &mut [Output::from(&mut sum)],
        &ExecuteOptions::new(),
    )?;
    if sum == [1.0 + models::ADDEND] {
        Ok(())
    } else {
        Err(Error::wrong_answer("burst"))
    }
}

/// The median and the 99th percentile of [`TRIPS`] trips, each after a thought that is not counted.
fn times(thought: Duration, mut trip: impl FnMut() -> Result<()>) -> Result<[f64; 2]> {
    let mut nanos = Vec::new();
    for _ in 0..TRIPS {
        let thinks = Instant::now();
        while thinks.elapsed() < thought {
            std::hint::spin_loop();
        }
        let start = Instant::now();
        trip()?;
        nanos.push(start.elapsed().as_nanos() as u64);
    }
    Ok([0.5, 0.99].map(|part| quantile(&mut nanos, part) as f64))
}

/// Leaves a burst alone and looks what its processes do.
fn idle(device: &Device, burst: &mut Burst) -> Result<Vec<Idle>> {
    for _ in 0..BEFORE_REST {
        execute(burst)?;
    }
    std::thread::park_timeout(SETTLING);
    let pids = [("client", std::process::id()), ("worker", device.worker().pid)];
    let before = pids.map(|(_, pid)| activity(pid));
    let start = Instant::now();
    while start.elapsed() < REST {
        std::thread::park_timeout(REST.saturating_sub(start.elapsed()));
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = pids.map(|(_, pid)| activity(pid));
    let rows = pids.into_iter().zip(before.into_iter().zip(after));
    Ok(rows
        .map(|((name, _), (before, after))| Idle {
            name,
            seconds,
            wake_ups: after.wake_ups.saturating_sub(before.wake_ups),
            run_ns: after.run_ns.saturating_sub(before.run_ns),
        })
        .collect())
}

/// What the threads of a process have done so far.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    run_ns: u64,
    wake_ups: u64,
}

/// Of all threads of a process but the one that asks.
fn activity(pid: u32) -> Activity {
    let own = nix::unistd::gettid().to_string();
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let others = threads.filter(|thread| thread.file_name().to_str() != Some(&own));
    others.fold(Activity::default(), |sum, thread| {
        // Run time in nanoseconds, waiting time, how often it was scheduled in.
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let mut words = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        Activity {
            run_ns: sum.run_ns + words.next().unwrap_or(0_u64),
            wake_ups: sum.wake_ups + words.nth(1).unwrap_or(0),
        }
    })
}

/// Two processes that wake each other.
struct Futexes {
    other: OtherSide,
    memory: Mapping,
}

impl Futexes {
    fn start() -> Result<Futexes> {
        let memory = SharedMemory::create(MEMORY_BYTES)?;
        Ok(Futexes {
            other: program::other_sides().start(NAME, &[], &[memory.as_fd()])?,
            memory: Mapping::prefaulted(&memory, Access::ReadWrite)?,
        })
    }

    fn trip(&self) -> Result<()> {
        let slice = self.memory.as_slice();
        wake(slice.atomic_u32(OFFSETS[0])?)?;
        sleep(slice.atomic_u32(OFFSETS[1])?)
    }
}

fn answer() -> Result<()> {
    let (caller, mut setup) = Caller::setup()?;
    let memory = SharedMemory::from_fd(setup.only_fd()?, MEMORY_BYTES, MEMORY_BYTES)?;
    let mapping = Mapping::prefaulted(&memory, Access::ReadWrite)?;
    let slice = mapping.as_slice();
    let [asked, answered] = [slice.atomic_u32(OFFSETS[0])?, slice.atomic_u32(OFFSETS[1])?];
    caller.serve(|trips| {
        for _ in 0..trips {
            sleep(asked)?;
            wake(answered)?;
        }
        Ok(())
    })
}

fn wake(word: &AtomicU32) -> Result<()> {
    word.store(1, Ordering::Release);
    futex::wake(word, 1)?;
    Ok(())
}

/// Sleeps until the word is 1, and takes it back.
fn sleep(word: &AtomicU32) -> Result<()> {
    let deadline = default_deadline();
    while word.swap(0, Ordering::Acquire) == 0 {
        if futex::wait(word, 0, deadline)? == futex::Wait::TimedOut {
            return Err(Error::wrong_answer(NAME));
        }
    }
    Ok(())
}
