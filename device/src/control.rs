//! The way from the driver into work that a device does.

use std::fmt;
use std::time::Duration;

use nnhal_hal::{ErrorStatus, Failure, OperationType};
use nnhal_os::cores::{Cores, OwnCores};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

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

/// A piece of work as the driver knows it. Devices see it through [`Control`].
pub trait Work: Sync {
    /// Blocks while work of higher priority goes first, but not beyond the deadline. The deadline of work
    /// that nothing blocks is looked at by [`Control::checkpoint`].
    ///
    /// # Errors
    ///
    /// The work shall end now.
    fn checkpoint(&self, deadline: Deadline) -> Result<(), Interruption>;

    /// The processors for the threads of the work.
    fn cores(&self) -> &dyn Cores;

    /// Whether anybody wants to know how long each operation takes.
    fn is_traced(&self) -> bool;

    /// Notes how long an operation took: its index in its graph, its type, when it began and ended.
    fn record_operation(&self, index: usize, operation: OperationType, from_to: (TimePoint, TimePoint));
}

/// Work that nobody interrupts and that has one processor, for a device's own tests.
#[derive(Debug)]
pub struct Undisturbed(OwnCores);

impl Undisturbed {
    /// Such work.
    #[must_use]
    pub fn new() -> Undisturbed {
        Undisturbed(OwnCores::new(1))
    }
}

impl Default for Undisturbed {
    fn default() -> Undisturbed {
        Undisturbed::new()
    }
}

impl Work for Undisturbed {
    fn checkpoint(&self, _: Deadline) -> Result<(), Interruption> {
        Ok(())
    }

    fn cores(&self) -> &dyn Cores {
        &self.0
    }

    fn is_traced(&self) -> bool {
        false
    }

    fn record_operation(&self, _: usize, _: OperationType, _: (TimePoint, TimePoint)) {}
}

/// What a piece of work must heed while it runs.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    work: &'a dyn Work,
    deadline: Deadline,
    loop_timeout: Duration,
    is_measured: bool,
}

impl<'a> Control<'a> {
    /// That of work which must be done by `deadline`, and whose WHILEs may take `loop_timeout` each.
    #[must_use]
    pub fn new(work: &'a dyn Work, deadline: Deadline, loop_timeout: Duration) -> Control<'a> {
        Control {
            work,
            deadline,
            loop_timeout,
            is_measured: false,
        }
    }

    /// The same, for work that is to be measured or not.
    #[must_use]
    pub fn measured(self, is_measured: bool) -> Control<'a> {
        Control { is_measured, ..self }
    }

    /// To be called between operations, and where that is possible after 200 us of work within one. Blocks
    /// while work of higher priority goes first. Work of low priority also yields its processor here.
    ///
    /// # Errors
    ///
    /// The work shall end now, with the error as its result.
    #[inline]
    pub fn checkpoint(&self) -> Result<(), Interruption> {
        self.work.checkpoint(self.deadline)?;
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

    /// Whether the client that this is done for wants to know how long each operation takes. A device that
    /// can tell calls [`Control::record_operation`] then, and what it tells stands in the client's trace.
    #[must_use]
    #[inline]
    pub fn is_traced(&self) -> bool {
        self.work.is_traced()
    }

    /// Tells how long an operation took: its index in its graph, its type, when it began and ended.
    pub fn record_operation(&self, index: usize, operation: OperationType, from_to: (TimePoint, TimePoint)) {
        self.work.record_operation(index, operation, from_to);
    }

    /// The processors that the work may compute on, for devices that compute with several threads: they count
    /// themselves and their helpers there, so that all clients together have no more threads than there are
    /// processors.
    #[must_use]
    pub fn cores(&self) -> &'a dyn Cores {
        self.work.cores()
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
