//! What a device of an older version tells of an execution: HAL `IExecutionCallback`.

use std::sync::mpsc::{self, SyncSender};

use nnhal_hal::versions::v1_0::ErrorStatus;
use nnhal_hal::{OutputShape, Timing};

use super::awaited::Awaited;

/// What came of an execution of HAL 1.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// How it ended.
    pub status: ErrorStatus,
    /// With `NONE` and `OUTPUT_INSUFFICIENT_SIZE` one for each output, 0 where an extent could not be
    /// determined; may be empty with `NONE` if model and request gave all dimensions. Empty with any other
    /// status.
    pub output_shapes: Vec<OutputShape>,
    /// [`Timing::NONE`] unless it was asked for.
    pub timing: Timing,
}

impl Executed {
    /// An execution that failed.
    #[must_use]
    pub fn failed(status: ErrorStatus) -> Executed {
        Executed {
            status,
            output_shapes: Vec::new(),
            timing: Timing::NONE,
        }
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

pub(super) fn executing() -> (ExecutionCallback, Awaited<Told>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (ExecutionCallback { sender }, Awaited(receiver))
}
