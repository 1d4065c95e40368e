//! Fenced executions: HAL `executeFenced`.
//!
//! Those that wait for nothing, or for one another on one ring, go by rings, and have no descriptor until
//! somebody asks for one. The others go by messages, with a descriptor each.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};

use nnhal::fence::{Fence, FenceError, FenceState};
use nnhal::wire::{
    self, Call, ExecuteFenced, ExecutionHandle, FenceArgument, FenceHandle, FencedLimits, Object, Reply,
};
use nnhal_hal::{Failure, Timing};
use nnhal_os::socket::MAX_FDS;
use nnhal_os::time::Deadline;

use crate::connection::{Connection, EndListener, Link};
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{ExecuteOptions, FENCED, nanoseconds};
use crate::executors::Started;
use crate::fenced_ring::RingFenced;
use crate::prepared_model::PreparedModel;
use crate::request::Request;

/// The name of the call for a fence of an execution on a ring.
const GET_FENCE: &str = "GetBurstFence";

/// Something that a fenced execution waits for before it starts.
#[derive(Clone, Copy, Debug)]
pub enum WaitFor<'a> {
    /// A fence of any process, or anything else that polls readable when it is done.
    Fence(&'a Fence),
    /// Another fenced execution. If both run in the same worker no kernel is involved, and a failure of the
    /// one is a failure of the other at once.
    Execution(&'a FencedExecution),
}

/// A fenced execution that was launched. Clones are handles on the same execution, which goes on without
/// them.
#[derive(Clone, Debug)]
pub struct FencedExecution {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Arc<Connection>,
    way: Way,
    /// There from the start if it goes by a message and had not ended; on a ring, once it was asked for.
    fence: OnceLock<Fence>,
}

/// How it was sent.
#[derive(Debug)]
enum Way {
    Ring(RingFenced),
    Message {
        handle: ExecutionHandle,
        /// Holds the memories.
        _request: Request,
    },
}

/// How long a fenced execution took, in microseconds; `u64::MAX` where it was not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FencedTiming {
    /// From the call to the signal.
    pub launched: Timing,
    /// From the last signal that it waited for to its own.
    pub fenced: Timing,
}

impl PreparedModel {
    /// HAL `executeFenced`: launches an execution that starts when everything in `wait_for` is done, and
    /// whose end is a fence that any process can wait for. All output dimensions must be known.
    ///
    /// From the second execution on one that waits for nothing goes by rings, as [`PreparedModel::execute`]
    /// does, and so do executions of one model that wait for the one before.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for what is wrong with the request or the fences, one of which may have failed
    /// already.
    pub fn execute_fenced(
        &self,
        request: &Request,
        wait_for: &[WaitFor<'_>],
        options: &ExecuteOptions,
    ) -> Result<FencedExecution> {
        if let Some(rings) = on_rings(wait_for)
            && let Some(execution) = self.start_fenced_by_ring(request, &rings, options)?
        {
            return Ok(FencedExecution {
                inner: Arc::new(Inner {
                    connection: Arc::clone(self.connection()),
                    way: Way::Ring(execution),
                    fence: OnceLock::new(),
                }),
            });
        }
        self.execute_fenced_by_message(request, wait_for, options)
    }

    fn execute_fenced_by_message(
        &self,
        request: &Request,
        wait_for: &[WaitFor<'_>],
        options: &ExecuteOptions,
    ) -> Result<FencedExecution> {
        let connection = self.connection();
        let deadline = options
            .wait_deadline()
            .earlier(connection.link().timeouts().call_deadline());
        let mut fences = Fences::new(connection);
        for wait_for in wait_for {
            fences.add(*wait_for)?;
        }
        let Fences {
            arguments: wait_for,
            fds,
            registered: _registered,
            ..
        } = fences;
        let call = Call::ExecuteFenced(ExecuteFenced {
            prepared_model: self.handle_on(connection)?,
            request: request.on_wire(connection, deadline)?,
            wait_for,
            measure: options.measure,
            limits: FencedLimits {
                deadline_ns: options.deadline.to_hal(),
                loop_timeout_ns: options.loop_timeout_ns(),
                duration_ns: options.duration.map(nanoseconds),
            },
        });
        let (name, link) = (call.name(), connection.link());
        let (started, mut fds) = match link.call_by(call, &fds, deadline)? {
            (Reply::Fenced(started), fds) => (started, fds),
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        let fence = fds.pop().map(Fence::from_fd).transpose();
        let fence = fence.map_err(|error| link.misplaced(name, &error))?;
        let execution = FencedExecution {
            inner: Arc::new(Inner {
                connection: Arc::clone(connection),
                way: Way::Message {
                    handle: started.execution,
                    _request: request.clone(),
                },
                fence: OnceLock::new(),
            }),
        };
        if let Some(fence) = fence {
            execution.keep(fence);
        }
        Ok(execution)
    }
}

/// What an execution waits for, if all of it was sent on rings and none is known to have failed.
fn on_rings<'a>(wait_for: &[WaitFor<'a>]) -> Option<Vec<&'a RingFenced>> {
    let on_ring = |wait_for: &WaitFor<'a>| match wait_for {
        WaitFor::Execution(FencedExecution { inner }) => match &inner.way {
            Way::Ring(execution) if !matches!(execution.outcome(), Some(Err(_))) => Some(execution),
            _ => None,
        },
        WaitFor::Fence(_) => None,
    };
    wait_for.iter().map(on_ring).collect()
}

