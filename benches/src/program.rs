//! What every program that measures is besides: its own driver, and the other sides of its rows.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use nnhal_client::{Devices, DevicesOptions};
use nnhal_driver::{Daemon, DeviceRegistry};
use serde::Serialize;

use crate::conditions::Conditions;
use crate::other_side::{self, Invocation, Role};
use crate::{Error, Result};

/// Leads to the driver.
const DRIVER: &str = "--driver";
/// Leads to [`other_side::answer`].
const OTHER_SIDE: &str = "--other-side";

/// What such a program is told.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// Rounds; figures are medians over them.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Also write the figures to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Cargo says so.
    #[arg(long, hide = true)]
    pub bench: bool,
}

/// Runs the program: as the driver or as one of the other sides if it was started as that, else to measure,
/// with arguments that `O` parses.
pub fn run<O: Parser>(roles: &[Role], measure: impl FnOnce(O) -> Result<()>) -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == DRIVER).is_some() {
        return Daemon::new(DeviceRegistry::of_nnhal())
            .reached_by([DRIVER])
            .run(arguments);
    }
    let result = match arguments.next_if(|first| first == OTHER_SIDE) {
        Some(_) => {
            let role = arguments.next().unwrap_or_default();
            other_side::answer(&role.to_string_lossy(), roles)
        }
        None => match parse(arguments) {
            Ok(options) => measure(options),
            Err(code) => return code,
        },
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

fn parse<O: Parser>(arguments: impl Iterator<Item = OsString>) -> std::result::Result<O, ExitCode> {
    let name = OsString::from(env!("CARGO_PKG_NAME"));
    O::try_parse_from(std::iter::once(name).chain(arguments)).map_err(|error| {
        // Without a standard error the exit code says enough.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(2),
        }
    })
}

/// How to start other sides of this program's rows.
#[must_use]
pub fn other_sides() -> Invocation {
    Invocation::new([OTHER_SIDE])
}

/// The devices of a private driver, which is this program again.
///
/// # Errors
/// It cannot be started.
pub fn own_driver() -> Result<Devices> {
    own_driver_with(None)
}

/// As [`own_driver`], with a settings file.
///
/// # Errors
/// It cannot be started.
pub fn own_driver_with(settings: Option<&Path>) -> Result<Devices> {
    let executable = std::env::current_exe().map_err(Error::io("find this program's file"))?;
    let mut arguments = vec![OsString::from(DRIVER)];
    if let Some(settings) = settings {
        arguments.extend(["--config".into(), settings.into()]);
    }
    Ok(DevicesOptions::new()
        .private()
        .own_driver(executable, arguments)
        .open()?)
}

/// The conditions of a measurement whose processes run where the system puts them.
#[must_use]
pub fn unpinned_conditions(rounds: u32, device: &str) -> Conditions {
    let mut conditions = Conditions::of_this_machine(rounds);
    device.clone_into(&mut conditions.device);
    "normal, not pinned".clone_into(&mut conditions.scheduling);
    conditions
}

/// Prints a report.
///
/// # Errors
/// Standard output is closed.
pub fn print(report: &impl std::fmt::Display) -> Result<()> {
    write!(std::io::stdout(), "{report}").map_err(Error::io("print the table"))
}

/// Writes a report to the file that was asked for, if one was.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(report: &impl Serialize, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(report).map_err(Error::row("JSON"))?;
    std::fs::write(path, text + "\n").map_err(Error::io(format!("write {}", path.display())))
}
