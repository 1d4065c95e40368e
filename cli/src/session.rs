//! Calls of a model, with its state carried from one to the next.

use std::time::{Duration, Instant};

use nnhal_client::TfliteModel;
use nnhal_client::tflite::State;

use crate::error::Error;
use crate::feed::Value;
use crate::in_process::{InProcess, InProcessError};

/// Something that executes a model.
pub(crate) trait Subject {
    /// Keeps these states, the last inputs and outputs of the model, where executions find them, from their
    /// initial values on, also if it has kept them before. Whether it does: if not, they are put and taken
    /// like all others.
    fn keep_states(&mut self, _: &[State]) -> Result<bool, Error> {
        Ok(false)
    }

    /// Puts inputs where executions read them.
    fn put(&mut self, inputs: &[Value]) -> Result<(), Error>;

    /// Executes once with what was put last.
    fn run(&mut self) -> Result<(), Error>;

    /// Copies the results of the last execution. `outputs` holds one value for each output of the model that
    /// is no state kept; they are overwritten, and their memory is used again.
    fn take(&mut self, outputs: &mut [Value]) -> Result<(), Error>;
}

impl Subject for InProcess {
    fn put(&mut self, inputs: &[Value]) -> Result<(), Error> {
        Ok(InProcess::put(self, inputs)?)
    }

    fn run(&mut self) -> Result<(), Error> {
        Ok(InProcess::run(self).map_err(InProcessError::from)?)
    }

    fn take(&mut self, outputs: &mut [Value]) -> Result<(), Error> {
        Ok(InProcess::take(self, outputs)?)
    }
}

/// A model that is called again and again.
pub(crate) struct Session<'a> {
    model: &'a TfliteModel,
    subject: Box<dyn Subject>,
    /// Whether the states have the values that the next call is to begin with.
    has_states: bool,
    /// Whether the subject keeps them, so that they are none of the values that follow.
    keeps_states: bool,
    /// The inputs of the file, then the states.
    inputs: Vec<Value>,
    /// The outputs of the file, then the states.
    outputs: Vec<Value>,
}

impl<'a> Session<'a> {
    /// A session in which nothing has been called yet.
    pub(crate) fn new(model: &'a TfliteModel, subject: Box<dyn Subject>) -> Session<'a> {
        Session {
            model,
            subject,
            has_states: false,
            keeps_states: false,
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Has the next call begin with the initial value of every state.
    pub(crate) fn reset(&mut self) {
        self.has_states = false;
    }

    /// Gives every state its initial value.
    fn begin(&mut self) -> Result<(), Error> {
        let TfliteModel {
            inputs,
            outputs,
            states,
            ..
        } = self.model;
        self.keeps_states = !states.is_empty() && self.subject.keep_states(states)?;
        let carried = if self.keeps_states { 0 } else { states.len() };
        self.inputs.resize(inputs.len() + carried, Value::default());
        self.outputs.resize(outputs.len() + carried, Value::default());
        for (input, state) in self.inputs[inputs.len()..].iter_mut().zip(states) {
            input.dimensions.clone_from(&state.dimensions);
            input.bytes.clone_from(&state.initial);
        }
        self.has_states = true;
        Ok(())
    }

    /// Calls the model with the file's inputs and returns the file's outputs, and how long the execution
    /// took: inputs lie where it reads them when it begins, and results where it wrote them when it ends.
    pub(crate) fn call(&mut self, inputs: &[Value]) -> Result<(&[Value], Duration), Error> {
        if !self.has_states {
            self.begin()?;
        }
        for (to, from) in self.inputs.iter_mut().zip(inputs) {
            to.dimensions.clone_from(&from.dimensions);
            to.bytes.clone_from(&from.bytes);
        }
        self.subject.put(&self.inputs)?;
        let started = Instant::now();
        self.subject.run()?;
        let latency = started.elapsed();
        self.subject.take(&mut self.outputs)?;
        let (own_inputs, own) = (self.model.inputs.len(), self.model.outputs.len());
        let states = self.inputs[own_inputs..].iter_mut();
        for (input, output) in states.zip(&mut self.outputs[own..]) {
            std::mem::swap(output, input);
        }
        Ok((&self.outputs[..own], latency))
    }
}
