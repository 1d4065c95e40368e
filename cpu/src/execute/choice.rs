//! What an execution knows of the shapes of its inputs.

use std::sync::Arc;

use crate::plan::{InputShapes, Program};

/// What computes an execution, by the shapes of its inputs.
#[derive(Debug)]
pub(super) struct Choice {
    /// Those of the last run.
    pub(super) shapes: InputShapes,
    /// What computes runs with these shapes, if it is not the general program.
    pub(super) program: Option<Arc<Program>>,
    /// Whether that stays so until an input gets another shape, or none.
    pub(super) is_settled: bool,
}

impl Choice {
    /// That of an execution of `program` which has not run.
    pub(super) fn new(program: &Program) -> Choice {
        Choice {
            shapes: Vec::new(),
            program: None,
            is_settled: program.for_shapes.is_none(),
        }
    }
}
