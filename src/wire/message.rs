//! What a driver says to a client.

use nnhal_hal::{DeviceInfo, DeviceStatus, ErrorStatus, Failure, OperationSupport, OutputShape, Timing};

use super::{BufferHandle, BurstHandle, ExecutionHandle, FenceHandle, MemoryHandle, PreparedModelHandle};

/// The driver's first words, once the versions are agreed on. Descriptors: a pidfd of the worker, if
/// [`Welcome::has_pidfd`].
#[derive(Clone, Debug, PartialEq)]
pub struct Welcome {
    /// The device.
    pub device: DeviceInfo,
    /// The process that serves this connection.
    pub worker_pid: u32,
    /// The process that accepted it; it may be gone by now.
    pub supervisor_pid: u32,
    /// Whether a pidfd of the worker comes along.
    pub has_pidfd: bool,
}

/// A message from the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The answer to a call.
    Reply {
        /// The id of the call.
        id: u64,
        /// The answer.
        result: Result<Reply, Failure>,
    },
    /// What a call that was launched has come to. Comes after its reply, once.
    Event {
        /// The id of the call.
        id: u64,
        /// What happened.
        event: Event,
    },
    /// The worker is about to end the connection, and why.
    Goodbye {
        /// Why.
        reason: String,
    },
    /// The worker is dead; the last message of a connection.
    WorkerExit(WorkerExit),
}

/// The answer to a call that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Nothing more to say.
    Done,
    /// Answers [`super::Call::GetStatus`].
    Status(DeviceStatus),
    /// Answers [`super::Call::GetSupportedOperations`]: one for each operation of the main graph.
    SupportedOperations(Vec<OperationSupport>),
    /// The call's event follows.
    Launched,
    /// Answers [`super::Call::RegisterMemory`].
    Memory(MemoryHandle),
    /// Answers [`super::Call::RegisterFence`].
    Fence(FenceHandle),
    /// Answers [`super::Call::Allocate`].
    Allocated(Allocated),
    /// Answers [`super::Call::Execute`] in its synchronous form.
    Executed(ExecutionResult),
    /// Answers [`super::Call::ExecuteFenced`]. Descriptor: the fence, if [`FenceStarted::has_fence`].
    Fenced(FenceStarted),
    /// Answers [`super::Call::GetExecutionInfo`].
    ExecutionInfo(ExecutionInfo),
    /// Answers [`super::Call::ConfigureBurst`].
    Burst(BurstHandle),
    /// Answers [`super::Call::GetBurstFence`]. Descriptor: the fence, if `has_fence`.
    BurstFence {
        /// Whether a fence comes along; without one the request has ended, and its result is in the ring or
        /// will be at once.
        has_fence: bool,
    },
}

impl Reply {
    /// How many descriptors travel beside the reply.
    #[must_use]
    pub fn fd_count(&self) -> usize {
        match self {
            Reply::Fenced(started) => usize::from(started.has_fence),
            Reply::BurstFence { has_fence } => usize::from(*has_fence),
            Reply::Done
            | Reply::Status(_)
            | Reply::SupportedOperations(_)
            | Reply::Launched
            | Reply::Memory(_)
            | Reply::Fence(_)
            | Reply::Allocated(_)
            | Reply::Executed(_)
            | Reply::ExecutionInfo(_)
            | Reply::Burst(_) => 0,
        }
    }
}

impl Message {
    /// How many descriptors travel beside the message.
    #[must_use]
    pub fn fd_count(&self) -> usize {
        match self {
            Message::Reply {
                result: Ok(reply), ..
            } => reply.fd_count(),
            Message::Reply { result: Err(_), .. }
            | Message::Event { .. }
            | Message::Goodbye { .. }
            | Message::WorkerExit(_) => 0,
        }
    }
}

