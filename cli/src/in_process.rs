//! The reference executor in this process, without a driver.

use std::rc::Rc;
use std::sync::Arc;

use nnhal_client::{Memory, Model};
use nnhal_cpu::Observer;
use nnhal_cpu::{Execution, ExecutionError, Helpers, KernelSet, Program, ProgramError, RunOptions, Threads};
use nnhal_hal::validate::{ModelError, ValidModel};
use nnhal_hal::{Shape, ShapeError};
use nnhal_os::cores::OwnCores;

use crate::feed::Value;

/// What the executor refuses.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InProcessError {
    #[error(
        "this process has no device {name:?} of its own; it has {} and {}",
        Kernels::REFERENCE,
        Kernels::FAST
    )]
    NoSuchDevice { name: String },
    #[error("the model is not valid: {0}")]
    Model(#[from] ModelError),
    #[error(transparent)]
    Constants(#[from] nnhal_client::Error),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    #[error("input {index} has {given} bytes, its dimensions take {expected}")]
    Size {
        index: usize,
        given: usize,
        expected: usize,
    },
    #[error("output {index} was not computed")]
    NoOutput { index: usize },
}

/// The kernels that stand for a device in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernels {
    /// The name of the device that uses them.
    pub(crate) device: &'static str,
    /// Which they are.
    pub(crate) set: KernelSet,
}

impl Kernels {
    /// The device whose arithmetic is the reference's own.
    pub(crate) const REFERENCE: &'static str = "nnhal-reference";

    /// The device that is made for speed.
    pub(crate) const FAST: &'static str = "nnhal-cpu";

    /// Those of the device with this name, or else the reference's.
    pub(crate) fn of_device(name: Option<&str>) -> Result<Kernels, InProcessError> {
        match name {
            None | Some(Kernels::REFERENCE) => Ok(Kernels {
                device: Kernels::REFERENCE,
                set: KernelSet::Reference,
            }),
            Some(Kernels::FAST) => Ok(Kernels {
                device: Kernels::FAST,
                set: KernelSet::Fast,
            }),
            Some(name) => Err(InProcessError::NoSuchDevice {
                name: name.to_owned(),
            }),
        }
    }
}

/// A model in the executor.
pub(crate) struct InProcess {
    execution: Execution,
    helpers: Helpers,
    cores: OwnCores,
    threads: usize,
    observer: Option<Rc<dyn Observer>>,
}

impl InProcess {
    /// Makes a model ready.
    pub(crate) fn new(model: &Model, kernels: KernelSet) -> Result<InProcess, InProcessError> {
        InProcess::with_threads(model, kernels, 1)
    }

    /// The same, to be computed by so many threads, at least one.
    pub(crate) fn with_threads(
        model: &Model,
        kernels: KernelSet,
        threads: usize,
    ) -> Result<InProcess, InProcessError> {
        let pools = model.pools().iter().map(Memory::constant_bytes);
        let pools = pools.collect::<nnhal_client::Result<Vec<_>>>()?;
        let valid = ValidModel::new(Arc::new(model.hal().clone()), &pools, &[])?;
        let program = Program::with_kernels(Arc::new(valid), &pools, kernels)?;
        Ok(InProcess {
            execution: Execution::new(Arc::new(program)),
            helpers: Helpers::new(threads.saturating_sub(1)),
            cores: OwnCores::new(threads),
            threads,
            observer: None,
        })
    }

    /// Has `observer` told of every operation.
    pub(crate) fn observed_by(self, observer: Rc<dyn Observer>) -> InProcess {
        InProcess {
            observer: Some(observer),
            ..self
        }
    }

    /// What is run.
    pub(crate) fn program(&self) -> &Arc<Program> {
        self.execution.program()
    }

    /// Puts inputs where the executor reads them.
    pub(crate) fn put(&mut self, inputs: &[Value]) -> Result<(), InProcessError> {
        for (index, value) in inputs.iter().enumerate() {
            let memory = self.execution.input(index, &Shape::new(&value.dimensions)?)?;
            if memory.len() != value.bytes.len() {
                return Err(InProcessError::Size {
                    index,
                    given: value.bytes.len(),
                    expected: memory.len(),
                });
            }
            memory.copy_from_slice(&value.bytes);
        }
        Ok(())
    }

    /// Executes once with what was put last.
    pub(crate) fn run(&mut self) -> Result<(), ExecutionError> {
        self.execution.run(&RunOptions {
            threads: Threads::new(&self.helpers, &self.cores, self.threads),
            observer: self.observer.as_deref(),
            ..RunOptions::default()
        })
    }

    /// Copies the results of the last execution.
    pub(crate) fn take(&self, outputs: &mut [Value]) -> Result<(), InProcessError> {
        for (index, value) in outputs.iter_mut().enumerate() {
            let (shape, bytes) = self
                .execution
                .output(index)
                .ok_or(InProcessError::NoOutput { index })?;
            value.dimensions.clear();
            value.dimensions.extend_from_slice(shape.dims());
            value.bytes.clear();
            value.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }
}
