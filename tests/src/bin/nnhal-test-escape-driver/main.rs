//! A driver whose device makes the system calls that a model asks for, as a worker would that was taken over.

mod device;
#[allow(unsafe_code, reason = "the calls are what is tested")]
mod ways;

use std::sync::Arc;

use nnhal_device::{Device, DeviceOptions, Needs};
use nnhal_driver::{Daemon, DeviceEntry, DeviceRegistry};
use nnhal_hal::Failure;
use nnhal_tests::escape::{DEVICE, NEEDS, NEEDY};

fn create(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    Ok(Arc::new(device::Escape::new(DEVICE)))
}

fn create_needy(_: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    Ok(Arc::new(device::Escape::new(NEEDY)))
}

fn main() -> std::process::ExitCode {
    let registry = DeviceRegistry::of_nnhal()
        .with(DeviceEntry {
            name: DEVICE,
            create,
            by_default: true,
            needs: Needs::NONE,
        })
        .with(DeviceEntry {
            name: NEEDY,
            create: create_needy,
            by_default: true,
            needs: NEEDS,
        });
    Daemon::new(registry)
        .named("nnhal-test-escape-driver", env!("CARGO_PKG_VERSION"))
        .run(std::env::args_os().skip(1))
}
