//! `nnhal driver`: this binary as a driver.

use std::ffi::OsString;
use std::process::ExitCode;

use nnhal_driver::{Daemon, DeviceRegistry};

use crate::arguments::DriverArguments;

/// What leads from this binary to the driver.
pub(crate) const PREFIX: &str = "driver";

/// The arguments of a private driver, if this binary was started as one: by who takes it for nothing but a
/// driver, as it may be named by `NNHAL_DRIVER`.
pub(crate) fn of_private(mut arguments: impl Iterator<Item = OsString>) -> Option<DriverArguments> {
    let first = arguments.next().filter(|first| first == "--private")?;
    let arguments = std::iter::once(first).chain(arguments).collect();
    Some(DriverArguments { arguments })
}

/// Is nnhald until it ends.
pub(crate) fn run(arguments: DriverArguments) -> ExitCode {
    Daemon::new(DeviceRegistry::of_nnhal())
        .reached_by([PREFIX])
        .run(arguments.arguments)
}
