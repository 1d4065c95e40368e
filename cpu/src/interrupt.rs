//! Stopping a preparation or an execution from outside.

use nnhal_hal::ErrorStatus;

/// Asked whether to go on: before every step of a preparation and every operation of an execution, between
/// the blocks of large operations, and now and then inside operations whose cost grows faster than their
/// operands. An implementation may also block here: an execution suspended for another of higher priority
/// keeps its state.
pub trait Interrupt {
    /// Whether to stop now.
    fn check(&self) -> Result<(), Interrupted>;
}

/// Why an execution was stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interrupted {
    /// Its deadline passed.
    #[error("the deadline passed during the execution")]
    DeadlineMissed,
    /// Nobody waits for the result any more.
    #[error("the execution was cancelled")]
    Cancelled,
}

impl Interrupted {
    /// The HAL status for it.
    #[must_use]
    pub fn status(self) -> ErrorStatus {
        match self {
            // The same work may be in time when less is going on.
            Interrupted::DeadlineMissed => ErrorStatus::MissedDeadlineTransient,
            Interrupted::Cancelled => ErrorStatus::GeneralFailure,
        }
    }
}

/// An [`Interrupt`] that never asks to stop.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverInterrupted;

impl Interrupt for NeverInterrupted {
    fn check(&self) -> Result<(), Interrupted> {
        Ok(())
    }
}
