//! Events: ends of executions, and fences.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use nnhal_client::runtime::RunEvent;
use nnhal_client::{Deadline, Fence, FenceState};

use crate::execution::Execution;
use crate::result::{Failure, Outcome};

/// What is behind an `ANeuralNetworksEvent`.
#[derive(Debug)]
pub(crate) enum Event {
    /// The end of an execution that a thread of this process runs.
    Run(Arc<Run>),
    /// The end of an execution that goes on behind fences in its driver.
    Fenced {
        execution: Arc<Execution>,
        event: RunEvent,
    },
    /// What another process, or another library, will signal.
    Fence(Fence),
}

/// An execution that a thread of this process runs.
#[derive(Debug, Default)]
pub(crate) struct Run {
    outcome: Mutex<Option<Outcome>>,
    ended: Condvar,
    /// Signalled with its end, if it was started with dependencies.
    pub(crate) fence: Option<Fence>,
}

impl Run {
    pub(crate) fn with_fence(fence: Fence) -> Run {
        Run {
            fence: Some(fence),
            ..Run::default()
        }
    }

    pub(crate) fn end(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.ended.notify_all();
    }

    fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            // The thread that runs it ends it in any case.
            outcome = self.ended.wait(outcome).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Event {
    /// Waits for the end and gives the execution's own outcome; any number of times.
    pub(crate) fn wait(&self) -> Outcome {
        match self {
            Event::Run(run) => run.wait(),
            Event::Fenced { execution, event } => execution.await_fenced(event),
            Event::Fence(fence) => {
                let state = fence.wait(Deadline::NONE).map_err(|error| {
                    Failure::op_failed(format!("the fence cannot be waited for: {error}"))
                })?;
                match state {
                    FenceState::Signalled => Ok(()),
                    _ => Err(Failure::op_failed("the fence was signalled with an error")),
                }
            }
        }
    }

    /// The fence that tells its end, if it has one.
    pub(crate) fn fence(&self) -> Outcome<Option<&Fence>> {
        match self {
            Event::Run(run) => Ok(run.fence.as_ref()),
            Event::Fenced { event, .. } => Ok(event.fence()?),
            Event::Fence(fence) => Ok(Some(fence)),
        }
    }

    /// A descriptor of the fence, for the caller to keep.
    pub(crate) fn fence_fd(&self) -> Outcome<OwnedFd> {
        let fence = self.fence()?.ok_or_else(|| {
            Failure::bad_data(
                "the event has no fence: it is the end of an execution that was started without dependencies, or that \
                 had ended when its start returned",
            )
        })?;
        fence
            .try_clone_fd()
            .map_err(|error| Failure::op_failed(format!("the fence cannot be duplicated: {error}")))
    }
}
