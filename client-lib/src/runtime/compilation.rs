//! Models that are compiled for devices.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{Extension, TypeLayouts};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::assignment::Assignment;
use super::cpu::{self, CpuProgram};
use super::device::RuntimeDevice;
use super::devices::Runtime;
use super::explanation::Explanation;
use super::options::{CompilationOptions, Partitioning, Recovery};
use super::partition::partition;
use super::plan::{Plan, Source};
use super::result::{ResultCode, RuntimeError, RuntimeResult};
use super::step::Step;
use super::value_store::ValueStore;
use crate::kept_memory::{reuse, suits, with_reserve};
use crate::memory::Memory;
use crate::model::Model;
use crate::tensor::TensorType;
use crate::trace;

/// Memories that are kept for the next executions.
const KEPT_MEMORIES: usize = 8;

/// A model compiled for devices. Made by [`Runtime::compile`]; clones and equal handles are the same
/// compilation.
///
/// Executions of it may overlap.
#[derive(Clone, Debug)]
pub struct Compilation {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    model: Model,
    inputs: Vec<TensorType>,
    outputs: Vec<TensorType>,
    valid: Arc<ValidModel>,
    plan: Plan,
    policy: Policy,
    explanation: Explanation,
    /// The whole model on the CPU of this process, made when a driver fails.
    whole_on_cpu: OnceLock<RuntimeResult<Arc<CpuProgram>>>,
    spare: Mutex<Vec<Memory>>,
    spare_temporaries: Mutex<Vec<Temporaries>>,
    /// Held by the one execution that prepares steps again.
    reviving: Mutex<()>,
}

/// The values between the steps of one execution.
#[derive(Debug, Default)]
pub(super) struct Temporaries {
    /// Memory for those that several devices use.
    pub(super) memory: Option<Memory>,
    /// Those that stay in a device, by their index among all.
    pub(super) resident: Vec<Option<ValueStore>>,
}

/// What an execution may do when something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// Whether the application named the devices.
    pub(super) is_explicit: bool,
    /// Whether it named one.
    pub(super) has_one_device: bool,
    /// Whether the CPU of this process may take over from a driver that refuses.
    pub(super) may_fall_back: bool,
    /// Whether it may also compute what may have killed a worker.
    pub(super) may_outlive_death: bool,
    /// How often an execution is repeated on a device that was opened again.
    pub(super) attempts: u32,
}

impl Policy {
    /// Whether the CPU of this process may take over after this error.
    pub(super) fn may_fall_back_after(self, error: &RuntimeError) -> bool {
        self.may_fall_back && (self.may_outlive_death || !error.has_cost_a_worker())
    }
}

