//! What came of the execution of a step, held to the step's model.

use std::sync::Arc;

use nnhal::hal::{OutputShape, Shape, Timing};

use super::execution::Finished;
use super::run::asked;
use super::step::Step;
use super::{RuntimeError, RuntimeResult};
use crate::{Completed, ExecuteOptions, Model};

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
        Ok(Computed {
            output_shapes: self.output_shapes(completed.output_shapes)?,
            timing: completed.timing,
        })
    }

    /// The same for the only step of an execution that was done before, whose end is in `finished`.
    #[inline]
    pub(super) fn report_again(
        &self,
        completed: Completed,
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> RuntimeResult<()> {
        let is_as_before =
            completed.output_shapes.is_empty() && Arc::ptr_eq(&finished.output_shapes, &self.declared_shapes);
        if !is_as_before {
            finished.output_shapes = self.output_shapes(completed.output_shapes)?;
        }
        finished.timing = asked(options, completed.timing);
        finished.fallback = None;
        Ok(())
    }

    fn output_shapes(&self, shapes: Vec<OutputShape>) -> RuntimeResult<Arc<[OutputShape]>> {
        if shapes.is_empty() {
            return Ok(Arc::clone(&self.declared_shapes));
        }
        self.expect_declared(&shapes)?;
        Ok(shapes.into())
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
