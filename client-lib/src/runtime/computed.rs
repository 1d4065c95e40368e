//! What came of an execution: of a step, held to the step's model, and of the whole.

use std::sync::Arc;

use nnhal_hal::{MeasureTiming, OutputShape, Shape, Timing};

use super::result::{ResultCode, RuntimeError, RuntimeResult};
use super::shapes::{first_open, known_shape};
use super::step::Step;
use crate::execution::{Completed, ExecuteOptions};
use crate::request::Request;

/// What a successful execution reports beside its outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// The dimensions of each output.
    pub output_shapes: Arc<[OutputShape]>,
    /// How long it took, if it was measured, in microseconds.
    pub timing: Timing,
    /// Why the CPU of this process took a driver's place, if it did.
    pub fallback: Option<String>,
}

/// A driver's measurement, if it was asked for.
pub(super) fn asked(options: &ExecuteOptions, timing: Timing) -> Timing {
    match options.measure {
        MeasureTiming::Yes => timing,
        MeasureTiming::No => Timing::NONE,
    }
}

/// A successful execution of a step.
#[derive(Debug)]
pub(super) struct Computed {
    /// One for each output of the step.
    pub(super) output_shapes: Arc<[OutputShape]>,
    pub(super) timing: Timing,
}

impl Step {
    /// The shapes of a request's outputs, as far as the step's model and the request say them.
    pub(super) fn known_shapes(&self, request: &Request) -> Arc<[OutputShape]> {
        let outputs = &request.hal().outputs;
        if outputs.iter().all(|output| output.dimensions.is_empty()) {
            return Arc::clone(&self.declared_shapes);
        }
        let outputs = self.declared_shapes.iter().zip(outputs);
        let shapes = outputs.map(|(declared, output)| known_shape(&declared.dimensions, &output.dimensions));
        shapes.collect()
    }

    /// Holds what a driver says of its outputs to what is known of them: one shape each, without a
    /// contradiction. A driver that says nothing means the known shapes.
    pub(super) fn computed(
        &self,
        completed: Completed,
        known: &Arc<[OutputShape]>,
    ) -> RuntimeResult<Computed> {
        Ok(Computed {
            output_shapes: self.output_shapes(completed.output_shapes, known)?,
            timing: completed.timing,
        })
    }

    /// The shapes of a request's outputs from what a driver says of them, as [`Step::computed`] holds them.
    pub(super) fn output_shapes(
        &self,
        shapes: Vec<OutputShape>,
        known: &Arc<[OutputShape]>,
    ) -> RuntimeResult<Arc<[OutputShape]>> {
        if shapes.is_empty() {
            self.expect_complete(known)?;
            return Ok(Arc::clone(known));
        }
        self.expect_known(&shapes, known)?;
        Ok(shapes.into())
    }

    /// Holds the shapes that come with an error to what is known of them too.
    pub(super) fn failed(&self, error: RuntimeError, known: &[OutputShape]) -> RuntimeError {
        if error.code() != ResultCode::OutputInsufficientSize {
            return error;
        }
        self.expect_known(error.output_shapes(), known)
            .err()
            .unwrap_or(error)
    }

    /// A driver may be silent only of outputs whose shapes are known.
    fn expect_complete(&self, known: &[OutputShape]) -> RuntimeResult<()> {
        match first_open(self.model.hal(), known) {
            None => Ok(()),
            Some(index) => Err(self.wrong_answer(format!(
                "no shapes, although that of output {index} is known as {:?} only",
                known[index].dimensions
            ))),
        }
    }

    fn wrong_answer(&self, what: String) -> RuntimeError {
        RuntimeError::failed(format!(
            "{} answered an execution wrongly: {what}",
            self.device.name()
        ))
    }

    fn expect_known(&self, shapes: &[OutputShape], known: &[OutputShape]) -> RuntimeResult<()> {
        match contradiction(shapes, known) {
            None => Ok(()),
            Some(what) => Err(self.wrong_answer(what)),
        }
    }
}

/// What is wrong with the shapes that a driver tells of outputs, of which so much is known.
fn contradiction(shapes: &[OutputShape], known: &[OutputShape]) -> Option<String> {
    let outputs = known.len();
    if shapes.len() != outputs {
        return Some(format!("{} shapes for {outputs} outputs", shapes.len()));
    }
    let mut pairs = shapes.iter().zip(known).enumerate();
    pairs.find_map(|(index, (shape, known))| {
        let found = Shape::new(&shape.dimensions).ok();
        let known = Shape::new(&known.dimensions).unwrap_or_default();
        let is_possible = found.is_some_and(|found| known.allows(&found));
        (!is_possible).then(|| {
            format!(
                "output {index} has dimensions {:?}, the model and the request say {known:?}",
                shape.dimensions
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_held_to_their_number_and_to_what_is_known() {
        let shape = |dimensions: &[u32]| OutputShape {
            dimensions: dimensions.to_vec(),
            is_sufficient: false,
        };
        let known = [shape(&[2, 0]), shape(&[])];
        let found = |shapes: &[OutputShape]| contradiction(shapes, &known);
        assert_eq!(found(&[shape(&[2, 5]), shape(&[7])]), None);
        assert_eq!(found(&[]).as_deref(), Some("0 shapes for 2 outputs"));
        let too_many = [shape(&[2, 5]), shape(&[]), shape(&[])];
        assert_eq!(found(&too_many).as_deref(), Some("3 shapes for 2 outputs"));
        for wrong in [&[3, 5][..], &[2], &[1; 9]] {
            let text = found(&[shape(wrong), shape(&[])]).unwrap();
            assert!(text.starts_with("output 0 has dimensions"), "{text}");
        }
    }
}
