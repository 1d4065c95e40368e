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

use nnhal_bench::bursting_client::{self, Seen, Task};
use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{self, Invocation};
use nnhal_bench::report::duration;
use nnhal_bench::samples::{jain_index, median};
use nnhal_bench::{Error, OtherSide, Result};
use nnhal_client::DevicesOptions;
use nnhal_driver::{Daemon, DeviceRegistry};
use serde::Serialize;

/// Leads to the driver.
const DRIVER: &str = "--driver";
/// Leads to a client.
const OTHER_SIDE: &str = "--other-side";

const COUNTS: [u32; 4] = [2, 4, 16, 64];
const SMALL: u32 = 1;
const LARGE: u32 = 65_536;
const SECONDS: u32 = 2;

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
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == DRIVER).is_some() {
        return Daemon::new(DeviceRegistry::of_nnhal())
            .reached_by([DRIVER])
            .run(arguments);
    }
    let arguments: Vec<String> = arguments
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let result = match arguments.as_slice() {
        [first, role] if first == OTHER_SIDE => other_side::answer(role, &[bursting_client::ROLE]),
        _ => measure(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error the exit code says enough.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<()> {
    let value_of = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let seconds =
        value_of("--seconds").map_or(Ok(SECONDS), |text| text.parse().map_err(Error::row("--seconds")))?;
    let executable = std::env::current_exe().map_err(Error::io("find this program's file"))?;
    let devices = DevicesOptions::new()
        .private()
        .own_driver(executable, [DRIVER])
        .open()?;
    let device = devices.fastest()?;
    let mut conditions = Conditions::of_this_machine(1);
    conditions.device = device.name().to_owned();
    conditions.scheduling = "normal, not pinned".to_owned();
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
    if let Some(path) = value_of("--json") {
        let text = serde_json::to_string_pretty(&report).map_err(Error::row("JSON"))?;
        std::fs::write(path, text + "\n").map_err(Error::io(format!("write {path}")))?;
    }
    Ok(())
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
    let invocation = Invocation::new([OTHER_SIDE]);
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
