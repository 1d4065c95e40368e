//! Models made ready to run: operations one after the other, each by its kernel.

use std::fs::File;
use std::sync::Arc;

use nnhal_device::hal::validate::ValidModel;
use nnhal_device::hal::{Failure, Place};

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

impl Program {
    /// Computes one of the operations.
    pub(crate) fn compute(&self, index: usize, values: &mut [Value]) -> Result<(), Failure> {
        let step = &self.steps[index];
        // The output stands outside while the others are read; no operation reads what it writes.
        let mut output = std::mem::take(&mut values[step.output]);
        let outcome = match step.inputs.as_slice() {
            &[a] => step.kernel.run(&[&values[a]], &mut output),
            &[a, b, ..] => step.kernel.run(&[&values[a], &values[b]], &mut output),
            [] => step.kernel.run(&[], &mut output),
        };
        values[step.output] = output;
        outcome.map_err(|failure| {
            failure.at(Place {
                operation: u32::try_from(index).ok(),
                ..Place::default()
            })
        })
    }
}
