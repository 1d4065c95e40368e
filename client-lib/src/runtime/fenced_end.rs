//! How executions behind fences end: waiting for it, what is reported then, and doing them once more.

use std::borrow::Borrow;

use nnhal::fence::{Fence, FenceState};
use nnhal_hal::{ErrorStatus, Timing};
use nnhal_os::time::Deadline;

use super::arguments::BoundArguments;
use super::compilation::Compilation;
use super::computed::Finished;
use super::result::{RuntimeError, RuntimeResult};
use crate::execution::ExecuteOptions;
use crate::fenced::{FencedExecution, FencedTiming};

impl Compilation {
    /// Whether an execution that a driver failed at after its launch is done once more.
    pub(super) fn is_repeatable(&self, error: &RuntimeError) -> bool {
        // Of a step whose worker died, those behind it are told as a failure.
        self.policy().attempts > 0 && (error.is_connection_lost() || self.has_lost_step())
    }

    /// The outcome of a fenced execution that failed after its launch: what doing it once more gives, if its
    /// worker died and the application wants that. What it waits for is done.
    pub(super) fn after_death(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        error: RuntimeError,
    ) -> RuntimeResult<Finished> {
        if !self.is_repeatable(&error) {
            return Err(error);
        }
        self.revive(placed)?;
        self.run(placed, &options.after_fences(), self.policy().may_outlive_death)
    }

    /// What a fenced execution reports at its end.
    pub(super) fn fenced_end(&self, placed: &BoundArguments, timing: FencedTiming) -> Finished {
        let outputs = self.outputs().iter().zip(&placed.outputs);
        let shapes = outputs.map(|(ty, location)| location.known_shape(ty));
        Finished {
            output_shapes: shapes.collect(),
            // Of several steps, the last one's time says nothing of the whole.
            timing: if self.plan().steps.len() == 1 {
                timing.launched
            } else {
                Timing::NONE
            },
            fallback: None,
        }
    }
}

/// Waits until no driver executes any of these any more, whatever came of them.
///
/// # Errors
/// [`super::ResultCode::MissedDeadlineTransient`] if one goes on at the deadline.
pub(super) fn expect_ended(launched: &[FencedExecution], deadline: Deadline) -> RuntimeResult<()> {
    let mut launched = launched.iter();
    if launched.all(|execution| execution.wait_for_end(deadline)) {
        return Ok(());
    }
    Err(RuntimeError::with_status(
        ErrorStatus::MissedDeadlineTransient,
        "a step that was launched has not ended, and may still write to the memory of outputs",
    ))
}

/// Waits for fences in this process.
pub(super) fn wait_for_fences<F: Borrow<Fence>>(fences: &[F], deadline: Deadline) -> RuntimeResult<()> {
    for fence in fences.iter().map(Borrow::borrow) {
        let state = fence
            .wait(deadline)
            .map_err(|error| RuntimeError::failed(format!("a fence cannot be waited for: {error}")))?;
        match state {
            FenceState::Signalled => {}
            FenceState::Pending => {
                return Err(RuntimeError::with_status(
                    ErrorStatus::MissedDeadlineTransient,
                    "a fence that the execution waits for was not signalled by its deadline",
                ));
            }
            FenceState::Failed => {
                return Err(RuntimeError::failed(
                    "a fence that the execution waits for failed",
                ));
            }
        }
    }
    Ok(())
}
