//! Prepared models and their executions: operations one after the other, each by its kernel.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use nnhal_device::hal::validate::ValidModel;
use nnhal_device::hal::{Failure, Place, Shape};
use nnhal_device::os::time::{Clock, MonotonicClock};
use nnhal_device::{Control, Execution, InputSource, PreparedModel};

use crate::unit::Kernel;
use crate::value::Value;

/// An operation of a program.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: usize,
}

/// A model made ready to run.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) model: Arc<ValidModel>,
    pub(crate) steps: Vec<Step>,
    /// By operand; empty but for constants.
    pub(crate) constants: Vec<Value>,
    /// The channel to the hardware, open as long as the program is there.
    pub(crate) _channel: Option<File>,
}

/// A program as the driver holds it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared(pub(crate) Arc<Program>);

impl PreparedModel for Prepared {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        Ok(Box::new(Run {
            values: self.0.constants.clone(),
            program: Arc::clone(&self.0),
        }))
    }
}

#[derive(Debug)]
struct Run {
    program: Arc<Program>,
    /// By operand.
    values: Vec<Value>,
}

impl Run {
    fn operand_of_input(&self, index: usize) -> Option<usize> {
        let inputs = &self.program.model.model().main.input_indexes;
        inputs.get(index).map(|&operand| operand as usize)
    }
}

impl Execution for Run {
    fn set_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        _: &Control<'_>,
    ) -> Result<(), Failure> {
        let no_such_input = || Failure::invalid_argument(format!("there is no input {index}"));
        let operand = self.operand_of_input(index).ok_or_else(no_such_input)?;
        let model = &self.program.model;
        let ty = model.model().main.operands[operand].operand_type;
        let size = model.layouts().byte_size(ty, shape).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "input {index} is {ty} with dimensions {shape:?}, whose size is not known"
            ))
        })?;
        source.read(0, self.values[operand].resize(*shape, size)?)
    }

    fn omit_input(&mut self, index: usize) -> Result<(), Failure> {
        Err(Failure::invalid_argument(format!(
            "input {index} is left out, which no operation of this device allows"
        )))
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let operations = &self.program.model.model().main.operations;
        for (index, (step, operation)) in self.program.steps.iter().zip(operations).enumerate() {
            control.checkpoint()?;
            let started = control.is_traced().then(|| MonotonicClock.now());
            // The output stands outside while the others are read; no operation reads what it writes.
            let mut output = std::mem::take(&mut self.values[step.output]);
            let outcome = match step.inputs.as_slice() {
                &[a] => step.kernel.run(&[&self.values[a]], &mut output),
                &[a, b, ..] => step.kernel.run(&[&self.values[a], &self.values[b]], &mut output),
                [] => step.kernel.run(&[], &mut output),
            };
            self.values[step.output] = output;
            if let Some(started) = started {
                let from_to = (started, MonotonicClock.now());
                control.record_operation(index, operation.operation_type, from_to);
            }
            outcome.map_err(|failure| {
                failure.at(Place {
                    operation: u32::try_from(index).ok(),
                    ..Place::default()
                })
            })?;
        }
        Ok(None)
    }

    fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        let outputs = &self.program.model.model().main.output_indexes;
        let value = self.values.get(*outputs.get(index)? as usize)?;
        Some((value.shape(), value.bytes()))
    }

    fn release_memory(&mut self) {
        for (value, constant) in self.values.iter_mut().zip(&self.program.constants) {
            if constant.bytes().is_empty() {
                *value = Value::default();
            }
        }
    }
}
