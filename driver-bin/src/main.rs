//! `nnhald`: the driver daemon with nnhal's own devices.

#![forbid(unsafe_code)]

use nnhal_driver::{Daemon, DeviceRegistry};

fn main() -> std::process::ExitCode {
    Daemon::new(DeviceRegistry::of_nnhal()).run(std::env::args_os().skip(1))
}
