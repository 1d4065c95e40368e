//! The driver side of nnhal: what a vendor implements, and everything that makes a daemon of it.
//!
//! A vendor implements [`device::Device`], registers it in a [`DeviceRegistry`], and calls [`Daemon::run`]
//! from `main`:
//!
//! ```no_run
//! use nnhal_driver::{Daemon, DeviceRegistry};
//!
//! fn main() -> std::process::ExitCode {
//!     Daemon::new(DeviceRegistry::of_nnhal()).run(std::env::args_os().skip(1))
//! }
//! ```
//!
//! The HAL's types, the results of validation that a device gets, and what its spans are recorded with are
//! re-exported: a vendor needs this library alone. `examples/vendor-driver` is such a driver.
//!
//! The daemon is a supervisor and one worker process for each client; both are this same binary. See
//! [`supervisor`] and the module documentation of [`device`] for what each may rely on.

#![forbid(unsafe_code)]

pub mod cache;
mod cores;
mod daemon;
pub mod device;
mod jail;
mod link;
mod scheduler;
pub mod settings;
pub mod supervisor;
mod trace;
mod weights;
mod worker;

pub use daemon::Daemon;
pub use device::DeviceRegistry;
pub use nnhal::diag;
pub use nnhal::wire::{Failure, OperationSupport, Place};
pub use nnhal_hal as hal;
pub use nnhal_hal::validate;
pub use nnhal_os::time;
