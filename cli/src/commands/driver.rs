//! `nnhal driver`: this binary as a driver.

use std::process::ExitCode;

use nnhal_driver::{Daemon, DeviceRegistry};

use crate::arguments::DriverArguments;

/// What leads from this binary to the driver.
pub(crate) const PREFIX: &str = "driver";

/// Is nnhald until it ends.
pub(crate) fn run(arguments: DriverArguments) -> ExitCode {
    Daemon::new(DeviceRegistry::of_nnhal())
        .reached_by([PREFIX])
        .run(arguments.arguments)
}