impl PartialEq for Compilation {
    fn eq(&self, other: &Compilation) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Compilation {}

impl Runtime {
    /// Compiles a model: chooses devices and prepares what each of them gets.
    ///
    /// # Errors
    /// [`super::ResultCode::BadData`] if the model or an option breaks a rule, or no device can run some
    /// operation; what preparing fails with, where the CPU may not take over.
    pub fn compile(&self, model: &Model, options: &CompilationOptions) -> RuntimeResult<Compilation> {
        Compilation::new(self, model, options)
    }
}

impl Compilation {
    fn new(runtime: &Runtime, model: &Model, options: &CompilationOptions) -> RuntimeResult<Compilation> {
        let deadline = deadline(options)?;
        if let Some(devices) = &options.devices {
            runtime.check_devices(devices)?;
        }
        let valid = Arc::new(runtime.validate(model)?);
        let partitioning = options.partitioning.unwrap_or(runtime.options().partitioning);
        let extensions: Arc<[Extension]> = runtime.extensions().extensions().cloned().collect();
        let cpu_only = [runtime.cpu().clone()];
        let devices = match &options.devices {
            Some(devices) => devices.as_slice(),
            None if partitioning == Partitioning::Never => &cpu_only,
            None => runtime.devices(),
        };
        let source = Source {
            model,
            layouts: valid.layouts(),
            devices,
            extensions,
            preference: options.preference,
            priority: options.priority,
            caching: options.caching.as_ref(),
            deadline,
        };
        let recovery = options.recovery.unwrap_or(runtime.options().recovery);
        let mut policy = Policy {
            is_explicit: options.devices.is_some(),
            has_one_device: options.devices.as_ref().is_some_and(|devices| devices.len() == 1),
            may_fall_back: options.devices.is_none()
                && partitioning == Partitioning::WithFallback
                && is_for_cpu(model),
            may_outlive_death: recovery == Recovery::OnCpu,
            attempts: recovery.attempts(),
        };
        let divides = trace::span(SpanKind::Divide, 0);
        let assignment = Assignment::new(
            model,
            &valid,
            devices,
            options.preference,
            options.filter.as_ref(),
            policy.may_outlive_death,
        )?;
        policy.may_fall_back &= policy.may_outlive_death || !assignment.has_cost_a_worker;
        let mut explanation = assignment.explain(model, devices);
        let parts = partition(&model.hal().main, &assignment.choices, devices.len());
        drop(divides);
        let plan = match Plan::of_parts(&source, &parts) {
            Ok(plan) => plan,
            Err(error) if policy.may_fall_back_after(&error) && !is_reported(&error) => {
                tracing::info!(target: tags::COMPILATION, %error, "the whole model runs on the CPU of this process");
                explanation.fallback = Some(error.to_string());
                Plan::whole(&source, runtime.cpu())?
            }
            Err(error) => return Err(error),
        };
        explanation.steps = plan.explanations();
        tracing::debug!(target: tags::COMPILATION, "a model is compiled:\n{explanation}");
        Ok(Compilation {
            inner: Arc::new(Inner {
                model: model.clone(),
                inputs: model.inputs(),
                outputs: model.outputs(),
                valid,
                plan,
                policy,
                explanation,
                whole_on_cpu: OnceLock::new(),
                spare: Mutex::default(),
                spare_temporaries: Mutex::default(),
                reviving: Mutex::default(),
            }),
        })
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.inner.model
    }

    /// The types of the inputs, in argument order.
    #[must_use]
    pub fn inputs(&self) -> &[TensorType] {
        &self.inner.inputs
    }

    /// The types of the outputs, in argument order.
    #[must_use]
    pub fn outputs(&self) -> &[TensorType] {
        &self.inner.outputs
    }

    /// How the types of vendor extensions are laid out.
    #[must_use]
    pub fn layouts(&self) -> &TypeLayouts {
        self.inner.valid.layouts()
    }

    /// Whether exactly one device was named, which measuring and time limits need.
    #[must_use]
    pub fn has_one_explicit_device(&self) -> bool {
        self.inner.policy.has_one_device
    }

