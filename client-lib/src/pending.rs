//! Executions and preparations that go on after the call: waiting for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use nnhal::wire::{Call, Event, ExecutionForm};
use nnhal_hal::ExecutionPreference;
use nnhal_os::time::Deadline;

use crate::connection::pending::PendingCall;
use crate::connection::{Connection, Link};
use crate::error::Result;
use crate::execution::{Completed, ExecuteOptions, completed};
use crate::model::{ArgumentTypes, Model};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::ring_execution::RingExecution;

impl PreparedModel {
    /// HAL `execute`: launches an execution, whose end is awaited, waited for, or told to a callback.
    ///
    /// From the second execution on this goes by rings, as [`PreparedModel::execute`] does.
    ///
    /// # Errors
    /// What is wrong with the request; other errors are the outcome of the execution.
    pub fn start(&self, request: &Request, options: &ExecuteOptions) -> Result<PendingExecution> {
        match self.start_by_ring(request, options)? {
            Some(execution) => Ok(PendingExecution {
                way: Way::Ring(execution),
            }),
            None => self.start_by_message(request, options),
        }
    }

    fn start_by_message(&self, request: &Request, options: &ExecuteOptions) -> Result<PendingExecution> {
        let deadline = options.wait_deadline();
        let call = Call::Execute(self.call(request, options, ExecutionForm::Asynchronous, deadline)?);
        // Holds the memories until the execution has ended, even if nobody waits for that.
        let keep = Some(Box::new(request.clone()) as Box<_>);
        Ok(PendingExecution {
            way: Way::Message {
                pending: self.link().launch(call, &[], keep, deadline)?,
                model: self.clone(),
            },
        })
    }
}

/// An execution that was launched, HAL `execute` with its callback. Await it, wait for it, or have a callback
/// called.
///
/// Dropping it gives it up: the driver is asked to end it early. Its memories stay alive until it has ended.
#[derive(Debug)]
#[must_use = "an execution that nobody waits for is given up"]
pub struct PendingExecution {
    way: Way,
}

/// How its result comes.
#[derive(Debug)]
enum Way {
    Ring(RingExecution),
    Message {
        pending: PendingCall,
        // Keeps the connection.
        model: PreparedModel,
    },
}

impl PendingExecution {
    /// Waits for the end. After [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) it can be waited for
    /// again.
    ///
    /// # Errors
    /// As [`PreparedModel::execute`].
    pub fn wait(&mut self, deadline: Deadline) -> Result<Completed> {
        match &mut self.way {
            Way::Ring(execution) => execution.wait(deadline),
            Way::Message { pending, model } => of_event(model.link(), pending.wait(deadline)?),
        }
    }

    /// Has `callback` called with the outcome, on a thread of this library for callbacks, which it may hold
    /// up and from which it may call this library.
    ///
    /// # Errors
    /// The thread cannot be started; the execution is given up then.
    pub fn on_end(self, callback: impl FnOnce(Result<Completed>) + Send + 'static) -> Result<()> {
        match self.way {
            Way::Ring(execution) => execution.on_end(Box::new(callback)),
            Way::Message { pending, model } => pending.on_end(Box::new(move |event| {
                callback(event.and_then(|event| of_event(model.link(), event)));
            })),
        }
    }

    /// Asks the driver to end it early. It ends in any case, possibly with success.
    pub fn cancel(&self) {
        match &self.way {
            Way::Ring(execution) => execution.cancel(),
            Way::Message { pending, .. } => pending.cancel(),
        }
    }
}

impl Future for PendingExecution {
    type Output = Result<Completed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Completed>> {
        match &mut self.way {
            Way::Ring(execution) => execution.poll(context),
            Way::Message { pending, model } => pending
                .poll(context)
                .map(|event| event.and_then(|event| of_event(model.link(), event))),
        }
    }
}

fn of_event(link: &Link, event: Event) -> Result<Completed> {
    match event {
        Event::Executed(result) => completed(link, "Execute", result),
        other @ Event::Prepared(_) => Err(link.misplaced("Execute", &other)),
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

    /// Waits for the end. After [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) it can be waited for
    /// again.
    ///
    /// # Errors
    /// As [`crate::Device::prepare`].
    pub fn wait(&mut self, deadline: Deadline) -> Result<PreparedModel> {
        let event = self.pending.wait(deadline)?;
        self.prepared(event)
    }

    /// Has `callback` called with the prepared model or the error, on a thread of this library for callbacks,
    /// which it may hold up and from which it may call this library.
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
        other @ Event::Executed(_) => Err(link.misplaced("PrepareModel", &other)),
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
