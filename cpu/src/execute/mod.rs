//! Runs a plan, node by node.
//!
//! An [`Execution`] holds the memory of one run at a time and is used again and again: once its buffers have
//! grown to what the model needs, running allocates nothing. Buffers of temporaries go back to a pool after
//! their last reader; those of declared sizes can be taken before the first run (`reserve`).

mod choice;
mod control_flow;
mod frame;
mod inputs;
mod nodes;
mod reserve;
mod run;
mod shapes;

pub use run::Execution;

use std::time::Duration;

use nnhal_hal::{ErrorStatus, OperationType, SubgraphIndex};
use nnhal_os::buffer::OutOfMemory;
use nnhal_os::time::TimePoint;

use crate::interrupt::{Interrupt, Interrupted, NeverInterrupted};
use crate::kernel::KernelError;
use crate::threads::Threads;

/// Told of each operation when it has ended, but for those that were computed beforehand. What it is told of
/// IF and WHILE includes the operations inside, of which it is told before. Of operations that are computed
/// together the first takes all the time and the others none.
pub trait Observer {
    /// An operation has been computed.
    fn operation_ended(&self, observed: &ObservedOperation);
}

/// An operation that was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedOperation {
    /// The graph that it is in.
    pub graph: SubgraphIndex,
    /// Its place there.
    pub index: usize,
    /// What it is.
    pub operation: OperationType,
    /// When it began.
    pub started: TimePoint,
    /// When it ended.
    pub ended: TimePoint,
}

/// How to run.
#[derive(Clone, Copy)]
pub struct RunOptions<'a> {
    /// Asked before every operation, once for those that are computed together, and inside some.
    pub interrupt: &'a dyn Interrupt,
    /// How long each WHILE may take, from before its first condition.
    pub loop_timeout: Duration,
    /// Told of every operation, if somebody wants to know; then the clock is read twice for each.
    pub observer: Option<&'a dyn Observer>,
    /// What to compute with.
    pub threads: Threads<'a>,
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions")
            .field("loop_timeout", &self.loop_timeout)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Default for RunOptions<'_> {
    fn default() -> Self {
        RunOptions {
            interrupt: &NeverInterrupted,
            loop_timeout: nnhal_hal::loop_timeout::DEFAULT,
            observer: None,
            threads: Threads::ALONE,
        }
    }
}

/// Why an execution gave no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExecutionError {
    /// An operation failed.
    #[error("operation {index} ({operation}) of the {graph}: {error}")]
    Operation {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation in the graph.
        index: usize,
        /// The operation.
        operation: OperationType,
        /// What went wrong.
        error: KernelError,
    },
    /// An input of the main graph was not given, or not as it must be.
    #[error("model input {index}: {message}")]
    Input {
        /// Index of the input.
        index: usize,
        /// What was wrong, and what would be right.
        message: String,
    },
    /// There is not enough memory for an input of the main graph.
    #[error("model input {index}: {source}")]
    InputMemory {
        /// Index of the input.
        index: usize,
        /// What was asked for.
        source: OutOfMemory,
    },
    /// A WHILE ran longer than its time limit.
    #[error("operation {index} (WHILE) of the {graph} ran longer than its limit of {limit:?}")]
    LoopTimeout {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation in the graph.
        index: usize,
        /// The limit.
        limit: Duration,
    },
    /// Stopped from outside.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl ExecutionError {
    /// The HAL status for the error.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        match self {
            ExecutionError::InputMemory { .. }
            | ExecutionError::Operation {
                error: KernelError::OutOfMemory(_),
                ..
            } => ErrorStatus::ResourceExhaustedTransient,
            ExecutionError::Operation { .. } => ErrorStatus::GeneralFailure,
            ExecutionError::Input { .. } => ErrorStatus::InvalidArgument,
            ExecutionError::LoopTimeout { .. } => ErrorStatus::MissedDeadlineTransient,
            ExecutionError::Interrupted(interrupted) => interrupted.status(),
        }
    }

    /// The memory that was asked for in vain, if that is the reason.
    #[must_use]
    pub fn out_of_memory(&self) -> Option<OutOfMemory> {
        match *self {
            ExecutionError::Operation {
                error: KernelError::OutOfMemory(out_of_memory),
                ..
            }
            | ExecutionError::InputMemory {
                source: out_of_memory,
                ..
            } => Some(out_of_memory),
            _ => None,
        }
    }
}
