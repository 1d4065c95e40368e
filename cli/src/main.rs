//! The command `nnhal`: a client of nnhal's drivers for people and scripts, and a driver itself (`nnhal
//! driver`), so that one file is enough.
#![forbid(unsafe_code)]

mod accuracy;
mod arguments;
mod commands;
mod comparison;
mod digits;
mod driver;
mod error;
mod feed;
mod form;
mod in_process;
mod input_file;
mod jail;
mod latency;
mod npy;
mod present;
mod progress;
mod random_models;
mod remote;
mod session;
mod stress;
mod under_test;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use nnhal::diag::tags;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use arguments::{Arguments, Command};
use error::Error;

fn main() -> ExitCode {
    // For what is computed in this process: it is nobody else's.
    nnhal_cpu::permit_tiles();
    if let Some(arguments) = commands::driver::of_private(std::env::args_os().skip(1)) {
        return commands::driver::run(arguments);
    }
    let result = match Arguments::parse().command {
        // A driver sets up its own log, and its exit codes are its own.
        Command::Driver(arguments) => return commands::driver::run(arguments),
        Command::Stress(arguments) if arguments.one => {
            start_log();
            return ended(stress::run_one(&arguments));
        }
        command => {
            start_log();
            run(&command)
        }
    };
    ended(result.map(|()| ExitCode::SUCCESS))
}

/// The exit code; an error is told on standard error.
fn ended(result: Result<ExitCode, Error>) -> ExitCode {
    match result {
        Ok(code) => code,
        // Whoever read the output has had enough.
        Err(Error::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error the exit code says enough.
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), Error> {
    match command {
        Command::Devices(arguments) => commands::devices::run(arguments),
        Command::Run(arguments) => commands::run::run(arguments),
        Command::Vts(arguments) => commands::vts::run(arguments),
        Command::Stress(arguments) => stress::run(arguments),
        Command::Demo(arguments) => commands::demo::run(arguments),
        Command::Explain(arguments) => commands::explain::run(arguments),
        Command::Dump(arguments) => commands::dump::run(arguments),
        Command::Bench(arguments) => commands::bench::run(&arguments.bench),
        Command::Driver(_) => Ok(()),
    }
}

/// Logs to standard error; warnings if the variable is not set or makes no sense.
fn start_log() {
    let filter: Targets = std::env::var(tags::LOG_VARIABLE)
        .ok()
        .and_then(|filter| tags::directives(&filter).parse().ok())
        .unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN));
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .without_time();
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}
