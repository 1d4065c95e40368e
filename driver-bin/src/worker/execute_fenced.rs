//! Launching fenced executions.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nnhal::fence::{Fence, FenceError, FenceState};
use nnhal::wire::{ExecuteFenced, FenceArgument, FenceStarted, Reply};
use nnhal_hal::{ErrorStatus, Failure};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch};

use super::calls::OpenCall;
use super::client::Client;
use super::execute::check;
use super::fenced::{Fenced, WaitsFor};
use super::limits::RunLimits;

/// HAL `executeFenced`. Returns the execution if it waits for fences that the main thread must poll, or for a
/// time limit that it must keep.
pub(crate) fn execute_fenced(
    client: &Arc<Client>,
    call: OpenCall,
    arguments: ExecuteFenced,
    fds: Vec<OwnedFd>,
    fence_timeout: Option<Duration>,
) -> Option<Arc<Fenced>> {
    let id = call.id();
    match launch(client, call, arguments, fds, fence_timeout) {
        Ok((fenced, reply, fd)) => {
            client.outbox.reply_with(id, Reply::Fenced(reply), Some(fd));
            fenced.begin_if_ready();
            fenced.waits_for().is_some().then_some(fenced)
        }
        Err(failure) => {
            client.outbox.reply(id, Err(failure));
            None
        }
    }
}

fn launch(
    client: &Arc<Client>,
    call: OpenCall,
    arguments: ExecuteFenced,
    fds: Vec<OwnedFd>,
    fence_timeout: Option<Duration>,
) -> Result<(Arc<Fenced>, FenceStarted, OwnedFd), Failure> {
    let launched = Stopwatch::start();
    let ExecuteFenced {
        prepared_model,
        request,
        wait_for,
        measure,
        limits,
    } = arguments;
    let Awaited { fences, executions } = awaited(client, &wait_for, fds)?;
    let job = check(client, prepared_model, request)?;
    job.check_fenced()?;
    let run_limits = RunLimits::from_hal(limits.deadline_ns, limits.loop_timeout_ns);
    run_limits.check_not_past()?;
    let (source, fence) = Fence::create().map_err(|error| fence_failure(&error))?;
    let fd = fence.try_clone_fd().map_err(|error| fence_failure(&error))?;
    let fence_deadline = fence_timeout.map_or(Deadline::NONE, |limit| {
        Deadline::after(MonotonicClock.now(), limit)
    });
    let fenced = Fenced::new(
        &client.pool,
        (launched, measure),
        (run_limits, limits.duration_ns.map(Duration::from_nanos)),
        (job, call),
        WaitsFor {
            fences,
            executions: executions.len(),
            until: run_limits.deadline.earlier(fence_deadline),
        },
        source,
    );
    let handle = client.add_fenced(Arc::clone(&fenced))?;
    fenced.let_be_cancelled();
    for execution in executions {
        execution.tell_at_end(&fenced);
    }
    Ok((
        fenced,
        FenceStarted {
            execution: handle,
            has_fence: true,
        },
        fd,
    ))
}

/// What an execution waits for.
struct Awaited {
    fences: Vec<Fence>,
    executions: Vec<Arc<Fenced>>,
}

fn awaited(client: &Client, arguments: &[FenceArgument], fds: Vec<OwnedFd>) -> Result<Awaited, Failure> {
    let mut fds = fds.into_iter();
    // One that is named many times is waited for once.
    let (mut known, mut known_executions) = (HashSet::new(), HashSet::new());
    let mut awaited = Awaited {
        fences: Vec::new(),
        executions: Vec::new(),
    };
    for (index, argument) in arguments.iter().enumerate() {
        let invalid = |reason: String| Failure::invalid_argument(format!("fence {index}: {reason}"));
        let fence = match *argument {
            FenceArgument::Attached { fds: 1 } => {
                Fence::from_handle(fds.next()).map_err(|error| invalid(error.to_string()))?
            }
            FenceArgument::Attached { fds } => {
                return Err(invalid(format!(
                    "its handle has {fds} descriptors instead of one"
                )));
            }
            FenceArgument::Registered(handle) => client.fence(handle)?,
            FenceArgument::Execution(handle) => {
                if known_executions.insert(handle) {
                    awaited.executions.push(client.fenced(handle)?);
                }
                continue;
            }
        };
        match fence.state().map_err(|error| invalid(error.to_string()))? {
            FenceState::Failed => return Err(invalid("it has failed already".to_owned())),
            FenceState::Pending if known.insert(fence.as_fd().as_raw_fd()) => awaited.fences.push(fence),
            FenceState::Signalled | FenceState::Pending => {}
        }
    }
    Ok(awaited)
}

fn fence_failure(error: &FenceError) -> Failure {
    Failure::new(ErrorStatus::ResourceExhaustedTransient, error.to_string())
}
