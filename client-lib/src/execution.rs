//! Executions: how to run them, waiting for them, and what they give.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use nnhal::wire::{Event, ExecutionResult, Failure};
use nnhal_hal::{ErrorStatus, ExecutionPreference, MeasureTiming, OutputShape, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::connection::{Connection, Link, PendingCall};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;
use crate::prepared_model::{ArgumentTypes, PreparedModel};

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

    /// The longest that this process waits for the answer; without it, until there is one or the worker ends. When it
    /// is over, the driver is asked to end the execution early; its outputs may be written all the same.
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

/// Splits the outcome of an execution as the HAL does: what the driver answered, a failure with a status included,
/// and what is no answer at all.
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

/// The result as the driver gave it, held to the rules of the HAL: no shapes and no timing unless the status allows
/// them, and shapes where the status demands them.
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

/// An execution that was launched, HAL `execute` with its callback. Await it, wait for it, or have a callback called.
///
/// Dropping it gives it up: the driver is asked to end it early. Its memories stay alive until it has ended.
#[derive(Debug)]
#[must_use = "an execution that nobody waits for is given up"]
pub struct PendingExecution {
    pending: PendingCall,
    // Keeps the connection.
    model: PreparedModel,
}

impl PendingExecution {
    pub(crate) fn new(pending: PendingCall, model: &PreparedModel) -> PendingExecution {
        PendingExecution {
            pending,
            model: model.clone(),
        }
    }

    /// Waits for the end. After [`ErrorKind::TimedOut`] it can be waited for again.
    ///
    /// # Errors
    /// As [`PreparedModel::execute`].
    pub fn wait(&mut self, deadline: Deadline) -> Result<Completed> {
        let event = self.pending.wait(deadline)?;
        of_event(self.model.link(), event)
    }

    /// Has `callback` called with the outcome, on a thread of this library for callbacks, which it may hold up and
    /// from which it may call this library.
    ///
    /// # Errors
    /// The thread cannot be started; the execution is given up then.
    pub fn on_end(self, callback: impl FnOnce(Result<Completed>) + Send + 'static) -> Result<()> {
        let model = self.model;
        self.pending.on_end(Box::new(move |event| {
            callback(event.and_then(|event| of_event(model.link(), event)));
        }))
    }

    /// Asks the driver to end it early. It ends in any case, possibly with success.
    pub fn cancel(&self) {
        self.pending.cancel();
    }
}

impl Future for PendingExecution {
    type Output = Result<Completed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Completed>> {
        let this = &mut *self;
        this.pending
            .poll(context)
            .map(|event| event.and_then(|event| of_event(this.model.link(), event)))
    }
}

fn of_event(link: &Link, event: Event) -> Result<Completed> {
    match event {
        Event::Executed(result) => completed(link, "Execute", result),
        other => Err(link.misplaced("Execute", &other)),
    }
}

/// A model that is being prepared. Await it or wait for it. Dropping it gives it up.
#[derive(Debug)]
#[must_use = "a preparation that nobody waits for is given up"]
pub struct PendingPrepare {
    pending: PendingCall,
    connection: Arc<Connection>,
    types: Option<ArgumentTypes>,
    preference: ExecutionPreference,
}

impl PendingPrepare {
    pub(crate) fn new(
        pending: PendingCall,
        connection: &Arc<Connection>,
        model: Option<&Model>,
        preference: ExecutionPreference,
    ) -> PendingPrepare {
        PendingPrepare {
            pending,
            connection: Arc::clone(connection),
            types: model.map(|model| ArgumentTypes::of(model, connection.device())),
            preference,
        }
    }

    /// Waits for the end. After [`ErrorKind::TimedOut`] it can be waited for again.
    ///
    /// # Errors
    /// As [`crate::Device::prepare`].
    pub fn wait(&mut self, deadline: Deadline) -> Result<PreparedModel> {
        let event = self.pending.wait(deadline)?;
        self.prepared(event)
    }

    /// Has `callback` called with the prepared model or the error, on a thread of this library for callbacks, which it
    /// may hold up and from which it may call this library.
    ///
    /// # Errors
    /// The thread cannot be started; the preparation is given up then.
    pub fn on_end(self, callback: impl FnOnce(Result<PreparedModel>) + Send + 'static) -> Result<()> {
        let PendingPrepare {
            pending,
            connection,
            types,
            preference,
        } = self;
        pending.on_end(Box::new(move |event| {
            callback(event.and_then(|event| prepared(&connection, types, preference, event)));
        }))
    }

    fn prepared(&mut self, event: Event) -> Result<PreparedModel> {
        prepared(&self.connection, self.types.take(), self.preference, event)
    }
}

fn prepared(
    connection: &Arc<Connection>,
    types: Option<ArgumentTypes>,
    preference: ExecutionPreference,
    event: Event,
) -> Result<PreparedModel> {
    let link = connection.link();
    match event {
        Event::Prepared(Ok(handle)) => Ok(PreparedModel::new(connection, handle, types, preference)),
        Event::Prepared(Err(failure)) => Err(link.status("PrepareModel", failure, Vec::new())),
        other => Err(link.misplaced("PrepareModel", &other)),
    }
}

impl Future for PendingPrepare {
    type Output = Result<PreparedModel>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<PreparedModel>> {
        let this = &mut *self;
        this.pending
            .poll(context)
            .map(|event| event.and_then(|event| this.prepared(event)))
    }
}

/// The error of a call that is made with objects of two connections.
pub(crate) fn wrong_connection(what: &str) -> Error {
    ErrorKind::Argument {
        message: format!(
            "{what} belongs to another connection; all objects of a call must come from one device handle"
        ),
    }
    .into()
}
