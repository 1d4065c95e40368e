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
use crate::burst::{Burst, BurstOptions, LayoutName, RegisteredRequest};
use crate::device::PrepareOptions;
use crate::error::ErrorKind;
use crate::execution::{Completed, ExecuteOptions};
use crate::model::Model;
use crate::prepared_model::PreparedModel;
use crate::request::{Request, RequestIdentity};
use crate::values::OwnValues;

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
pub(super) struct Outline {
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
    /// What was executed last, by request.
    last: Option<RequestIdentity>,
    /// That, if it came twice in a row.
    registered: Option<Registered>,
}

/// A request that a step's burst has registered.
#[derive(Debug)]
struct Registered {
    request: RegisteredRequest,
    /// Of its outputs, as far as they are known before it is executed.
    known_shapes: Arc<[OutputShape]>,
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

impl StepBurst {
    /// What is known of the outputs of the registered request, if the request that was executed last is.
    #[inline]
    pub(super) fn registered_shapes(&self) -> Option<&Arc<[OutputShape]>> {
        let registered = self.open.as_ref()?.registered.as_ref()?;
        Some(&registered.known_shapes)
    }
}

impl OpenBurst {
    /// Executes a request. One that comes again, as those of reusable executions do, is registered and takes
    /// one cell from then on.
    fn execute(
        &mut self,
        step: &Step,
        request: &Request,
        options: &ExecuteOptions,
    ) -> crate::error::Result<Completed> {
        let comes_again = self.last.as_ref().is_some_and(|last| last.is_of(request));
        if !comes_again {
            self.last = Some(request.identity());
            if let Some(registered) = self.registered.take() {
                self.burst.unregister(registered.request)?;
            }
            return self.burst.execute(request, options);
        }
        let registered = match self.registered.take() {
            Some(registered) => registered,
            None => Registered {
                request: self.burst.register(request)?,
                known_shapes: step.known_shapes(request),
            },
        };
        self.burst
            .fire(&self.registered.insert(registered).request, options)
    }
}

impl Step {
    /// Prepares the step on its device.
    pub(super) fn new(outline: Outline, how: How, deadline: Deadline) -> RuntimeResult<Step> {
        let Outline {
            device,
            model,
            operations,
            inputs,
            outputs,
        } = outline;
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
            let result = self.open_burst(burst)?.execute(self, request, options);
            burst.end_after(&result);
            return Ok(result?);
        }
        match self.prepared() {
            Prepared::Cpu(program) => program.execute(request, options),
            Prepared::Driver(prepared) => Ok(prepared.execute(request, options)?),
        }
    }

    /// Executes the request that the burst has registered once more, if it has one. Takes no lock and looks
    /// at nothing.
    #[inline]
    pub(super) fn fire_again(
        &self,
        burst: &mut StepBurst,
        options: &ExecuteOptions,
    ) -> Option<crate::error::Result<Completed>> {
        let generation = self.generation.load(Ordering::Acquire);
        let open = burst.open.as_mut().filter(|open| open.generation == generation)?;
        let result = open.burst.fire(&open.registered.as_ref()?.request, options);
        burst.end_after(&result);
        Some(result)
    }

    /// Executes once more with values of a layout, if the burst keeps it. Takes no lock.
    #[inline]
    pub(super) fn run_again(
        &self,
        burst: &mut StepBurst,
        layout: LayoutName,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
    ) -> Option<crate::error::Result<Completed>> {
        let generation = self.generation.load(Ordering::Acquire);
        let open = burst.open.as_mut().filter(|open| open.generation == generation)?;
        let result = open.burst.run_again(layout, values, options)?;
        burst.end_after(&result);
        Some(result)
    }

    /// The burst of a step that a driver executes. Takes no lock while the step is not prepared again.
    ///
    /// # Errors
    /// The step is executed in this process; what making a burst fails with.
    #[inline]
    pub(super) fn burst<'b>(&self, burst: &'b mut StepBurst) -> RuntimeResult<&'b mut Burst> {
        Ok(&mut self.open_burst(burst)?.burst)
    }

    #[inline]
    fn open_burst<'b>(&self, burst: &'b mut StepBurst) -> RuntimeResult<&'b mut OpenBurst> {
        let generation = self.generation.load(Ordering::Acquire);
        if burst
            .open
            .as_ref()
            .is_none_or(|open| open.generation != generation)
        {
            burst.open = None;
            let made = OpenBurst {
                generation,
                burst: self.new_burst()?,
                last: None,
                registered: None,
            };
            return Ok(burst.open.insert(made));
        }
        burst
            .open
            .as_mut()
            .ok_or_else(|| RuntimeError::failed("the burst of a step is gone"))
    }

    fn new_burst(&self) -> RuntimeResult<Burst> {
        match self.prepared() {
            Prepared::Driver(prepared) => Ok(prepared.burst(&BurstOptions::new())?),
            Prepared::Cpu(_) => Err(RuntimeError::failed("the CPU of this process has no bursts")),
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
