//! `nnhal bench`: what this machine takes for a round trip, and for a model, and how the devices compare.

mod compute;

use std::io::Write as _;

use nnhal_bench::conditions::Conditions;
use nnhal_bench::other_side::{self, Invocation};
use nnhal_bench::{capabilities, rows};

use crate::arguments::{Bench, CapabilitiesArguments, LatencyArguments};
use crate::driver;
use crate::error::Error;
use crate::progress;

/// The arguments that lead to the other side of a row.
const OTHER_SIDE: [&str; 2] = ["bench", "other-side"];

/// Measures.
pub(crate) fn run(bench: &Bench) -> Result<(), Error> {
    match bench {
        Bench::Latency(arguments) => latency(arguments),
        Bench::Compute(arguments) => compute::run(arguments),
        Bench::Capabilities(arguments) => measure_capabilities(arguments),
        Bench::OtherSide { role } => Ok(other_side::answer(role, &rows::ROLES)?),
    }
}

fn latency(arguments: &LatencyArguments) -> Result<(), Error> {
    let device = driver::device(&driver::devices()?, arguments.device.as_deref())?;
    let mut conditions = Conditions::of_this_machine(arguments.rounds);
    let mut contest = arguments.choice.contest(arguments.rounds);
    rows::add_all(
        &mut contest,
        &Invocation::new(OTHER_SIDE),
        &device,
        arguments.choice.payloads(),
        &mut conditions,
    )?;
    let bar = progress::bar(u64::from(arguments.rounds), "rounds");
    let report = contest.run(conditions, |_| bar.inc(1))?;
    bar.finish_and_clear();
    if arguments.json {
        return super::print_json(&report);
    }
    write!(std::io::stdout().lock(), "{report}")?;
    Ok(())
}

fn measure_capabilities(arguments: &CapabilitiesArguments) -> Result<(), Error> {
    let bar = progress::bar(capabilities::count()? as u64, "workloads");
    let table = capabilities::measure(arguments.rounds, || bar.inc(1))?;
    bar.finish_and_clear();
    if arguments.json {
        return super::print_json(&table);
    }
    write!(std::io::stdout().lock(), "{table}")?;
    Ok(())
}
