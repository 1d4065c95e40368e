//! One run through the steps of a plan.

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_hal::{OutputShape, Timing};

use super::arguments::{BoundArguments, Location};
use super::compilation::{Compilation, Temporaries};
use super::computed::{Computed, Finished, asked};
use super::request_builder::{RequestBuilder, Target};
use super::result::{ResultCode, RuntimeError, RuntimeResult};
use super::step::{Slot, Step, StepBurst};
use crate::execution::ExecuteOptions;
use crate::trace;

/// One run through the steps of a plan.
#[derive(Debug)]
pub(super) struct Run<'a> {
    compilation: &'a Compilation,
    placed: &'a BoundArguments,
    pub(super) options: ExecuteOptions,
    /// The values between steps.
    pub(super) temporaries: Temporaries,
    /// Of the whole model's outputs, as far as they were computed.
    shapes: Vec<Option<OutputShape>>,
    timing: Option<Timing>,
    fallback: Option<String>,
    /// Whether every step that was begun has ended for sure.
    pub(super) is_over: bool,
    /// Whether nothing forbids the CPU of this process to take over, as a death in an earlier run does.
    pub(super) may_fall_back: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        compilation: &'a Compilation,
        placed: &'a BoundArguments,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Run<'a>> {
        Ok(Run {
            compilation,
            placed,
            options: *options,
            temporaries: compilation.take_temporaries()?,
            shapes: vec![None; compilation.outputs().len()],
            timing: None,
            fallback: None,
            is_over: true,
            may_fall_back: true,
        })
    }

    /// Runs them all.
    pub(super) fn steps(&mut self, mut bursts: Option<&mut [StepBurst]>) -> RuntimeResult<Finished> {
        for (index, step) in self.compilation.plan().steps.iter().enumerate() {
            let _runs = trace::span(SpanKind::Step, index as u64);
            tracing::trace!(target: tags::EXECUTION, step = index, device = step.device.name(), "a step");
            let burst = bursts.as_deref_mut().and_then(|bursts| bursts.get_mut(index));
            let computed = match self.execute(step, Target::Device(&step.device), burst) {
                Ok(computed) => computed,
                Err(error) => {
                    self.is_over &= error.is_final();
                    self.execute_elsewhere(step, error)
                        .map_err(|error| self.of_the_whole(step, error))?
                }
            };
            self.keep(step, &computed);
        }
        Ok(self.finished())
    }

    /// What the whole reports after its last step.
    pub(super) fn finished(&mut self) -> Finished {
        let types = self.compilation.outputs().iter().zip(&self.placed.outputs);
        let outputs = types.zip(self.shapes.drain(..));
        // A step behind fences says nothing of the shapes, which have to be known before.
        let shapes = outputs.map(|((ty, location), shape)| shape.unwrap_or_else(|| location.known_shape(ty)));
        Finished {
            output_shapes: shapes.collect(),
            timing: asked(&self.options, self.timing.unwrap_or_default()),
            fallback: self.fallback.take(),
        }
    }

    /// Executes one step, and holds the answer to what may be answered.
    pub(super) fn execute(
        &self,
        step: &Step,
        target: Target<'_>,
        burst: Option<&mut StepBurst>,
    ) -> RuntimeResult<Computed> {
        let target = if step.device.is_cpu() { Target::Cpu } else { target };
        let builder = self.request(step, target)?;
        let known = step.known_shapes(&builder.request);
        let completed = match target {
            Target::Cpu if !step.device.is_cpu() => step.execute_on_cpu(&builder.request, &self.options),
            _ => {
                let result = step.execute(&builder.request, &self.options, burst);
                result.map_err(|error| step.failed(error, &known))
            }
        };
        let computed = step.computed(completed?, &known)?;
        builder.store(&computed.output_shapes)?;
        Ok(computed)
    }

    /// Executes a step that its device failed at on the CPU of this process, if that is more than nothing and
    /// less than the whole.
    fn execute_elsewhere(&mut self, step: &Step, error: RuntimeError) -> RuntimeResult<Computed> {
        let is_part = self.compilation.plan().steps.len() > 1;
        let is_for_recovery = error.is_connection_lost() && self.compilation.policy().attempts > 0;
        let may_fall_back = self.may_fall_back && self.compilation.may_fall_back(&error);
        if !is_part || is_for_recovery || step.device.is_cpu() || !may_fall_back {
            return Err(error);
        }
        let why = format!("a step failed on {}: {error}", step.device.name());
        let computed = self.execute(step, Target::Cpu, None)?;
        tracing::warn!(target: tags::EXECUTION, why, "the CPU of this process ran the step");
        self.fallback.get_or_insert(why);
        Ok(computed)
    }

    /// Whether a value of a step has to be copied, before or after, for who executes it.
    pub(super) fn is_copied(&self, step: &Step, target: Target<'_>) -> RuntimeResult<bool> {
        let mut slots = step.inputs.iter().chain(&step.outputs);
        slots.try_fold(false, |is_copied, slot| {
            Ok(is_copied || !target.reaches(&self.location(*slot)?))
        })
    }

    /// The request of a step with the values in their places.
    pub(super) fn request<'r>(
        &'r self,
        step: &Step,
        target: Target<'r>,
    ) -> RuntimeResult<RequestBuilder<'r>> {
        let mut builder = RequestBuilder::new(target);
        let operands = &step.model.hal().main;
        for (slot, &operand) in step.inputs.iter().zip(&operands.input_indexes) {
            let declared = &operands.operands[operand as usize].dimensions;
            builder.input(&self.location(*slot)?, declared)?;
        }
        for (slot, &operand) in step.outputs.iter().zip(&operands.output_indexes) {
            let declared = &operands.operands[operand as usize].dimensions;
            builder.output(&self.location(*slot)?, declared)?;
        }
        Ok(builder)
    }

    /// Where a value is; an output that was computed already has the dimensions that it got.
    fn location(&self, slot: Slot) -> RuntimeResult<Location> {
        let nowhere = || RuntimeError::failed("a step of the plan has a value that is nowhere");
        match slot {
            Slot::Input(index) => self.placed.inputs.get(index).cloned().ok_or_else(nowhere),
            Slot::Output(index) => {
                let mut location = self.placed.outputs.get(index).cloned().ok_or_else(nowhere)?;
                if let (
                    Some(Some(shape)),
                    Location::Memory { dimensions, .. } | Location::Device { dimensions, .. },
                ) = (self.shapes.get(index), &mut location)
                {
                    dimensions.clone_from(&shape.dimensions);
                }
                Ok(location)
            }
            Slot::Temporary(index) => {
                if let Some(Some(store)) = self.temporaries.resident.get(index) {
                    return Ok(Location::Resident(store.clone()));
                }
                let temporary = self.compilation.plan().temporaries.get(index);
                let memory = self.temporaries.memory.as_ref();
                let (temporary, memory) = temporary.zip(memory).ok_or_else(nowhere)?;
                Ok(Location::Memory {
                    memory: memory.clone(),
                    range: temporary.range.clone(),
                    dimensions: Vec::new(),
                })
            }
        }
    }

    /// Keeps what a step reported for the whole.
    pub(super) fn keep(&mut self, step: &Step, computed: &Computed) {
        for (slot, shape) in step.outputs.iter().zip(computed.output_shapes.iter()) {
            if let Slot::Output(index) = *slot {
                self.shapes[index] = Some(shape.clone());
            }
        }
        self.timing = Some(match self.timing {
            None => computed.timing,
            Some(earlier) => Timing {
                time_on_device_us: sum(earlier.time_on_device_us, computed.timing.time_on_device_us),
                time_in_driver_us: sum(earlier.time_in_driver_us, computed.timing.time_in_driver_us),
            },
        });
    }

    /// The error of a step as the application's: with the shapes of its own outputs.
    fn of_the_whole(&self, step: &Step, error: RuntimeError) -> RuntimeError {
        if error.code() != ResultCode::OutputInsufficientSize {
            return error;
        }
        let outputs = self.compilation.outputs().iter().zip(&self.shapes);
        let mut shapes: Vec<OutputShape> = outputs
            .map(|(ty, shape)| {
                shape.clone().unwrap_or_else(|| OutputShape {
                    dimensions: ty.dimensions().to_vec(),
                    is_sufficient: true,
                })
            })
            .collect();
        for (slot, shape) in step.outputs.iter().zip(error.output_shapes()) {
            match *slot {
                Slot::Output(index) => shapes[index] = shape.clone(),
                _ if shape.is_sufficient => {}
                _ => {
                    return RuntimeError::failed(format!(
                        "a step on {} computed a larger value for another step than the model declares",
                        step.device.name()
                    ));
                }
            }
        }
        error.with_shapes(shapes)
    }
}

/// `u64::MAX` is no measurement.
fn sum(one: u64, other: u64) -> u64 {
    if one == u64::MAX || other == u64::MAX {
        u64::MAX
    } else {
        one.saturating_add(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_steps_add_up_only_if_all_were_measured() {
        assert_eq!(sum(2, 3), 5);
        assert_eq!(sum(2, u64::MAX), u64::MAX);
    }
}