/// What a call that was launched has come to.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Of [`super::Call::PrepareModel`] and [`super::Call::PrepareModelFromCache`].
    Prepared(Result<PreparedModelHandle, Failure>),
    /// Of [`super::Call::Execute`] in its asynchronous form.
    Executed(ExecutionResult),
}

/// A device buffer that was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Names it for copies and for its release.
    pub buffer: BufferHandle,
    /// Names it in requests; above 0.
    pub token: u32,
}

/// A fenced execution that was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceStarted {
    /// Names it, to ask for its outcome.
    pub execution: ExecutionHandle,
    /// Whether a fence comes along; without one the execution has ended already.
    pub has_fence: bool,
}

/// The outcome of a fenced execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionInfo {
    /// How it ended.
    pub result: Result<(), Failure>,
    /// Times since the call.
    pub timing_launched: Timing,
    /// Times since the last fence it waited for signalled.
    pub timing_fenced: Timing,
}

/// How an execution ended. As the HAL has it: no timing unless it succeeded and was asked for, no shapes
/// unless it succeeded or an output was too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionResult {
    /// Success, or what went wrong.
    pub outcome: Result<(), Failure>,
    /// One for each output; may be empty on success if all were fully specified.
    pub output_shapes: Vec<OutputShape>,
    /// How long it took.
    pub timing: Timing,
}

impl ExecutionResult {
    /// An execution that came to nothing: no shapes, no timing.
    #[must_use]
    pub fn failed(failure: Failure) -> ExecutionResult {
        ExecutionResult {
            outcome: Err(failure),
            output_shapes: Vec::new(),
            timing: Timing::NONE,
        }
    }

    /// The HAL's status.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        self.outcome
            .as_ref()
            .err()
            .map_or(ErrorStatus::None, |failure| failure.status)
    }
}

/// How a worker ended, told by the supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerExit {
    /// The worker's process id.
    pub worker_pid: u32,
    /// How it ended.
    pub cause: CauseOfDeath,
    /// What the worker itself had noted last, such as the watchdog's reason; may be empty.
    pub last_words: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseOfDeath {
    /// It ended itself with this code.
    Exited {
        /// The exit code.
        code: i32,
    },
    /// A signal ended it.
    Killed {
        /// The signal's number.
        signal: i32,
        /// Whether it left a core dump.
        core_dumped: bool,
    },
}

impl std::fmt::Display for CauseOfDeath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            CauseOfDeath::Exited { code } => write!(f, "exited with code {code}"),
            CauseOfDeath::Killed { signal, core_dumped } => {
                match nix::sys::signal::Signal::try_from(signal) {
                    Ok(name @ nix::sys::signal::Signal::SIGSYS) => {
                        write!(
                            f,
                            "was killed by {name}, for a system call that its jail does not allow"
                        )?;
                    }
                    Ok(name) => write!(f, "was killed by {name}")?,
                    Err(_) => write!(f, "was killed by signal {signal}")?,
                }
                if core_dumped {
                    f.write_str(" (core dumped)")
                } else {
                    Ok(())
                }
            }
        }
    }
}

impl std::fmt::Display for WorkerExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the driver's worker, process {}, {}",
            self.worker_pid, self.cause
        )?;
        if self.last_words.is_empty() {
            Ok(())
        } else {
            write!(f, ": {}", self.last_words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_exit_names_the_signal_and_the_last_words() {
        let worker_exit = WorkerExit {
            worker_pid: 12,
            cause: CauseOfDeath::Killed {
                signal: 11,
                core_dumped: false,
            },
            last_words: String::new(),
        };
        assert_eq!(
            worker_exit.to_string(),
            "the driver's worker, process 12, was killed by SIGSEGV"
        );
        let worker_exit = WorkerExit {
            cause: CauseOfDeath::Exited { code: 70 },
            last_words: "CONV_2D hung".into(),
            ..worker_exit
        };
        assert_eq!(
            worker_exit.to_string(),
            "the driver's worker, process 12, exited with code 70: CONV_2D hung"
        );
    }
}
