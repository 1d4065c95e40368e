//! What a device of an older version tells of preparing: HAL `IPreparedModelCallback`.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};

use nnhal_hal::versions::v1_0::ErrorStatus;

use super::awaited::Awaited;
use super::prepared_model::{v1_0, v1_2};

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

pub(super) fn preparing() -> (PreparedModelCallback, Awaited<Result<Prepared, ErrorStatus>>) {
    let (sender, receiver) = mpsc::sync_channel(1);
    (PreparedModelCallback { sender }, Awaited(receiver))
}
