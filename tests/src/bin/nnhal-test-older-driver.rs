//! A driver whose devices are in the form of HAL 1.0, 1.1 and 1.2.

#![forbid(unsafe_code)]

use nnhal_driver::Daemon;

fn main() -> std::process::ExitCode {
    Daemon::new(nnhal_tests::older_device::registry())
        .named("nnhal-test-older-driver", env!("CARGO_PKG_VERSION"))
        .run(std::env::args_os().skip(1))
}
