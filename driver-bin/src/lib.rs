//! The driver side of nnhal: everything that makes a daemon of devices.
//!
//! A vendor implements [`nnhal_device::Device`], registers it in a [`DeviceRegistry`], and calls
//! [`Daemon::run`] from `main`:
//!
//! ```no_run
//! use nnhal_driver::{Daemon, DeviceRegistry};
//!
//! fn main() -> std::process::ExitCode {
//!     Daemon::new(DeviceRegistry::of_nnhal()).run(std::env::args_os().skip(1))
//! }
//! ```
//!
//! `examples/vendor-driver` is such a driver.
//!
//! The daemon is a supervisor and one worker process for each client; both are this same binary. See
//! [`supervisor`] and the documentation of [`nnhal_device`] for what each may rely on.

#![forbid(unsafe_code)]

mod cache;
mod cores;
mod daemon;
pub mod device;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod jail;
mod link;
mod log;
mod processors;
mod scheduler;
pub mod settings;
pub mod supervisor;
mod trace;
mod usage;
mod weights;
mod worker;

pub use daemon::Daemon;
pub use device::registry::{CreateDevice, DeviceEntry, DeviceRegistry};
