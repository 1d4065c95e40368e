//! What came of the execution of a step, held to the step's model.

use std::sync::Arc;

use nnhal::hal::{OutputShape, Shape, Timing};

use super::step::Step;
use super::{RuntimeError, RuntimeResult};
use crate::{Completed, Model};

/// A successful execution of a step.
#[derive(Debug)]
pub(super) struct Computed {
    /// One for each output of the step.
    pub(super) output_shapes: Arc<[OutputShape]>,
    pub(super) timing: Timing,
}

/// The shapes of outputs of which a driver need not say anything.
pub(super) fn declared_shapes(model: &Model) -> Arc<[OutputShape]> {
    let main = &model.hal().main;
    let outputs = main.output_indexes.iter();
    let shapes = outputs.map(|&index| OutputShape {
        dimensions: main.operands[index as usize].dimensions.clone(),
        is_sufficient: true,
    });
    shapes.collect()
}

impl Step {
    /// Holds what a driver says of its outputs to the model: one shape each, without a contradiction. An output of which
    /// it need not say anything has the model's dimensions.
    pub(super) fn computed(&self, completed: Completed) -> RuntimeResult<Computed> {
        let Completed {
            output_shapes: shapes,
            timing,
        } = completed;
        let output_shapes = if shapes.is_empty() {
            Arc::clone(&self.declared_shapes)
        } else {
            self.expect_declared(&shapes)?;
            shapes.into()
        };
        Ok(Computed {
            output_shapes,
            timing,
        })
    }

    fn expect_declared(&self, shapes: &[OutputShape]) -> RuntimeResult<()> {
        let wrong = |what: String| {
            Err(RuntimeError::failed(format!(
                "{} answered an execution wrongly: {what}",
                self.device.name()
            )))
        };
        let outputs = self.declared_shapes.len();
        if shapes.len() != outputs {
            return wrong(format!("{} shapes for {outputs} outputs", shapes.len()));
        }
        for (index, (shape, declared)) in shapes.iter().zip(self.declared_shapes.iter()).enumerate() {
            let found = Shape::new(&shape.dimensions).ok();
            let declared = Shape::new(&declared.dimensions).unwrap_or_default();
            if !found.is_some_and(|found| declared.allows(&found)) {
                return wrong(format!(
                    "output {index} has dimensions {:?}, the model declares {declared:?}",
                    shape.dimensions
                ));
            }
        }
        Ok(())
    }
}
