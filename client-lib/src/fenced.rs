//! Fenced executions: HAL `executeFenced`.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use nnhal::fence::{Fence, FenceState};
use nnhal::wire::{
    self, Call, ExecuteFenced, ExecutionHandle, FenceArgument, FenceHandle, FencedLimits, Object, Reply,
};
use nnhal_hal::Timing;
use nnhal_os::socket::MAX_FDS;
use nnhal_os::time::Deadline;

use crate::connection::{Connection, EndListener, Link};
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{ExecuteOptions, nanoseconds};
use crate::prepared_model::PreparedModel;
use crate::request::Request;

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
    handle: ExecutionHandle,
    fence: Option<Fence>,
    /// Holds the memories.
    _request: Request,
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
    /// # Errors
    /// `INVALID_ARGUMENT` for what is wrong with the request or the fences, one of which may have failed
    /// already.
    pub fn execute_fenced(
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
        let inner = Arc::new(Inner {
            connection: Arc::clone(connection),
            handle: started.execution,
            fence,
            _request: request.clone(),
        });
        if inner.fence.is_some() {
            let listener: Weak<dyn EndListener> = Arc::downgrade(&inner) as _;
            link.on_end(listener);
        }
        Ok(FencedExecution { inner })
    }
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
            WaitFor::Execution(execution) if Arc::ptr_eq(&execution.inner.connection, self.connection) => {
                let handle = execution.inner.handle;
                self.arguments.push(FenceArgument::Execution(handle));
                return Ok(());
            }
            WaitFor::Execution(execution) => match &execution.inner.fence {
                Some(fence) => fence,
                None => return Ok(()),
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
    #[must_use]
    pub fn fence(&self) -> Option<&Fence> {
        self.inner.fence.as_ref()
    }

    /// Waits for the end and tells the outcome.
    ///
    /// # Errors
    /// The status of the execution; [`ErrorKind::TimedOut`], after which it can be waited for again.
    pub fn wait(&self, deadline: Deadline) -> Result<FencedTiming> {
        const CALL: &str = "ExecuteFenced";
        let link = self.inner.connection.link();
        link.check_process()?;
        if let Some(fence) = &self.inner.fence {
            let state = fence
                .wait(link.timeouts().work_deadline(deadline))
                .map_err(|error| link.misplaced(CALL, &error))?;
            if state == FenceState::Pending {
                return Err(ErrorKind::TimedOut {
                    call: CALL,
                    process: link.worker(),
                }
                .into());
            }
        }
        self.info()
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
        self.inner.fence.as_ref().is_none_or(|fence| {
            matches!(
                fence.wait(timeouts.work_deadline(deadline)),
                Ok(FenceState::Signalled | FenceState::Failed)
            )
        })
    }

    /// HAL `getExecutionInfo`: the outcome of an execution that has ended.
    ///
    /// # Errors
    /// The status of the execution; `GENERAL_FAILURE` if it has not ended yet.
    pub fn info(&self) -> Result<FencedTiming> {
        let link = self.inner.connection.link();
        let call = Call::GetExecutionInfo {
            execution: self.inner.handle,
        };
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

    fn failed(&self, failure: nnhal_hal::Failure) -> Error {
        self.inner
            .connection
            .link()
            .status("ExecuteFenced", failure, Vec::new())
    }
}

impl EndListener for Inner {
    /// Nobody else will signal it, and others wait for it.
    fn connection_ended(&self) -> Option<Fence> {
        self.fence.clone()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection.link().release(Object::Execution(self.handle));
    }
}
