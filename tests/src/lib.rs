//! Help for tests across processes: a daemon of one's own, a client that speaks the protocol by hand, models.
//!
//! Nothing here leaves anything behind: dropping a [`TestDaemon`] ends the daemon and its workers and removes
//! its directory, also when the test fails.

#![forbid(unsafe_code)]

mod daemon;
pub mod escape;
mod guards;
pub mod hostile_driver;
mod models;
mod neighbour;
pub mod older_device;
mod process;
mod raw_client;
mod scripts;
pub mod vts_cases;

pub use daemon::{DaemonOptions, TestDaemon};
pub use guards::{KillOnDrop, SetOnDrop};
pub use models::{add_execution, add_model, endless_loop, request_in_one_memory, shared_floats};
pub use neighbour::{Neighbour, execution};
pub use process::{
    Activity, activities_of, anonymous_bytes, burst_thread_ids, burst_threads, children_of, fds_of, group_of,
    is_alive, memory_numbers, private_bytes, shared_bytes, shared_mappings, thread_heaps, wait_until,
};
pub use raw_client::RawClient;
pub use scripts::write_script;

/// How long anything may take before a test gives up on it: far above what it takes on a loaded machine.
pub const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
