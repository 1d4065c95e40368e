//! Why a model cannot be made ready.

use nnhal_hal::{ErrorStatus, OperationType, SubgraphIndex};
use nnhal_os::buffer::OutOfMemory;

use crate::fast::PackingError;
use crate::interrupt::Interrupted;

/// Why a model cannot be made ready.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is no kernel for one of its operations.
    #[error("operation {index} ({operation}) of the {graph} is not supported: {reason}")]
    Unsupported {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation in the graph.
        index: usize,
        /// The operation.
        operation: OperationType,
        /// Why.
        reason: String,
    },
    /// Its constants do not fit in memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// What was kept of the program is not that of this model.
    #[error("the compiled form does not have the size of this model's")]
    UnfitCompiled,
    /// A constant that the program needs is not there.
    #[error("the bytes of the constant operand {operand} are missing")]
    MissingConstant {
        /// The operand in its graph.
        operand: usize,
    },
    /// Stopped from outside.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl From<PackingError> for ProgramError {
    fn from(error: PackingError) -> ProgramError {
        match error {
            PackingError::OutOfMemory(error) => ProgramError::OutOfMemory(error),
            PackingError::Unfit => ProgramError::UnfitCompiled,
        }
    }
}

impl ProgramError {
    /// The HAL status for the error.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        match self {
            // A valid model that this device does not take: no argument is wrong.
            ProgramError::Unsupported { .. }
            | ProgramError::UnfitCompiled
            | ProgramError::MissingConstant { .. } => ErrorStatus::GeneralFailure,
            ProgramError::OutOfMemory(_) => ErrorStatus::ResourceExhaustedTransient,
            ProgramError::Interrupted(interrupted) => interrupted.status(),
        }
    }
}
