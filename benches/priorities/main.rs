//! What work of high priority notices of a long model of low priority, and what that model gets done.
//!
//! One client with two prepared models. The short one has high priority and is asked for at regular times, as
//! an application with a frame to draw would; the long one has low priority and is executed without a pause,
//! by as many threads as there are processors. Measured in turns, in each round:
//! - `alone`: the short one by itself;
//! - `beside`: while the long one runs on all slots and must be suspended for each execution of the short
//!   one;
//! - the executions of the long one by itself, for the progress that it makes beside the other.
//!
//! Printed: p50 and p99 of the short one, medians over the rounds, the longest of all, and p99 against that
//! alone.
//!
//! `cargo bench --bench priorities -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nnhal_bench::conditions::Conditions;
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{median, quantile};
use nnhal_bench::{Error, Result, models};
use nnhal_client::{
    Arguments, Burst, BurstOptions, Device, ExecuteOptions, Model, PrepareOptions, PreparedModel, Priority,
};
use serde::Serialize;

const ROUNDS: u32 = 7;
/// The short model: operations, and values that each adds.
const SHORT: (u32, u32) = (4, 1024);
/// The long model.
const LONG: (u32, u32) = (200, 1 << 17);
/// Executions of the short model in a phase of a round.
const EXECUTIONS: u32 = 250;
/// From one to the next.
const PERIOD: Duration = Duration::from_millis(4);
const FORMS: [&str; 2] = ["synchronous", "burst"];
const PHASES: [&str; 2] = ["alone", "beside"];

/// What the short model's executions took in a phase.
#[derive(Clone, Copy, Debug, Serialize)]
struct Seen {
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// One round of one form.
#[derive(Debug, Serialize)]
struct Round {
    form: &'static str,
    /// By phase.
    high: [Seen; 2],
    /// Executions of the long model in a second beside the short one.
    low_beside: f64,
    /// The same by itself.
    low_alone: f64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    phases: [&'static str; 2],
    rounds: Vec<Round>,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let count = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(count, device.name());

    let low = Low::new(&device, conditions.cpus_online)?;
    let mut high = High::new(&device)?;
    let mut rounds = Vec::new();
    for _ in 0..count {
        for form in FORMS {
            rounds.push(round(&mut high, &low, form)?);
        }
    }
    let report = Report {
        conditions,
        phases: PHASES,
        rounds,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

fn round(high: &mut High, low: &Low, form: &'static str) -> Result<Round> {
    let alone = high.execute_regularly(form)?;
    let (beside, low_beside) = low.execute_during(|| high.execute_regularly(form))?;
    let ((), low_alone) = low.execute_during(|| {
        wait_for(Instant::now() + PERIOD * EXECUTIONS);
        Ok(())
    })?;
    Ok(Round {
        form,
        high: [alone, beside],
        low_beside,
        low_alone,
    })
}

fn prepare(device: &Device, model: &Model, priority: Priority) -> Result<PreparedModel> {
    Ok(device.prepare(model, &PrepareOptions::new().priority(priority))?)
}

/// The long model.
struct Low {
    prepared: PreparedModel,
    /// For each thread.
    arguments: Vec<Arguments>,
}

impl Low {
    fn new(device: &Device, threads: usize) -> Result<Low> {
        let prepared = prepare(device, &models::chain(LONG.0, LONG.1)?, Priority::Low)?;
        let arguments = (0..threads).map(|_| Ok(prepared.new_arguments()?));
        Ok(Low {
            arguments: arguments.collect::<Result<_>>()?,
            prepared,
        })
    }

    /// Executes on all threads until `work` is done. Returns what that gives, and how many executions there
    /// were in a second.
    fn execute_during<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let (is_over, executed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let execute = |arguments: &Arguments| -> Result<()> {
                while !is_over.load(Ordering::Relaxed) {
                    self.prepared
                        .execute(arguments.request(), &ExecuteOptions::new())?;
                    executed.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            let threads: Vec<_> = self
                .arguments
                .iter()
                .map(|arguments| scope.spawn(move || execute(arguments)))
                .collect();
            let started = Instant::now();
            let done = work();
            let per_second = executed.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                thread
                    .join()
                    .map_err(|_| Error::row("low priority")("a thread panicked"))??;
            }
            Ok((done?, per_second))
        })
    }
}

/// The short model.
struct High {
    prepared: PreparedModel,
    burst: Burst,
    arguments: Arguments,
}

impl High {
    fn new(device: &Device) -> Result<High> {
        let prepared = prepare(device, &models::chain(SHORT.0, SHORT.1)?, Priority::High)?;
        Ok(High {
            burst: prepared.burst(&BurstOptions::new())?,
            arguments: prepared.new_arguments()?,
            prepared,
        })
    }

    /// Executes once every [`PERIOD`]. An execution that takes longer is followed by the next at once.
    fn execute_regularly(&mut self, form: &str) -> Result<Seen> {
        let options = ExecuteOptions::new();
        let mut taken = Vec::with_capacity(EXECUTIONS as usize);
        let start = Instant::now();
        for index in 0..EXECUTIONS {
            wait_for(start + PERIOD * index);
            let begun = Instant::now();
            match form {
                "burst" => drop(self.burst.execute(self.arguments.request(), &options)?),
                _ => drop(self.prepared.execute(self.arguments.request(), &options)?),
            }
            taken.push(begun.elapsed().as_nanos() as u64);
        }
        Ok(Seen {
            p50_ns: quantile(&mut taken, 0.5),
            p99_ns: quantile(&mut taken, 0.99),
            max_ns: quantile(&mut taken, 1.0),
        })
    }
}

fn wait_for(time: Instant) {
    loop {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{}\n{:<12} {:<8} {:>10} {:>10} {:>10} {:>10}",
            self.conditions, "high", "", "p50", "p99", "longest", "p99/alone"
        )?;
        for form in FORMS {
            let rounds = || self.rounds.iter().filter(move |round| round.form == form);
            for (index, phase) in PHASES.into_iter().enumerate() {
                let of = |what: fn(&Seen) -> u64| -> Vec<f64> {
                    rounds()
                        .filter_map(|round| Some(what(round.high.get(index)?) as f64))
                        .collect()
                };
                let ratios: Vec<f64> = rounds()
                    .filter_map(|round| {
                        Some(round.high.get(index)?.p99_ns as f64 / round.high.first()?.p99_ns as f64)
                    })
                    .collect();
                writeln!(
                    f,
                    "{form:<12} {phase:<8} {:>10} {:>10} {:>10} {:>10.2}",
                    duration(median(&of(|seen| seen.p50_ns))),
                    duration(median(&of(|seen| seen.p99_ns))),
                    duration(of(|seen| seen.max_ns).into_iter().fold(0.0, f64::max)),
                    median(&ratios)
                )?;
            }
            let beside: Vec<f64> = rounds().map(|round| round.low_beside).collect();
            let alone: Vec<f64> = rounds().map(|round| round.low_alone).collect();
            writeln!(
                f,
                "{:<12} {:<8} {:.1} executions a second beside it, {:.1} alone",
                "",
                "low",
                median(&beside),
                median(&alone)
            )?;
        }
        Ok(())
    }
}
