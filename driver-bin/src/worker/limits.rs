//! How long work may take.

use std::time::Duration;

use nnhal_hal::{ErrorStatus, Failure, loop_timeout};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

/// When a run must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunLimits {
    pub(crate) deadline: Deadline,
    pub(crate) loop_timeout: Duration,
    /// When the work could have begun on an idle device. Known if there is a deadline; the others need no
    /// clock.
    pub(crate) arrival: TimePoint,
}

impl RunLimits {
    /// From what a call that arrives now says: no deadline and the default for loops if it says nothing.
    pub(crate) fn from_hal(deadline_ns: Option<u64>, loop_timeout_ns: Option<u64>) -> RunLimits {
        let loop_timeout = loop_timeout_ns.map_or(loop_timeout::DEFAULT, Duration::from_nanos);
        let deadline = Deadline::from_hal(deadline_ns);
        RunLimits {
            deadline,
            loop_timeout: loop_timeout.min(loop_timeout::MAXIMUM),
            arrival: if deadline.is_none() {
                TimePoint::EPOCH
            } else {
                MonotonicClock.now()
            },
        }
    }

    /// What is said to a call that was too late when it arrived: it would have been, however idle the device.
    #[inline]
    pub(crate) fn check_not_past(&self) -> Result<(), Failure> {
        if self.deadline.is_past(self.arrival) {
            return Err(Failure::new(
                ErrorStatus::MissedDeadlinePersistent,
                "the deadline had passed when the request arrived",
            ));
        }
        Ok(())
    }
}
