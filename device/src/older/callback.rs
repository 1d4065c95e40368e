//! What a device of an older version tells the driver: HAL `IPreparedModelCallback` and `IExecutionCallback`.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};

use nnhal_hal::versions::v1_0::ErrorStatus;
use nnhal_hal::{OutputShape, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::v1_2::Executed;
use super::{v1_0, v1_2};

/// A prepared model of a device of an older version.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    V1_0(Arc<dyn v1_0::PreparedModel>),
    V1_2(Arc<dyn v1_2::PreparedModel>),
}

/// HAL `IPreparedModelCallback`. A device may notify in the form of either version, whichever method it was
/// given to.
#[derive(Debug)]
pub struct PreparedModelCallback {
    sender: SyncSender<Result<Prepared, ErrorStatus>>,
}

impl PreparedModelCallback {
    /// HAL `notify`: the prepared model, or why there is none.
    pub fn notify(self, outcome: Result<Arc<dyn v1_0::PreparedModel>, ErrorStatus>) {
        self.send(outcome.map(Prepared::V1_0));
    }

    /// HAL `notify_1_2`: the prepared model, or why there is none.
    pub fn notify_1_2(self, outcome: Result<Arc<dyn v1_2::PreparedModel>, ErrorStatus>) {
        self.send(outcome.map(Prepared::V1_2));
    }

    fn send(&self, outcome: Result<Prepared, ErrorStatus>) {
        // Nobody waits any more if the deadline has passed.
        let _ = self.sender.try_send(outcome);
    }
}

/// What was told of an execution: shapes and timing only in the form of 1.2.
#[derive(Debug)]
pub(super) enum Told {
    V1_0(ErrorStatus),
    V1_2(Executed),
}

/// HAL `IExecutionCallback`. A device may notify in the form of either version, whichever method it was given
/// to.
#[derive(Debug)]
pub struct ExecutionCallback {
    sender: SyncSender<Told>,
}

impl ExecutionCallback {
    /// HAL `notify`: how the execution ended.
    pub fn notify(self, status: ErrorStatus) {
        self.send(Told::V1_0(status));
    }

    /// HAL `notify_1_2`: how the execution ended, as in [`Executed`].
    pub fn notify_1_2(self, status: ErrorStatus, output_shapes: Vec<OutputShape>, timing: Timing) {
        self.send(Told::V1_2(Executed {
            status,
            output_shapes,
            timing,
        }));
    }

    fn send(&self, told: Told) {
        // Nobody waits any more if the deadline has passed.
        let _ = self.sender.try_send(told);
    }
}

/// The driver's side of a callback.
#[derive(Debug)]
pub(super) struct Awaited<T>(Receiver<T>);

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

pub(super) fn preparing() -> (PreparedModelCallback, Awaited<Result<Prepared, ErrorStatus>>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (PreparedModelCallback { sender }, Awaited(receiver))
}

pub(super) fn executing() -> (ExecutionCallback, Awaited<Told>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (ExecutionCallback { sender }, Awaited(receiver))
}
