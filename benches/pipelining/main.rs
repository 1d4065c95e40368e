//! How many executions per second one burst carries out, by how many are in flight.
//!
//! One client, one worker, a processor for each; ADD of a constant to one value, requests registered. With one in
//! flight an execution is a round trip; with more, both sides work at the same time, and what is measured is the slower
//! of the two. Depths take turns in each round; printed are medians over the rounds, and ratios to depth 1.
//!
//! `cargo bench --bench pipelining -- [--rounds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use nnhal_bench::conditions::Conditions;
use nnhal_bench::machine;
use nnhal_bench::program::{self, Options};
use nnhal_bench::samples::median;
use nnhal_bench::{Result, models};
use nnhal_client::{
    Burst, BurstOptions, ExecuteOptions, Memory, PrepareOptions, PreparedModel, RegisteredRequest, Request,
};
use serde::Serialize;

const ROUNDS: u32 = 9;
const DEPTHS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
/// How long a depth is measured in a round.
const WINDOW: Duration = Duration::from_millis(100);
/// Executions between two looks at the clock.
const BETWEEN_LOOKS: u32 = 256;
/// Bytes of a value; input and output of each request have a cache line each.
const VALUE_BYTES: u64 = 4;
const LINE_BYTES: u64 = 64;

/// One depth.
#[derive(Debug, Serialize)]
struct Row {
    in_flight: u32,
    executions_per_second: f64,
    /// To one in flight.
    ratio: f64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Row>,
}

/// A burst with as many requests as it may have in flight.
struct Lane {
    burst: Burst,
    requests: Vec<RegisteredRequest>,
    next: usize,
}

fn main() -> ExitCode {
    program::run(&[], measure)
}

fn measure(options: Options) -> Result<()> {
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let prepared = device.prepare(&models::add(1)?, &PrepareOptions::new())?;
    let mut lanes = DEPTHS
        .iter()
        .map(|depth| Lane::new(&prepared, *depth))
        .collect::<Result<Vec<_>>>()?;
    let mut conditions = Conditions::of_this_machine(rounds);
    device.name().clone_into(&mut conditions.device);
    let [own, other] = conditions.cpus_used;
    let sides = [(device.worker().pid, other), (std::process::id(), own)];
    for (pid, cpu) in sides {
        match machine::settle(pid, cpu) {
            Ok(scheduling) => scheduling.name().clone_into(&mut conditions.scheduling),
            Err(error) => conditions
                .notes
                .push(format!("process {pid} stays where it was: {error}")),
        }
    }
    let mut rates = vec![Vec::new(); lanes.len()];
    for _ in 0..rounds.max(1) {
        for (lane, rates) in lanes.iter_mut().zip(&mut rates) {
            rates.push(lane.rate()?);
        }
    }
    let report = Report {
        rows: rows(&rates),
        conditions,
    };
    program::print(&report)?;
    program::write_json(&report, options.json.as_deref())
}

fn rows(rates: &[Vec<f64>]) -> Vec<Row> {
    let first = rates.first().map(Vec::as_slice).unwrap_or_default();
    let row = |(depth, rates): (&u32, &Vec<f64>)| {
        let ratios: Vec<f64> = rates.iter().zip(first).map(|(rate, one)| rate / one).collect();
        Row {
            in_flight: *depth,
            executions_per_second: median(rates),
            ratio: median(&ratios),
        }
    };
    DEPTHS.iter().zip(rates).map(row).collect()
}

impl Lane {
    fn new(prepared: &PreparedModel, depth: u32) -> Result<Lane> {
        let mut burst = prepared.burst(&BurstOptions::new().in_flight(depth))?;
        let memory = Memory::new(u64::from(depth) * 2 * LINE_BYTES)?;
        let requests = (0..u64::from(depth)).map(|lane| {
            let at = lane * 2 * LINE_BYTES;
            let request = Request::new()
                .input(&memory, at..at + VALUE_BYTES)
                .output(&memory, at + LINE_BYTES..at + LINE_BYTES + VALUE_BYTES);
            Ok(burst.register(&request)?)
        });
        let requests = requests.collect::<Result<Vec<_>>>()?;
        Ok(Lane {
            burst,
            requests,
            next: 0,
        })
    }

    /// Executions per second over a window.
    fn rate(&mut self) -> Result<f64> {
        let start = Instant::now();
        let mut executions = 0_u64;
        while start.elapsed() < WINDOW {
            for _ in 0..BETWEEN_LOOKS {
                self.execute()?;
            }
            executions += u64::from(BETWEEN_LOOKS);
        }
        let rate = executions as f64 / start.elapsed().as_secs_f64();
        while let Some(finished) = self.burst.next_finished(&ExecuteOptions::new())? {
            finished.result?;
        }
        Ok(rate)
    }

    /// Submits one, after the oldest has ended if as many as may be are in flight.
    fn execute(&mut self) -> Result<()> {
        let options = ExecuteOptions::new();
        if self.burst.in_flight() == self.requests.len()
            && let Some(finished) = self.burst.next_finished(&options)?
        {
            finished.result?;
        }
        if let Some(request) = self.requests.get(self.next) {
            self.burst.submit(request, &options)?;
        }
        self.next = (self.next + 1) % self.requests.len();
        Ok(())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            f,
            "{}, {} processors, kernel {}, {}; {} rounds; load before {}; device {}\n{:>10} {:>18} {:>8}",
            conditions.cpu,
            conditions.cpus_online,
            conditions.kernel,
            conditions.scheduling,
            conditions.rounds,
            conditions.load_before,
            conditions.device,
            "in flight",
            "executions/s",
            "ratio"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>10} {:>18.0} {:>8.2}",
                row.in_flight, row.executions_per_second, row.ratio
            )?;
        }
        Ok(())
    }
}
