//! Many applications on one driver: how evenly it serves them, and how long each waits.
//!
//! For 2, 4, 16 and 64 clients, each a process with a connection, a worker and a burst of its own, all of which execute
//! as fast as they can for the same time:
//! - `same`: every client executes an ADD of one value;
//! - `mixed`: every other client an ADD of 65,536 values.
//!
//! Printed for each group of clients that execute the same: executions a second of all, Jain's index of how they were
//! shared, p50 and p99 of the median client and of the worst.
//!
//! `cargo bench --bench clients -- [--seconds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use nnhal_bench::bursting_client::{self, Seen, Task};
use nnhal_bench::conditions::Conditions;
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{jain_index, median};
use nnhal_bench::{Error, OtherSide, Result};
use serde::Serialize;

const COUNTS: [u32; 4] = [2, 4, 16, 64];
const SMALL: u32 = 1;
const LARGE: u32 = 65_536;

/// Clients that executed the same at the same time.
#[derive(Debug, Serialize)]
struct Group {
    mix: &'static str,
    clients: u32,
    /// Values that each added.
    values: u32,
    per_second: f64,
    jain: f64,
    median_p50_ns: f64,
    median_p99_ns: f64,
    worst_p99_ns: f64,
    seen: Vec<Seen>,
}

/// All figures.
#[derive(Debug, Serialize)]
struct Report {
    conditions: Conditions,
    groups: Vec<Group>,
}

fn main() -> ExitCode {
    program::run(&[bursting_client::ROLE], measure)
}

/// What the program is told.
#[derive(Debug, Parser)]
struct ClientsOptions {
    /// How long each group of clients executes, in seconds.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    common: Options,
}

fn measure(options: ClientsOptions) -> Result<()> {
    let seconds = options.seconds;
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let conditions = program::unpinned_conditions(1, device.name());
    let mut report = Report {
        conditions,
        groups: Vec::new(),
    };
    let conditions = &report.conditions;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} processors, {}, kernel {}, load before {}, device {}; {seconds} s each\n{:<6} {:>7} {:>7} {:>12} {:>7} {:>10} {:>10} {:>10}",
        conditions.cpus_online,
        conditions.cpu,
        conditions.kernel,
        conditions.load_before,
        conditions.device,
        "mix",
        "clients",
        "values",
        "per second",
        "Jain",
        "p50",
        "p99",
        "worst p99"
    )
    .map_err(Error::io("print the table"))?;
    for count in COUNTS {
        for (mix, values) in [("same", [SMALL, SMALL]), ("mixed", [SMALL, LARGE])] {
            let tasks: Vec<Task> = (0..count)
                .map(|index| Task::new(&device, values[index as usize % 2]))
                .collect();
            for group in run(mix, &tasks, seconds)? {
                writeln!(out, "{group}").map_err(Error::io("print the table"))?;
                report.groups.push(group);
            }
        }
    }
    program::write_json(&report, options.common.json.as_deref())
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<6} {:>7} {:>7} {:>12.0} {:>7.3} {:>10} {:>10} {:>10}",
            self.mix,
            self.clients,
            self.values,
            self.per_second,
            self.jain,
            duration(self.median_p50_ns),
            duration(self.median_p99_ns),
            duration(self.worst_p99_ns)
        )
    }
}

/// Lets clients with these tasks execute at the same time.
fn run(mix: &'static str, tasks: &[Task], seconds: u32) -> Result<Vec<Group>> {
    let invocation = program::other_sides();
    let mut clients: Vec<OtherSide> = Vec::new();
    for task in tasks {
        clients.push(invocation.start(bursting_client::ROLE.0, &task.to_bytes()?, &[])?);
    }
    for client in &clients {
        client.begin(seconds * 1000)?;
    }
    let mut seen: Vec<Seen> = Vec::new();
    for client in &clients {
        seen.push(Seen::from_bytes(&client.receive()?)?);
    }
    let mut groups = Vec::new();
    for values in [SMALL, LARGE] {
        let own: Vec<Seen> = tasks
            .iter()
            .zip(&seen)
            .filter(|(task, _)| task.values == values)
            .map(|(_, seen)| seen.clone())
            .collect();
        if !own.is_empty() {
            groups.push(group(mix, tasks.len() as u32, values, own, seconds));
        }
    }
    Ok(groups)
}

fn group(mix: &'static str, clients: u32, values: u32, seen: Vec<Seen>, seconds: u32) -> Group {
    let of = |what: fn(&Seen) -> u64| seen.iter().map(|seen| what(seen) as f64).collect::<Vec<_>>();
    let (executions, p99) = (of(|seen| seen.executions), of(|seen| seen.p99_ns));
    Group {
        mix,
        clients,
        values,
        per_second: executions.iter().sum::<f64>() / f64::from(seconds),
        jain: jain_index(&executions),
        median_p50_ns: median(&of(|seen| seen.p50_ns)),
        median_p99_ns: median(&p99),
        worst_p99_ns: p99.iter().copied().fold(0.0, f64::max),
        seen,
    }
}
