//! The driver daemon of the tests: built with them, so that they need no other build command.

#![forbid(unsafe_code)]

use nnhal_driver::{Daemon, DeviceRegistry};

fn main() -> std::process::ExitCode {
    Daemon::new(DeviceRegistry::of_nnhal()).run(std::env::args_os().skip(1))
}
