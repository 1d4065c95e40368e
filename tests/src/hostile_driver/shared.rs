//! What the threads of the driver have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// How long it waits for anything: far longer than its clients do.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn soon() -> Deadline {
    Deadline::after(MonotonicClock.now(), TIMEOUT)
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Of the next connection.
    pub(super) seed: AtomicU64,
    /// How many connections are welcomed truly before the first that may not be.
    pub(super) true_welcomes: AtomicU64,
    /// Messages that were spoilt, and states of rings that no driver makes.
    pub(super) spoilt: AtomicU64,
    /// How often a client was found asleep, to be woken wrongly or not at all.
    pub(super) found_asleep: AtomicU64,
    pub(super) is_over: AtomicBool,
}

impl Shared {
    /// Counts one that was spoilt.
    pub(super) fn count(&self) {
        self.spoilt.fetch_add(1, Ordering::Relaxed);
    }
}
