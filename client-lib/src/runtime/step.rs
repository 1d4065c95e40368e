//! A part of a model that one device runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nnhal_hal::{ExecutionPreference, Extension, OutputShape, Priority};
use nnhal_os::time::Deadline;

use super::caching::{self, StepCache};
use super::cpu::CpuProgram;
use super::device::RuntimeDevice;
use super::result::{RuntimeError, RuntimeResult};
use super::shapes::declared_shapes;
use crate::burst::{Burst, BurstOptions};
use crate::device::PrepareOptions;
use crate::error::ErrorKind;
use crate::execution::{Completed, ExecuteOptions};
use crate::model::Model;
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::values::{Input, Output};

/// What a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// An input of the whole model.
    Input(usize),
    /// An output of the whole model.
    Output(usize),
    /// What one step computes for others.
    Temporary(usize),
}

/// A part of a model that one device runs.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) device: RuntimeDevice,
    pub(super) model: Model,
    /// Indexes in the whole model's main graph.
    pub(super) operations: Vec<usize>,
    pub(super) inputs: Vec<Slot>,
    pub(super) outputs: Vec<Slot>,
    /// Of the outputs, as the model has them.
    pub(super) declared_shapes: Arc<[OutputShape]>,
    how: How,
    prepared: Mutex<Prepared>,
    /// How often it was prepared.
    generation: AtomicU64,
    /// The step on the CPU of this process, made when its device fails.
    on_cpu: OnceLock<RuntimeResult<Arc<CpuProgram>>>,
}

/// How a step is prepared.
#[derive(Clone, Debug)]
pub(super) struct How {
    pub(super) preference: ExecutionPreference,
    pub(super) priority: Priority,
    pub(super) cache: Option<StepCache>,
    pub(super) extensions: Arc<[Extension]>,
}

/// What executes a step.
#[derive(Clone, Debug)]
pub(super) enum Prepared {
    Driver(PreparedModel),
    Cpu(Arc<CpuProgram>),
}

/// What a step is, before it is prepared.
#[derive(Debug)]
pub(super) struct StepDescription {
    pub(super) device: RuntimeDevice,
    pub(super) model: Model,
    pub(super) operations: Vec<usize>,
    pub(super) inputs: Vec<Slot>,
    pub(super) outputs: Vec<Slot>,
}

/// A step's burst, which ends with what it executes.
#[derive(Debug, Default)]
pub(super) struct StepBurst {
    open: Option<OpenBurst>,
}

/// A burst of what executes a step.
#[derive(Debug)]
struct OpenBurst {
    generation: u64,
    burst: Burst,
}

impl StepBurst {
    /// Lets go of the burst after an error that no driver answered, so that the next execution makes another:
    /// its rings may have ended, though its worker goes on. One that only keeps the caller waiting for too
    /// long is kept, and the next execution waits for it.
    #[inline]
    pub(super) fn end_after<T>(&mut self, result: &crate::error::Result<T>) {
        let is_usable = |error: &crate::error::Error| {
            matches!(
                error.kind(),
                ErrorKind::Status { .. } | ErrorKind::TimedOut { .. } | ErrorKind::Argument { .. }
            )
        };
        if result.as_ref().is_err_and(|error| !is_usable(error)) {
            self.open = None;
        }
    }
}

impl Step {
    /// Prepares the step on its device.
    pub(super) fn new(description: StepDescription, how: How, deadline: Deadline) -> RuntimeResult<Step> {
        let StepDescription {
            device,
            model,
            operations,
            inputs,
            outputs,
        } = description;
        let prepared = prepare(&device, &model, &how, deadline)
            .map_err(|error| error.about(&format!("preparing a step on {}", device.name())))?;
        Ok(Step {
            declared_shapes: declared_shapes(&model),
            device,
            model,
            operations,
            inputs,
            outputs,
            how,
            prepared: Mutex::new(prepared),
            generation: AtomicU64::new(0),
            on_cpu: OnceLock::new(),
        })
    }