    /// Which operation went where, and why not elsewhere.
    #[must_use]
    pub fn explain(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// The devices that run it, each once.
    #[must_use]
    pub fn devices(&self) -> Vec<RuntimeDevice> {
        let mut devices: Vec<RuntimeDevice> = Vec::new();
        for step in &self.inner.plan.steps {
            if !devices.contains(&step.device) {
                devices.push(step.device.clone());
            }
        }
        devices
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.inner.plan
    }

    pub(super) fn policy(&self) -> Policy {
        self.inner.policy
    }

    pub(super) fn valid(&self) -> &ValidModel {
        &self.inner.valid
    }

    pub(super) fn is_explicit(&self) -> bool {
        self.inner.policy.is_explicit
    }

    /// Whether all of it runs on the CPU of this process.
    pub(super) fn is_on_cpu(&self) -> bool {
        self.inner.plan.steps.iter().all(|step| step.device.is_cpu())
    }

    /// The whole model on the CPU of this process.
    pub(super) fn whole_on_cpu(&self) -> RuntimeResult<Arc<CpuProgram>> {
        let inner = &self.inner;
        let program = inner.whole_on_cpu.get_or_init(|| {
            let program = CpuProgram::new(&inner.model, Arc::clone(&inner.valid), Deadline::NONE);
            program.map(Arc::new)
        });
        program.clone()
    }

    /// Shared memory of at least this size, from an execution that has ended if there is some.
    pub(super) fn take_memory(&self, size: u64) -> RuntimeResult<Memory> {
        let size = with_reserve(size);
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = spare.iter().map(Memory::size).enumerate();
        let smallest = sizes
            .filter(|(_, kept)| suits(*kept, size))
            .min_by_key(|(_, kept)| *kept);
        let kept = smallest.map(|(index, _)| spare.remove(index));
        drop(spare);
        Ok(reuse(kept, size)?)
    }

    /// Prepares again what died with its worker, unless another execution has done so.
    pub(super) fn revive_steps(&self) -> RuntimeResult<()> {
        let _reviving = self.inner.reviving.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = self.inner.plan.steps.iter().filter(|step| step.is_lost());
        lost.try_for_each(Step::prepare_again)
    }

    /// Room for the values between steps, from an execution that has ended if there is some.
    pub(super) fn take_temporaries(&self) -> RuntimeResult<Temporaries> {
        let plan = &self.inner.plan;
        if plan.temporaries.is_empty() {
            return Ok(Temporaries::default());
        }
        let kept = {
            let mut spare = self
                .inner
                .spare_temporaries
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            spare.pop()
        };
        let is_whole = |kept: &Temporaries| {
            let homes = plan.temporaries.iter().map(|temporary| temporary.home.is_some());
            homes
                .zip(&kept.resident)
                .all(|(has_home, resident)| match resident {
                    Some(store) => !store.is_lost(),
                    None => !has_home,
                })
        };
        if let Some(kept) = kept.filter(is_whole) {
            return Ok(kept);
        }
        let resident = (0..plan.temporaries.len()).map(|index| {
            // A device that has none just now is told of in the execution, if it is gone.
            let allocated = plan.resident(index, self.layouts());
            allocated.unwrap_or_else(|error| {
                tracing::debug!(target: tags::COMPILATION, %error, "a value between steps lies in shared memory");
                None
            })
        });
        Ok(Temporaries {
            resident: resident.collect(),
            memory: Some(Memory::new(plan.temporary_bytes)?),
        })
    }

    /// Keeps room between steps that nobody uses any more for another execution.
    pub(super) fn give_back_temporaries(&self, temporaries: Temporaries) {
        let mut spare = self
            .inner
            .spare_temporaries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if spare.len() < KEPT_MEMORIES && temporaries.memory.is_some() {
            spare.push(temporaries);
        }
    }

    /// Keeps memory that nobody uses any more for another execution.
    pub(super) fn give_back(&self, memory: Memory) {
        let mut spare = self.inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (spare.len() == KEPT_MEMORIES).then(|| spare.remove(0));
        spare.push(memory);
        drop(spare);
        // Its devices are told outside of the lock.
        drop(oldest);
    }
}

fn deadline(options: &CompilationOptions) -> RuntimeResult<Deadline> {
    let Some(timeout) = options.timeout else {
        return Ok(Deadline::NONE);
    };
    if options.devices.as_ref().is_none_or(|devices| devices.len() != 1) {
        return Err(RuntimeError::bad_data(
            "a time limit for compiling needs exactly one device that is named",
        ));
    }
    if timeout.is_zero() {
        return Err(RuntimeError::new(
            ResultCode::MissedDeadlinePersistent,
            "the time limit for compiling is 0",
        ));
    }
    Ok(Deadline::after(MonotonicClock.now(), timeout))
}

/// Whether the CPU of this process can run every operation.
fn is_for_cpu(model: &Model) -> bool {
    let hal = model.hal();
    let mut operations = hal.main.operations.iter();
    operations.all(|operation| cpu::refusal(hal, operation).is_none())
}

/// Whether an error of preparing is the application's to see, whatever else could be done.
fn is_reported(error: &RuntimeError) -> bool {
    matches!(error.code(), ResultCode::BadData | ResultCode::UnexpectedNull)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ErrorStatus;

    use super::*;

    #[test]
    fn refusal_after_a_death_is_no_reason_to_compute_here() {
        let careful = Policy {
            is_explicit: false,
            has_one_device: false,
            may_fall_back: true,
            may_outlive_death: false,
            attempts: 0,
        };
        let refusal = || RuntimeError::with_status(ErrorStatus::ResourceExhaustedTransient, "no room");
        assert!(careful.may_fall_back_after(&refusal()));
        assert!(!careful.may_fall_back_after(&refusal().after_death()));
        let trusting = Policy {
            may_outlive_death: true,
            ..careful
        };
        assert!(trusting.may_fall_back_after(&refusal().after_death()));
    }
}
