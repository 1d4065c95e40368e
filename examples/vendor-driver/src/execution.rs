//! Prepared models and their executions, on the thread that asks or by a queue.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use nnhal_device::hal::{Failure, Shape};
use nnhal_device::os::time::{Clock, MonotonicClock};
use nnhal_device::{Control, Execution, InputSource, PreparedModel, QueuedExecution};

use crate::program::Program;
use crate::queue::{Job, Queue};
use crate::value::Value;

/// A program as the driver holds it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) program: Arc<Program>,
    /// What computes it; none if the thread that asks does.
    pub(crate) queue: Option<Arc<Queue>>,
}

impl PreparedModel for Prepared {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        let queue = self.queue.as_ref();
        Ok(Box::new(Run {
            values: self.program.constants.clone(),
            job: queue.map(|queue| queue.job(&self.program)).transpose()?,
            program: Arc::clone(&self.program),
        }))
    }
}

#[derive(Debug)]
struct Run {
    program: Arc<Program>,
    /// By operand; none while they are in the queue.
    values: Vec<Value>,
    /// Its place in the device's queue, if there is one.
    job: Option<Arc<Job>>,
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

    fn queued(&mut self) -> Option<&mut dyn QueuedExecution> {
        self.job.is_some().then_some(self as &mut dyn QueuedExecution)
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let operations = &self.program.model.model().main.operations;
        for (index, operation) in operations.iter().enumerate() {
            control.checkpoint()?;
            let started = control.is_traced().then(|| MonotonicClock.now());
            let outcome = self.program.compute(index, &mut self.values);
            if let Some(started) = started {
                let from_to = (started, MonotonicClock.now());
                control.record_operation(index, operation.operation_type, from_to);
            }
            outcome?;
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

impl QueuedExecution for Run {
    fn submit(&mut self, _: &Control<'_>) -> Result<OwnedFd, Failure> {
        let job = self.job.as_ref().ok_or_else(no_queue)?;
        job.submit(&mut self.values)
    }

    fn cancel(&mut self) {
        if let Some(job) = &self.job {
            job.cancel();
        }
    }

    fn collect(&mut self) -> Result<Option<Duration>, Failure> {
        let job = self.job.as_ref().ok_or_else(no_queue)?;
        job.collect(&mut self.values).map(Some)
    }
}

fn no_queue() -> Failure {
    Failure::general("this device has no queue")
}
