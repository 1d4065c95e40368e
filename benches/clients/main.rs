//! Many applications on one driver: how evenly it serves them, and how long each waits.
//!
//! For 2, 4, 16 and 64 clients, each a process with a connection, a worker and a burst of its own, all of
//! which execute as fast as they can for the same time:
//! - `same`: every client executes an ADD of one value;
//! - `mixed`: every other client an ADD of 65,536 values.
//!
//! Printed for each group of clients that execute the same: executions a second of all, Jain's index of how
//! they were shared, p50 and p99 of the median client, the worst client's p99 and by how much that is more
//! than the median client's; then each client's executions a second, p50 and p99. All are medians over the
//! rounds, which the same clients execute one after the other.
//!
//! `cargo bench --bench clients -- [--rounds N] [--seconds N] [--json FILE]`
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use nnhal_bench::bursting_client::{self, Seen, Task};
use nnhal_bench::conditions::Conditions;
use nnhal_bench::fairness::Fairness;
use nnhal_bench::program::{self, Options};
use nnhal_bench::report::duration;
use nnhal_bench::{OtherSide, Result};
use serde::Serialize;

const COUNTS: [u32; 4] = [2, 4, 16, 64];
const SMALL: u32 = 1;
const LARGE: u32 = 65_536;

/// Rounds if nothing else is said.
const ROUNDS: u32 = 7;

/// Clients that executed the same at the same time.
#[derive(Debug, Serialize)]
struct Group {
    mix: &'static str,
    clients: u32,
    /// Values that each added.
    values: u32,
    #[serde(flatten)]
    fairness: Fairness,
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
    /// How long each group of clients executes in a round, in seconds.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    #[command(flatten)]
    common: Options,
}

fn measure(options: ClientsOptions) -> Result<()> {
    let rounds = options.common.rounds.unwrap_or(ROUNDS);
    let devices = program::own_driver()?;
    let device = devices.fastest()?;
    let mut report = Report {
        conditions: program::unpinned_conditions(rounds, device.name()),
        groups: Vec::new(),
    };
    print_head(&report.conditions, options.seconds)?;
    for count in COUNTS {
        for (mix, values) in [("same", [SMALL, SMALL]), ("mixed", [SMALL, LARGE])] {
            let tasks: Vec<Task> = (0..count)
                .map(|index| Task::new(&device, values[index as usize % 2]))
                .collect();
            let groups = run(mix, &tasks, rounds, options.seconds)?;
            groups.iter().try_for_each(program::print)?;
            report.groups.extend(groups);
        }
    }
    program::write_json(&report, options.common.json.as_deref())
}

fn print_head(conditions: &Conditions, seconds: u32) -> Result<()> {
    program::print(&format_args!(
        "{} processors, {}, kernel {}, load before {}, device {}; {} rounds of {seconds} s\n\
         {:<6} {:>7} {:>7} {:>12} {:>7} {:>10} {:>10} {:>10} {:>9}\n",
        conditions.cpus_online,
        conditions.cpu,
        conditions.kernel,
        conditions.load_before,
        conditions.device,
        conditions.rounds,
        "mix",
        "clients",
        "values",
        "per second",
        "Jain",
        "p50",
        "p99",
        "worst p99",
        "x median"
    ))
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fairness = &self.fairness;
        writeln!(
            f,
            "{:<6} {:>7} {:>7} {:>12.0} {:>7.3} {:>10} {:>10} {:>10} {:>9.2}",
            self.mix,
            self.clients,
            self.values,
            fairness.per_second,
            fairness.jain,
            duration(fairness.median_p50_ns),
            duration(fairness.median_p99_ns),
            duration(fairness.worst_p99_ns),
            fairness.worst_p99_ratio
        )?;
        for (number, client) in fairness.each.iter().enumerate() {
            writeln!(
                f,
                "{:>22} {:>12.0} {:>7} {:>10} {:>10}",
                format!("client {}", number + 1),
                client.per_second,
                "",
                duration(client.p50_ns),
                duration(client.p99_ns)
            )?;
        }
        Ok(())
    }
}

/// Lets clients with these tasks execute at the same time, round after round.
fn run(mix: &'static str, tasks: &[Task], rounds: u32, seconds: u32) -> Result<Vec<Group>> {
    let invocation = program::other_sides();
    let mut clients: Vec<OtherSide> = Vec::new();
    for task in tasks {
        clients.push(invocation.start(bursting_client::ROLE.0, &task.to_bytes()?, &[])?);
    }
    let seen = (0..rounds)
        .map(|_| round(&clients, seconds))
        .collect::<Result<Vec<_>>>()?;
    let group = |values: u32| {
        let of_group = |round: &Vec<Seen>| {
            let own = tasks.iter().zip(round).filter(|(task, _)| task.values == values);
            own.map(|(_, seen)| seen.clone()).collect::<Vec<_>>()
        };
        let seen: Vec<_> = seen.iter().map(of_group).collect();
        Group {
            mix,
            clients: tasks.len() as u32,
            values,
            fairness: Fairness::of(&seen, f64::from(seconds)),
        }
    };
    let mut sizes: Vec<u32> = tasks.iter().map(|task| task.values).collect();
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes.into_iter().map(group).collect())
}

fn round(clients: &[OtherSide], seconds: u32) -> Result<Vec<Seen>> {
    for client in clients {
        client.begin(seconds * 1000)?;
    }
    let seen = clients.iter().map(|client| Seen::from_bytes(&client.receive()?));
    seen.collect()
}