    pub(super) fn prepared(&self) -> Prepared {
        self.prepared
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether what executes it died with its worker.
    pub(super) fn is_lost(&self) -> bool {
        match self.prepared() {
            Prepared::Driver(prepared) => prepared.link().ended_with().is_some(),
            Prepared::Cpu(_) => false,
        }
    }

    /// Prepares it once more, on a device that was opened again.
    pub(super) fn prepare_again(&self) -> RuntimeResult<()> {
        let prepared = prepare(&self.device, &self.model, &self.how, Deadline::NONE)?;
        *self.prepared.lock().unwrap_or_else(PoisonError::into_inner) = prepared;
        self.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Executes a request on the step's device, by burst if there is one.
    pub(super) fn execute(
        &self,
        request: &Request,
        options: &ExecuteOptions,
        burst: Option<&mut StepBurst>,
    ) -> RuntimeResult<Completed> {
        if let Some(burst) = burst
            && !self.device.is_cpu()
        {
            let result = self.burst(burst)?.execute(request, options);
            burst.end_after(&result);
            return Ok(result?);
        }
        match self.prepared() {
            Prepared::Cpu(program) => program.execute(request, options),
            Prepared::Driver(prepared) => Ok(prepared.execute(request, options)?),
        }
    }

    /// Executes with values in this process's own memory on the driver that the step is prepared on.
    pub(super) fn run(
        &self,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        Ok(self.on_driver()?.run(inputs, outputs, options)?)
    }

    /// The burst of a step that a driver executes, if it has been made and executes what the step is prepared
    /// as. Takes no lock.
    #[inline]
    pub(super) fn present_burst<'b>(&self, burst: &'b mut StepBurst) -> Option<&'b mut Burst> {
        let generation = self.generation.load(Ordering::Acquire);
        let open = burst.open.as_mut();
        open.filter(|open| open.generation == generation)
            .map(|open| &mut open.burst)
    }

    /// The burst of a step that a driver executes, made if there is none. Takes no lock while the step is not
    /// prepared again.
    ///
    /// # Errors
    /// The step is executed in this process; what making a burst fails with.
    #[inline]
    pub(super) fn burst<'b>(&self, burst: &'b mut StepBurst) -> RuntimeResult<&'b mut Burst> {
        let generation = self.generation.load(Ordering::Acquire);
        let open = match burst.open.take() {
            Some(open) if open.generation == generation => open,
            _ => OpenBurst {
                generation,
                burst: self.new_burst()?,
            },
        };
        Ok(&mut burst.open.insert(open).burst)
    }

    fn new_burst(&self) -> RuntimeResult<Burst> {
        Ok(self.on_driver()?.burst(&BurstOptions::new())?)
    }

    fn on_driver(&self) -> RuntimeResult<PreparedModel> {
        match self.prepared() {
            Prepared::Driver(prepared) => Ok(prepared),
            Prepared::Cpu(_) => Err(RuntimeError::failed("no driver executes the step")),
        }
    }

    /// Executes a request on the CPU of this process.
    pub(super) fn execute_on_cpu(
        &self,
        request: &Request,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        let program = self
            .on_cpu
            .get_or_init(|| CpuProgram::of_model(&self.model, &self.how.extensions).map(Arc::new));
        program.clone()?.execute(request, options)
    }
}

fn prepare(device: &RuntimeDevice, model: &Model, how: &How, deadline: Deadline) -> RuntimeResult<Prepared> {
    if device.is_cpu() {
        let valid = Arc::new(super::cpu::validate(model, &how.extensions)?);
        let program = CpuProgram::new(model, valid, deadline)?;
        return Ok(Prepared::Cpu(Arc::new(program)));
    }
    let options = PrepareOptions::new()
        .preference(how.preference)
        .priority(how.priority)
        .deadline(deadline);
    let prepared = caching::prepare(device, model, &options, how.cache.as_ref())?;
    Ok(Prepared::Driver(prepared))
}
