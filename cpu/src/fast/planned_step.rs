//! What computes operations with what was worked out ahead.

use std::any::Any;

use nnhal_hal::OperandType;
use nnhal_os::buffer::AlignedSlice;

use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::threads::Team;

/// The name of what computes operations that have no step.
pub(crate) const REFERENCE: &str = "reference";

/// An operation made ready with its constants.
pub(crate) trait PlannedStep: Any + std::fmt::Debug + Send + Sync {
    /// Computes the operation; outputs are sized already.
    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError>;

    /// What computes operations whose first input is of this type, for people to read: [`REFERENCE`] where it
    /// leaves them to the reference kernel, and both where it depends on the execution.
    fn name(&self, input: OperandType) -> &'static str;

    /// The weights that it packed, in the order in which it did.
    fn packed(&self) -> Vec<&AlignedSlice> {
        Vec::new()
    }

    /// Whether it reads its second input, a constant, in no execution.
    fn replaces_filter(&self) -> bool {
        false
    }

    /// Has it clamp its results to the range of an activation from now on; whether it does, which needs that
    /// it clamps nothing yet.
    fn clamp(&mut self, _: Activation) -> bool {
        false
    }
}

/// What computes several operations as one, of those operands that they have from outside.
pub(crate) trait FusedStep: std::fmt::Debug + Send + Sync {
    /// Computes the result, whose memory is there, as is everything that it reads. Says whether it did, which
    /// may depend on values; otherwise the operations are computed one by one.
    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError>;

    /// What computes the operations, for people to read.
    fn name(&self) -> &'static str;

    /// Whether so many threads had better compute them so.
    fn suits(&self, _threads: usize) -> bool {
        true
    }

    /// Whether this team had better compute them so.
    fn suits_team(&self, _team: &Team<'_>) -> bool {
        true
    }
}
