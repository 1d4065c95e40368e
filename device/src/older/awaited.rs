//! Waiting for a callback to be notified.

use std::sync::mpsc::{Receiver, RecvTimeoutError};

use nnhal_os::time::{Clock, Deadline, MonotonicClock};

/// The driver's side of a callback.
#[derive(Debug)]
pub(super) struct Awaited<T>(pub(super) Receiver<T>);

/// Why a callback was not notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The deadline passed.
    TooLate,
    /// The device dropped it.
    Dropped,
}

impl<T> Awaited<T> {
    pub(super) fn wait(&self, deadline: Deadline) -> Result<T, Silence> {
        let Some(remaining) = deadline.remaining(MonotonicClock.now()) else {
            return self.0.recv().map_err(|_| Silence::Dropped);
        };
        self.0.recv_timeout(remaining).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::TooLate,
            RecvTimeoutError::Disconnected => Silence::Dropped,
        })
    }
}
