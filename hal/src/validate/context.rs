//! What all checks of a model share: what they know of it, and what they answer.

use crate::{ConstantPools, MAX_RANK, Model, OperandType, Shape, SubgraphIndex, TypeLayouts};

/// The rule that a model breaks: where, what is wrong, what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The model as a whole.
    #[error("model: {message}")]
    Model {
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One graph.
    #[error("{graph}: {message}")]
    Graph {
        /// Which graph.
        graph: SubgraphIndex,
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One operand.
    #[error("operand {operand} of the {graph}: {message}")]
    Operand {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operand.
        operand: usize,
        /// What was wrong, and what would be right.
        message: String,
    },
    /// One operation.
    #[error("operation {index} ({operation}) of the {graph}: {message}")]
    Operation {
        /// Which graph.
        graph: SubgraphIndex,
        /// Index of the operation.
        index: usize,
        /// The operation.
        operation: crate::OperationType,
        /// What was wrong, and what would be right.
        message: String,
    },
}

impl ModelError {
    pub(super) fn model(message: impl Into<String>) -> ModelError {
        ModelError::Model {
            message: message.into(),
        }
    }
}

/// What checks of graphs, operands and operations need to know of the model.
pub(super) struct ModelContext<'a> {
    pub(super) model: &'a Model,
    pub(super) pools: &'a dyn ConstantPools,
    pub(super) layouts: TypeLayouts,
}

impl ModelContext<'_> {
    /// The number of bytes that a constant of this type and shape has; `None` where neither the HAL nor a
    /// known extension fixes it.
    pub(super) fn constant_size(&self, ty: OperandType, shape: &Shape) -> Result<Option<usize>, String> {
        let Some(layout) = self.layouts.get(ty) else {
            return Ok(None);
        };
        shape
            .byte_size(layout.element_size)
            .map(Some)
            .map_err(|error| error.to_string())
    }
}

/// The shape that an operand declares.
pub(super) fn declared_shape(dimensions: &[u32]) -> Result<Shape, String> {
    Shape::new(dimensions)
        .map_err(|_| format!("has rank {}, at most {MAX_RANK} is supported", dimensions.len()))
}
