//! Executions: how to run them, and what they give.

use std::time::Duration;

use nnhal::wire::ExecutionResult;
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, OutputShape, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::connection::Link;
use crate::error::Result;

/// The name of the call of fenced executions in messages of errors.
pub(crate) const FENCED: &str = "ExecuteFenced";

/// How to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecuteOptions {
    pub(crate) measure: MeasureTiming,
    pub(crate) deadline: Deadline,
    pub(crate) loop_timeout: Option<Duration>,
    pub(crate) duration: Option<Duration>,
    wait: Option<Duration>,
}

impl ExecuteOptions {
    /// No measuring, no deadline, the HAL's default time for loops.
    #[must_use]
    pub fn new() -> ExecuteOptions {
        ExecuteOptions::default()
    }

    /// Measures how long it takes: [`Completed::timing`].
    #[must_use]
    pub fn measure_timing(mut self) -> ExecuteOptions {
        self.measure = MeasureTiming::Yes;
        self
    }

    /// When the driver shall give up, with `MISSED_DEADLINE_*`.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> ExecuteOptions {
        self.deadline = deadline;
        self
    }

    /// As [`ExecuteOptions::deadline`], that long after this call.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> ExecuteOptions {
        self.deadline(Deadline::after(MonotonicClock.now(), timeout))
    }

    /// The longest that any one WHILE may take; 2 seconds if not set, at most 15.
    #[must_use]
    pub fn loop_timeout(mut self, timeout: Duration) -> ExecuteOptions {
        self.loop_timeout = Some(timeout);
        self
    }

    /// For fenced executions: the longest that it may take once everything it waits for is done.
    #[must_use]
    pub fn duration_after_fences(mut self, duration: Duration) -> ExecuteOptions {
        self.duration = Some(duration);
        self
    }

    /// The longest that this process waits for the answer; without it, for as long as
    /// [`DevicesOptions::work_timeout`](crate::DevicesOptions::work_timeout) says, or until the worker ends.
    /// When it is over, the driver is asked to end the execution early; its outputs may be written all the
    /// same. A burst that tells its worker of a memory for the first time waits for that up to a minute
    /// besides.
    #[must_use]
    pub fn wait_at_most(mut self, duration: Duration) -> ExecuteOptions {
        self.wait = Some(duration);
        self
    }

    /// The deadline; [`Deadline::NONE`] if there is none.
    #[must_use]
    pub fn due(&self) -> Deadline {
        self.deadline
    }

    /// Whether a ring can say all of it, and nobody gives the wait up.
    #[inline]
    pub(crate) fn suit_rings(&self) -> bool {
        self.loop_timeout.is_none() && self.wait.is_none()
    }

    #[inline]
    pub(crate) fn wait_deadline(&self) -> Deadline {
        match self.wait {
            None => Deadline::NONE,
            Some(wait) => Deadline::after(MonotonicClock.now(), wait),
        }
    }

    /// The same for what begins now, after its fences: how long it may take is a deadline then.
    #[cfg(feature = "runtime")]
    #[must_use]
    pub(crate) fn after_fences(mut self) -> ExecuteOptions {
        if let Some(duration) = self.duration.take() {
            let own = Deadline::after(MonotonicClock.now(), duration);
            self.deadline = self.deadline.earlier(own);
        }
        self
    }

    pub(crate) fn loop_timeout_ns(&self) -> Option<u64> {
        self.loop_timeout.map(nanoseconds)
    }
}

/// A duration as the HAL counts it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What a successful execution reports beside its outputs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Completed {
    /// The dimensions of each output; may be empty if the model and the request fix them all.
    pub output_shapes: Vec<OutputShape>,
    /// How long it took, if [`ExecuteOptions::measure_timing`] asked for it.
    pub timing: Timing,
}

impl From<Completed> for ExecutionResult {
    fn from(completed: Completed) -> ExecutionResult {
        ExecutionResult {
            outcome: Ok(()),
            output_shapes: completed.output_shapes,
            timing: completed.timing,
        }
    }
}

/// Splits the outcome of an execution as the HAL does: what the driver answered, a failure with a status
/// included, and what is no answer at all.
///
/// # Errors
/// Every error that is no status from the driver.
pub fn execution_result(outcome: Result<Completed>) -> Result<ExecutionResult> {
    match outcome {
        Ok(completed) => Ok(completed.into()),
        Err(error) => match error.failure() {
            Some(failure) => Ok(ExecutionResult {
                outcome: Err(failure.clone()),
                output_shapes: error.output_shapes().to_vec(),
                timing: Timing::NONE,
            }),
            None => Err(error),
        },
    }
}

/// Whether the execution may go on, or may never have begun: what came is no answer of the driver, and it was
/// not an argument that was found wrong, before anything is sent or after the end.
pub(crate) fn is_given_up(result: &Result<Completed>) -> bool {
    matches!(result, Err(error) if error.failure().is_none() && !error.is_argument())
}

/// The result as the driver gave it, held to the rules of the HAL: no shapes and no timing unless the status
/// allows them, and shapes where the status demands them.
pub(crate) fn completed(link: &Link, call: &'static str, result: ExecutionResult) -> Result<Completed> {
    match result.outcome {
        Ok(()) => {
            let is_insufficient = result.output_shapes.iter().any(|shape| !shape.is_sufficient);
            if is_insufficient {
                return Err(link.misplaced(call, &"success with an output that was too small"));
            }
            Ok(Completed {
                output_shapes: result.output_shapes,
                timing: result.timing,
            })
        }
        Err(failure) if failure.status == ErrorStatus::OutputInsufficientSize => {
            if result.output_shapes.is_empty() {
                let detail = format!(
                    "an output is too small, and the driver does not say which: {}",
                    failure.detail
                );
                return Err(link.status(call, Failure::general(detail), Vec::new()));
            }
            Err(link.status(call, failure, result.output_shapes))
        }
        Err(failure) => Err(link.status(call, failure, Vec::new())),
    }
}
