//! Runs of devices that compute by themselves: submitted, waited for by a fence, collected.
//!
//! A run keeps its thread and its slot while the device computes. It counts as running for the watchdog,
//! which sees no progress before the fence comes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use nnhal::fence::{Fence, FenceError, FenceState};
use nnhal_device::{Control, Execution, Interruption, QueuedExecution};
use nnhal_hal::{ErrorStatus, Failure};
use nnhal_os::time::Deadline;
use nnhal_os::{SysError, eventfd, poll};

use crate::scheduler::Ticket;

/// How a queued run has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// How long the hardware was busy, if the device tells.
    pub(super) outcome: Result<Option<Duration>, Failure>,
    /// Whether the device may still compute, with nobody to tell when it is done.
    pub(super) is_lost: bool,
}

/// Submits an execution whose inputs were given, and waits until the device is done with it.
#[cold]
pub(super) fn run(execution: &mut dyn Execution, ticket: &Ticket, control: &Control<'_>) -> Ended {
    let ended = |outcome| Ended {
        outcome,
        is_lost: false,
    };
    let (fd, cancellation) = match submit(execution, ticket, control) {
        Ok(submitted) => submitted,
        Err(failure) => {
            execution.unbind_inputs();
            return ended(Err(failure));
        }
    };
    let Some(execution) = execution.queued() else {
        return ended(Err(no_queue()));
    };
    let waited = Fence::from_fd(fd).and_then(|fence| {
        let work = (ticket, cancellation);
        wait(&fence, execution, work, control.deadline())
    });
    match waited {
        Ok(Waited::Done) => ended(execution.collect()),
        Ok(Waited::Failed) => ended(execution.collect().and_then(|_| Err(failed()))),
        Ok(Waited::Interrupted(interruption)) => {
            // The device has ended it somehow: what came of it is not wanted.
            let _ = execution.collect();
            ended(Err(interruption.into()))
        }
        Err(error) => {
            execution.cancel();
            Ended {
                outcome: Err(no_fence(&error)),
                is_lost: true,
            }
        }
    }
}

/// Returns the device's fence, and what becomes readable when the work is cancelled.
fn submit<'a>(
    execution: &mut dyn Execution,
    ticket: &'a Ticket,
    control: &Control<'_>,
) -> Result<(OwnedFd, &'a OwnedFd), Failure> {
    let execution = execution.queued().ok_or_else(no_queue)?;
    // What is cancelled after the checkpoint is told by the event. What an earlier call has left there goes.
    let cancellation = ticket.cancellation().map_err(no_event)?;
    eventfd::drain(cancellation).map_err(no_event)?;
    control.checkpoint()?;
    Ok((execution.submit(control)?, cancellation))
}

/// How a wait has ended. The device is done with the execution in each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Done,
    /// The fence says that the work has failed.
    Failed,
    /// The device was asked to end it.
    Interrupted(Interruption),
}

/// Waits for the device. When the deadline passes or the work is cancelled it asks the device to end, and
/// waits on: the watchdog ends that wait if need be.
fn wait(
    fence: &Fence,
    execution: &mut dyn QueuedExecution,
    (ticket, cancellation): (&Ticket, &OwnedFd),
    deadline: Deadline,
) -> Result<Waited, FenceError> {
    loop {
        let mut fds = [fence.as_fd(), cancellation.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let ready = poll::wait(&mut fds, deadline)?;
        match fence.state()? {
            FenceState::Signalled => return Ok(Waited::Done),
            FenceState::Failed => return Ok(Waited::Failed),
            FenceState::Pending => {}
        }
        // Before the look at the work: whoever cancels it says so there first.
        eventfd::drain(cancellation)?;
        let interruption = if ticket.is_cancelled() {
            Interruption::Cancelled
        } else if ready == 0 {
            Interruption::DeadlineMissed
        } else {
            continue;
        };
        execution.cancel();
        fence.wait(Deadline::NONE)?;
        return Ok(Waited::Interrupted(interruption));
    }
}

fn failed() -> Failure {
    Failure::general("the device's fence has failed, and the device does not say why")
}

fn no_fence(error: &FenceError) -> Failure {
    Failure::general(match error {
        FenceError::System(error) => format!("the driver cannot wait for the device: {error}"),
        error => format!("the device gave a fence that cannot be waited for: {error}"),
    })
}

fn no_event(error: SysError) -> Failure {
    let detail = format!("there is no event to cancel the execution by: {error}");
    Failure::new(ErrorStatus::ResourceExhaustedTransient, detail)
}

fn no_queue() -> Failure {
    Failure::general("the device computes by itself, but this execution of it has no queue")
}

/// What is said of an execution that the device may still compute.
pub(super) fn lost() -> Failure {
    Failure::general(
        "the device may still compute an earlier execution, whose fence could not be waited for, and there \
         is no memory for another",
    )
}