/// What an execution waits for, as its call names it.
struct Fences<'a> {
    connection: &'a Arc<Connection>,
    arguments: Vec<FenceArgument>,
    /// The fences that travel with the call, as many as one message takes.
    fds: Vec<BorrowedFd<'a>>,
    /// The others.
    registered: RegisteredFences<'a>,
}

/// Fences that the worker was told before the call, until it has been made.
struct RegisteredFences<'a> {
    link: &'a Link,
    handles: Vec<FenceHandle>,
}

impl Drop for RegisteredFences<'_> {
    fn drop(&mut self) {
        // Many may go at once: each release waits for its answer, so that none is lost in a full socket.
        let deadline = self.link.timeouts().call_deadline();
        for handle in self.handles.drain(..) {
            let object = Object::Fence(handle);
            let _ = self.link.call_by(Call::Release { object }, &[], deadline);
        }
    }
}

impl<'a> Fences<'a> {
    fn new(connection: &'a Arc<Connection>) -> Fences<'a> {
        Fences {
            connection,
            arguments: Vec::new(),
            fds: Vec::new(),
            registered: RegisteredFences {
                link: connection.link(),
                handles: Vec::new(),
            },
        }
    }

    /// Adds something to wait for, unless it is known to be done.
    fn add(&mut self, wait_for: WaitFor<'a>) -> Result<()> {
        let fence = match wait_for {
            WaitFor::Fence(fence) => fence,
            WaitFor::Execution(execution) => match &execution.inner.way {
                Way::Message { handle, .. } if Arc::ptr_eq(&execution.inner.connection, self.connection) => {
                    self.arguments.push(FenceArgument::Execution(*handle));
                    return Ok(());
                }
                Way::Ring(execution) if matches!(execution.outcome(), Some(Ok(_))) => return Ok(()),
                _ => match execution.fence()? {
                    Some(fence) => fence,
                    None => return Ok(()),
                },
            },
        };
        if self.fds.len() < MAX_FDS {
            self.fds.push(fence.as_fd());
            self.arguments.push(FenceArgument::Attached { fds: 1 });
            return Ok(());
        }
        let link: &'a Link = self.connection.link();
        let name = Call::RegisterFence.name();
        let handle = match link.call(Call::RegisterFence, &[fence.as_fd()])? {
            (Reply::Fence(handle), _) => handle,
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        self.registered.handles.push(handle);
        self.arguments.push(FenceArgument::Registered(handle));
        Ok(())
    }
}

impl FencedExecution {
    /// The fence that is signalled when the execution has ended, for this process or, by its descriptor, for
    /// others. `None` if it had ended before the call returned. If the worker dies the fence fails.
    ///
    /// # Errors
    /// The driver or this process has no room for another descriptor, or the driver does not answer.
    pub fn fence(&self) -> Result<Option<&Fence>> {
        match (self.inner.fence.get(), &self.inner.way) {
            (Some(fence), _) => Ok(Some(fence)),
            (None, Way::Message { .. }) => Ok(None),
            (None, Way::Ring(execution)) => {
                let fence = self.inner.fence_of(execution)?;
                Ok(Some(self.keep(fence)))
            }
        }
    }

    /// Keeps its fence, which fails with the connection. If it has one, that stays.
    fn keep(&self, fence: Fence) -> &Fence {
        let mut is_new = false;
        let fence = self.inner.fence.get_or_init(|| {
            is_new = true;
            fence
        });
        if is_new {
            let listener: Weak<dyn EndListener> = Arc::downgrade(&self.inner) as _;
            self.inner.connection.link().on_end(listener);
        }
        fence
    }

    /// Waits for the end and tells the outcome.
    ///
    /// # Errors
    /// The status of the execution; [`ErrorKind::TimedOut`], after which it can be waited for again.
    pub fn wait(&self, deadline: Deadline) -> Result<FencedTiming> {
        let link = self.inner.connection.link();
        link.check_process()?;
        let handle = match &self.inner.way {
            Way::Ring(execution) => return execution.wait(deadline).map(on_ring),
            Way::Message { handle, .. } => *handle,
        };
        if let Some(fence) = self.inner.fence.get() {
            let state = fence
                .wait(link.timeouts().work_deadline(deadline))
                .map_err(|error| link.misplaced(FENCED, &error))?;
            if state == FenceState::Pending {
                return Err(ErrorKind::TimedOut {
                    call: FENCED,
                    process: link.worker(),
                }
                .into());
            }
        }
        self.inner.info(handle)
    }

    /// By when its driver answers what needs no computing.
    #[cfg(feature = "runtime")]
    pub(crate) fn call_deadline(&self) -> Deadline {
        self.inner.connection.link().timeouts().call_deadline()
    }

    /// Waits until its driver has done with it, whatever the outcome, and tells whether it has by `deadline`.
    #[cfg(feature = "runtime")]
    pub(crate) fn wait_for_end(&self, deadline: Deadline) -> bool {
        let timeouts = self.inner.connection.link().timeouts();
        match (&self.inner.way, self.inner.fence.get()) {
            (Way::Ring(execution), _) => match execution.wait(deadline) {
                Ok(_) => true,
                Err(error) => !matches!(error.kind(), ErrorKind::TimedOut { .. }),
            },
            (Way::Message { .. }, None) => true,
            (Way::Message { .. }, Some(fence)) => matches!(
                fence.wait(timeouts.work_deadline(deadline)),
                Ok(FenceState::Signalled | FenceState::Failed)
            ),
        }
    }

    /// HAL `getExecutionInfo`: the outcome of an execution that has ended.
    ///
    /// # Errors
    /// The status of the execution; `GENERAL_FAILURE` if it has not ended yet.
    pub fn info(&self) -> Result<FencedTiming> {
        let execution = match &self.inner.way {
            Way::Ring(execution) => execution,
            Way::Message { handle, .. } => return self.inner.info(*handle),
        };
        match execution.look() {
            Some(outcome) => outcome.map(on_ring),
            None => {
                let failure = Failure::general("the execution has not ended; wait for its fence first");
                Err(self.inner.failed(failure))
            }
        }
    }
}

/// The times of an execution that has waited for nothing.
fn on_ring(timing: Timing) -> FencedTiming {
    FencedTiming {
        launched: timing,
        fenced: timing,
    }
}

impl Inner {
    fn info(&self, handle: ExecutionHandle) -> Result<FencedTiming> {
        let link = self.connection.link();
        let call = Call::GetExecutionInfo { execution: handle };
        let name = call.name();
        let info: wire::ExecutionInfo = match link.call(call, &[])? {
            (Reply::ExecutionInfo(info), _) => info,
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        match info.result {
            Ok(()) => Ok(FencedTiming {
                launched: info.timing_launched,
                fenced: info.timing_fenced,
            }),
            Err(failure) => Err(self.failed(failure)),
        }
    }

    fn failed(&self, failure: Failure) -> Error {
        self.connection.link().status(FENCED, failure, Vec::new())
    }

    /// A fence of an execution on a ring: the driver's while it goes on, and one of this process's own once
    /// it is known how it has ended.
    fn fence_of(&self, execution: &RingFenced) -> Result<Fence> {
        if execution.outcome().is_none() {
            match self.fence_by_message(execution) {
                Ok(Some(fence)) => return Ok(fence),
                // It has ended, and its result is there or comes at once.
                Ok(None) => drop(execution.wait(self.connection.link().timeouts().call_deadline())),
                // Another thread may have received its result meanwhile, or it has ended with the worker.
                Err(error) => {
                    execution.look();
                    if execution.outcome().is_none() {
                        return Err(error);
                    }
                }
            }
        }
        let link = self.connection.link();
        let is_good = match execution.outcome() {
            Some(outcome) => outcome.is_ok(),
            None => return Err(link.misplaced(GET_FENCE, &"the end of an execution without its result")),
        };
        let made = Fence::create().and_then(|(source, fence)| {
            match is_good {
                true => source.signal()?,
                false => source.fail()?,
            }
            Ok(fence)
        });
        made.map_err(|error| match error {
            FenceError::System(error) => Error::system("make a fence")(error),
            error => Error::argument(error.to_string()),
        })
    }

    fn fence_by_message(&self, execution: &RingFenced) -> Result<Option<Fence>> {
        let link = self.connection.link();
        let Started { burst, sequence } = execution.started;
        let call = Call::GetBurstFence { burst, sequence };
        let mut fds = match link.call(call, &[])? {
            (Reply::BurstFence { .. }, fds) => fds,
            (other, _) => return Err(link.misplaced(GET_FENCE, &other)),
        };
        let fence = fds.pop().map(Fence::from_fd).transpose();
        fence.map_err(|error| link.misplaced(GET_FENCE, &error))
    }
}

impl EndListener for Inner {
    /// Nobody else will signal it, and others wait for it.
    fn connection_ended(&self) -> Option<Fence> {
        self.fence.get().cloned()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Way::Message { handle, .. } = self.way {
            self.connection.link().release(Object::Execution(handle));
        }
    }
}
