//! Values of operands in a model that is being built.

use std::sync::Arc;

use nnhal_hal::OperandLifeTime;

use super::finished::Finished;
use crate::ffi::CallerBytes;
use crate::memory::{Memory, Shared};

/// What the caller gives an operand as its value.
#[derive(Clone, Debug)]
pub(crate) enum NewValue {
    /// The operand is left out.
    Omitted,
    Bytes(CallerBytes),
    Memory {
        memory: Arc<Memory>,
        offset: usize,
        length: usize,
    },
    Model(Arc<Finished>),
}

/// The value that an operand has so far.
#[derive(Clone, Debug)]
pub(super) enum Value {
    None,
    Omitted,
    /// Among the draft's copied constants.
    Copied {
        offset: usize,
        length: usize,
    },
    /// Where the caller has it.
    Referenced(CallerBytes),
    Shared(Shared),
    Model(Arc<Finished>),
}

impl Value {
    /// The lifetime of the operand that has it, as far as it is known yet.
    pub(super) fn lifetime(&self) -> OperandLifeTime {
        match self {
            Value::None => OperandLifeTime::TemporaryVariable,
            Value::Omitted => OperandLifeTime::NoValue,
            Value::Copied { .. } => OperandLifeTime::ConstantCopy,
            Value::Referenced(_) | Value::Shared(_) => OperandLifeTime::ConstantReference,
            Value::Model(_) => OperandLifeTime::Subgraph,
        }
    }
}
