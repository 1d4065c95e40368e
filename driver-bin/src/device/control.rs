//! The way from the driver into work that a device does.

use std::fmt;
use std::time::Duration;

use nnhal::diag::trace::Tracer;
use nnhal::wire::Failure;
use nnhal_cpu::Cores;
use nnhal_hal::ErrorStatus;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::scheduler::Ticket;
use crate::trace;

/// Why work shall end before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The deadline has passed.
    #[error("the deadline passed before the work was done")]
    DeadlineMissed,
    /// The client gave it up, or is gone.
    #[error("the work was cancelled")]
    Cancelled,
}

impl From<Interruption> for Failure {
    fn from(interruption: Interruption) -> Failure {
        let status = match interruption {
            // The same work may be in time when less is going on.
            Interruption::DeadlineMissed => ErrorStatus::MissedDeadlineTransient,
            Interruption::Cancelled => ErrorStatus::GeneralFailure,
        };
        Failure::new(status, interruption.to_string())
    }
}

/// What a piece of work must heed while it runs.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    ticket: &'a Ticket,
    deadline: Deadline,
    loop_timeout: Duration,
    is_measured: bool,
}

impl<'a> Control<'a> {
    pub(crate) fn new(ticket: &'a Ticket, deadline: Deadline, loop_timeout: Duration) -> Control<'a> {
        Control {
            ticket,
            deadline,
            loop_timeout,
            is_measured: false,
        }
    }

    /// The same, for work that is to be measured or not.
    pub(crate) fn measured(self, is_measured: bool) -> Control<'a> {
        Control { is_measured, ..self }
    }

    /// To be called between operations, at least every few milliseconds where that is possible. Blocks while work of
    /// higher priority goes first.
    ///
    /// # Errors
    ///
    /// The work shall end now, with the error as its result.
    #[inline]
    pub fn checkpoint(&self) -> Result<(), Interruption> {
        self.ticket.checkpoint(self.deadline)?;
        if !self.deadline.is_none() && self.deadline.is_past(MonotonicClock.now()) {
            return Err(Interruption::DeadlineMissed);
        }
        Ok(())
    }

    /// When the work must be done, for devices that can tell their hardware.
    #[must_use]
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Where the client that this is done for wants spans of time recorded, if it does: what a device tells of its
    /// operations here stands in the client's trace.
    #[must_use]
    pub fn tracer(&self) -> Option<&'static Tracer> {
        trace::tracer()
    }

    /// The processors that the work may compute on, for devices that compute with several threads: they count themselves
    /// and their helpers there, so that all clients together have no more threads than there are processors.
    #[must_use]
    pub fn cores(&self) -> &'a dyn Cores {
        self.ticket.cores()
    }

    /// Whether somebody wants to know how long the work takes, for devices where measuring costs something.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The longest that any one WHILE may take.
    #[must_use]
    pub fn loop_timeout(&self) -> Duration {
        self.loop_timeout
    }
}

impl fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("deadline", &self.deadline)
            .field("loop_timeout", &self.loop_timeout)
            .finish_non_exhaustive()
    }
}
