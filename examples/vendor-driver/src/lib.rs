//! A second vendor's driver, as a vendor would write it: its devices on `nnhal-device`, its daemon by
//! `nnhal-driver`.
//!
//! | device | type | what it can do |
//! |---|---|---|
//! | [`FIBONACCI`] | ACCELERATOR | the one operation of the extension [`extension::NAME`] |
//! | [`ARITHMETIC`] | ACCELERATOR | ADD and MUL of two float tensors of equal dimensions, RELU; it says of anything else why not |
//! | [`EVERYTHING`] | OTHER | stands in front of both, for models that need the two of them |
//! | [`QUEUE`] | ACCELERATOR | what [`ARITHMETIC`] can do, on a queue that computes by itself and signals fences |
//!
//! [`extension`] is what the vendor publishes for applications; the rest is how the devices work: `unit`
//! compiles operations to kernels, `device` answers questions and prepares a `program` of them, `execution`
//! runs it, and `queue` stands for hardware that does.

#![forbid(unsafe_code)]

mod arithmetic;
mod device;
mod execution;
pub mod extension;
mod fibonacci;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod program;
mod queue;
mod unit;
mod value;

pub use device::{ARITHMETIC, EVERYTHING, FIBONACCI, QUEUE};

use nnhal_device::Needs;
use nnhal_driver::{Daemon, DeviceEntry, DeviceRegistry};

/// The driver: its devices, in a daemon of the driver library.
#[must_use]
pub fn daemon() -> Daemon {
    let entry = |name, create| DeviceEntry {
        name,
        create,
        by_default: true,
        needs: Needs::NONE,
    };
    let arithmetic = DeviceEntry {
        needs: device::NEEDS,
        ..entry(ARITHMETIC, device::create_arithmetic)
    };
    let registry = DeviceRegistry::new()
        .with(entry(FIBONACCI, device::create_fibonacci))
        .with(arithmetic)
        .with(entry(EVERYTHING, device::create_everything))
        .with(entry(QUEUE, device::create_queue));
    Daemon::new(registry).named("vendor-driver", env!("CARGO_PKG_VERSION"))
}
