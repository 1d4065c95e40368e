//! How many executions per second one thread of a client has carried out, by how many bursts it drives and
//! how many requests are in flight on each.
//!
//! One client, one worker, a processor for each; ADD of a constant to one value, requests registered. With
//! one in flight on one burst an execution is a round trip; with more, both sides work at the same time, and
//! what is measured is the slower of the two. With several bursts the thread goes from one to the next: it
//! takes the oldest result if as many as may be are in flight there, and submits another request; in the
//! worker they share a thread, as all bursts of all rows do on a machine of two or three processors. Rows
//! take turns in each round; printed are medians over the rounds, and ratios to one request on one burst.
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
/// Bursts, and how many requests are in flight on each.
const SHAPES: [(u32, u32); 12] = [
    (1, 1),
    (1, 2),
    (1, 4),
    (1, 8),
    (1, 16),
    (1, 32),
    (1, 64),
    (2, 1),
    (4, 1),
    (16, 1),
    (4, 4),
    (16, 4),
];
/// How long a row is measured in a round.
const WINDOW: Duration = Duration::from_millis(100);
/// Executions between two looks at the clock.
const BETWEEN_LOOKS: u32 = 256;
/// Bytes of a value; input and output of each request have a cache line each.
const VALUE_BYTES: u64 = 4;
const LINE_BYTES: u64 = 64;

/// One way to drive bursts.
#[derive(Debug, Serialize)]
struct Row {
    bursts: u32,
    /// On each of them.
    in_flight: u32,
    executions_per_second: f64,
    /// To one in flight on one burst.
    ratio: f64,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    rows: Vec<Row>,
}

/// Bursts that one thread drives.
struct Fleet {
    lanes: Vec<Lane>,
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
    let mut fleets = SHAPES
        .iter()
        .map(|(bursts, depth)| Fleet::new(&prepared, *bursts, *depth))
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
    let mut rates = vec![Vec::new(); fleets.len()];
    for _ in 0..rounds.max(1) {
        for (fleet, rates) in fleets.iter_mut().zip(&mut rates) {
            rates.push(fleet.rate()?);
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
    let row = |(&(bursts, in_flight), rates): (&(u32, u32), &Vec<f64>)| {
        let ratios: Vec<f64> = rates.iter().zip(first).map(|(rate, one)| rate / one).collect();
        Row {
            bursts,
            in_flight,
            executions_per_second: median(rates),
            ratio: median(&ratios),
        }
    };
    SHAPES.iter().zip(rates).map(row).collect()
}

impl Fleet {
    fn new(prepared: &PreparedModel, bursts: u32, depth: u32) -> Result<Fleet> {
        let lanes = (0..bursts).map(|_| Lane::new(prepared, depth));
        Ok(Fleet {
            lanes: lanes.collect::<Result<_>>()?,
        })
    }

    /// Executions per second over a window.
    fn rate(&mut self) -> Result<f64> {
        let turns = BETWEEN_LOOKS / self.lanes.len() as u32;
        let start = Instant::now();
        let mut executions = 0_u64;
        while start.elapsed() < WINDOW {
            for _ in 0..turns {
                self.lanes.iter_mut().try_for_each(Lane::execute)?;
            }
            executions += u64::from(turns) * self.lanes.len() as u64;
        }
        let rate = executions as f64 / start.elapsed().as_secs_f64();
        self.lanes.iter_mut().try_for_each(Lane::finish)?;
        Ok(rate)
    }
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

    /// Takes the results of all that are in flight.
    fn finish(&mut self) -> Result<()> {
        while let Some(finished) = self.burst.next_finished(&ExecuteOptions::new())? {
            finished.result?;
        }
        Ok(())
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conditions = &self.conditions;
        writeln!(
            f,
            "{}, {} processors, kernel {}, {}; {} rounds; load before {}; device {}\n{:>8} {:>15} {:>18} {:>8}",
            conditions.cpu,
            conditions.cpus_online,
            conditions.kernel,
            conditions.scheduling,
            conditions.rounds,
            conditions.load_before,
            conditions.device,
            "bursts",
            "in flight each",
            "executions/s",
            "ratio"
        )?;
        for row in &self.rows {
            writeln!(
                f,
                "{:>8} {:>15} {:>18.0} {:>8.2}",
                row.bursts, row.in_flight, row.executions_per_second, row.ratio
            )?;
        }
        Ok(())
    }
}
