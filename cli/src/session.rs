//! Calls of a model, with its state carried from one to the next.

use std::time::{Duration, Instant};

use nnhal_tflite::ImportedModel;

use crate::error::Error;
use crate::feed::Value;

/// Something that executes a model.
pub(crate) trait Subject {
    /// Puts inputs where executions read them.
    fn put(&mut self, inputs: &[Value]) -> Result<(), Error>;

    /// Executes once with what was put last.
    fn run(&mut self) -> Result<(), Error>;

    /// Copies the results of the last execution. `outputs` holds one value for each output of the model; they are
    /// overwritten, and their memory is used again.
    fn take(&mut self, outputs: &mut [Value]) -> Result<(), Error>;
}

/// A model that is called again and again.
pub(crate) struct Session<'a> {
    model: &'a ImportedModel,
    subject: Box<dyn Subject>,
    /// All inputs: those of the file, then the states.
    inputs: Vec<Value>,
    /// All outputs: those of the file, then the states, each at its place.
    outputs: Vec<Value>,
}

impl<'a> Session<'a> {
    /// A session in which nothing has been called yet.
    pub(crate) fn new(model: &'a ImportedModel, subject: Box<dyn Subject>) -> Session<'a> {
        let mut session = Session {
            model,
            subject,
            inputs: vec![Value::default(); model.model.main.input_indexes.len()],
            outputs: vec![Value::default(); model.model.main.output_indexes.len()],
        };
        session.reset();
        session
    }

    /// Gives every state its initial value.
    pub(crate) fn reset(&mut self) {
        for state in &self.model.states {
            if let Some(input) = self.inputs.get_mut(state.input) {
                input.dimensions.clone_from(&state.dimensions);
                input.bytes.clone_from(&state.initial);
            }
        }
    }

    /// Calls the model with the file's inputs and returns the file's outputs, and how long the execution took: inputs lie
    /// where it reads them when it begins, and results where it wrote them when it ends.
    pub(crate) fn call(&mut self, inputs: &[Value]) -> Result<(&[Value], Duration), Error> {
        for (to, from) in self.inputs.iter_mut().zip(inputs) {
            to.dimensions.clone_from(&from.dimensions);
            to.bytes.clone_from(&from.bytes);
        }
        self.subject.put(&self.inputs)?;
        let started = Instant::now();
        self.subject.run()?;
        let latency = started.elapsed();
        self.subject.take(&mut self.outputs)?;
        for state in &self.model.states {
            if let (Some(output), Some(input)) = (
                self.outputs.get_mut(state.output),
                self.inputs.get_mut(state.input),
            ) {
                std::mem::swap(output, input);
            }
        }
        let own = self.model.outputs.len().min(self.outputs.len());
        Ok((&self.outputs[..own], latency))
    }
}
