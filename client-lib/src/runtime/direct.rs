//! Executions whose arguments the driver takes as they are: one device computes the whole, and all arguments
//! are in this process's own memory or all in shared memory. Nothing has to be placed or copied for them.
//! Inputs may be left out in both cases.

use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_hal::OutputShape;
use smallvec::SmallVec;

use super::arguments::{RunInput, RunOutput, expect_count, range_in};
use super::compilation::Compilation;
use super::computed::{Finished, asked};
use super::deadline::expect_time;
use super::request_builder::{RequestBuilder, Target, open_part};
use super::result::{RuntimeError, RuntimeResult};
use super::step::{Step, StepBurst};
use crate::execution::{Completed, ExecuteOptions};
use crate::request::Request;
use crate::tensor::TensorType;
use crate::trace;
use crate::values::{Input, Output};

/// A list that takes no memory of its own if it is short.
pub(super) type Few<T> = SmallVec<[T; 4]>;

/// What carries a step's executions to its driver.
pub(super) trait Carrier {
    /// With values in this process's own memory.
    fn run(
        &mut self,
        step: &Step,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed>;

    /// With values in memories.
    fn execute(
        &mut self,
        step: &Step,
        request: &Request,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed>;
}

/// The prepared model's own ways.
pub(super) struct ByModel;

impl Carrier for ByModel {
    fn run(
        &mut self,
        step: &Step,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        step.run(inputs, outputs, options)
    }

    fn execute(
        &mut self,
        step: &Step,
        request: &Request,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        step.execute(request, options, None)
    }
}

impl Carrier for StepBurst {
    fn run(
        &mut self,
        step: &Step,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        let result = step.burst(self)?.run(inputs, outputs, options);
        self.end_after(&result);
        Ok(result?)
    }

    fn execute(
        &mut self,
        step: &Step,
        request: &Request,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        step.execute(request, options, Some(self))
    }
}

impl Compilation {
    /// The only step, if a driver executes the whole.
    #[inline]
    pub(super) fn only_step(&self) -> Option<&Step> {
        match self.plan().steps.as_slice() {
            [step] if !step.device.is_cpu() => Some(step),
            _ => None,
        }
    }

    /// Executes its only step with such arguments; `None` if they are others.
    pub(super) fn execute_directly(
        &self,
        step: &Step,
        carrier: &mut impl Carrier,
        (inputs, outputs): (&[RunInput<'_>], &mut [RunOutput<'_>]),
        options: &ExecuteOptions,
    ) -> Option<RuntimeResult<Finished>> {
        if let Err(error) = self.expect_counts(inputs, outputs) {
            return Some(Err(error));
        }
        if let Some((inputs, mut outputs)) = self.own_values(inputs, outputs) {
            let carry = || carrier.run(step, &inputs, &mut outputs, options);
            return Some(carried(step, &step.declared_shapes, options, carry));
        }
        let result = self.shared_request(inputs, outputs)?.and_then(|request| {
            let carry = || carrier.execute(step, &request, options);
            carried(step, &step.known_shapes(&request), options, carry)
        });
        Some(result)
    }

    pub(super) fn expect_counts(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[RunOutput<'_>],
    ) -> RuntimeResult<()> {
        expect_count("inputs", inputs.len(), self.inputs().len())?;
        expect_count("outputs", outputs.len(), self.outputs().len())
    }

    /// Arguments in this process's own memory as a prepared model and a burst take them; `None` if they are
    /// not all there, or say of outputs what the model does not.
    pub(super) fn own_values<'a>(
        &self,
        inputs: &[RunInput<'a>],
        outputs: &'a mut [RunOutput<'_>],
    ) -> Option<(Few<Input<'a>>, Few<Output<'a>>)> {
        // By pushing: to collect such values from options takes 300 instructions more, a tenth of a call.
        let mut own_inputs = Few::new();
        for input in inputs {
            own_inputs.push(own_input(input)?);
        }
        let mut own_outputs = Few::new();
        for (output, ty) in outputs.iter_mut().zip(self.outputs()) {
            own_outputs.push(own_output(output, ty)?);
        }
        Some((own_inputs, own_outputs))
    }

    /// The request with arguments that are all in shared memory; `None` if they are not.
    pub(super) fn shared_request(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[RunOutput<'_>],
    ) -> Option<RuntimeResult<Request>> {
        let mut builder = RequestBuilder::with_room(Target::Nobody, (inputs.len(), outputs.len()));
        for (index, (input, ty)) in inputs.iter().zip(self.inputs()).enumerate() {
            match *input {
                RunInput::Omitted => builder.omitted_input(),
                RunInput::Memory {
                    memory,
                    offset,
                    length,
                    dimensions,
                } => match range_in(("input", index), memory, (offset, length)) {
                    Ok(range) => builder.memory_input(memory, range, (ty.dimensions(), dimensions)),
                    Err(error) => return Some(Err(error)),
                },
                RunInput::Bytes { .. } | RunInput::Device { .. } => return None,
            }
        }
        for (index, (output, ty)) in outputs.iter().zip(self.outputs()).enumerate() {
            let RunOutput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } = *output
            else {
                return None;
            };
            match range_in(("output", index), memory, (offset, length)) {
                Ok(range) => builder.memory_output(memory, range, (ty.dimensions(), dimensions)),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(builder.request))
    }
}

fn own_input<'a>(input: &RunInput<'a>) -> Option<Input<'a>> {
    match *input {
        RunInput::Omitted => Some(Input::omitted()),
        RunInput::Bytes { bytes, dimensions } => Some(Input::from(bytes).with_dimensions(dimensions)),
        RunInput::Memory { .. } | RunInput::Device { .. } => None,
    }
}

fn own_output<'a>(output: &'a mut RunOutput<'_>, ty: &TensorType) -> Option<Output<'a>> {
    match output {
        RunOutput::Bytes { bytes, dimensions } if open_part(ty.dimensions(), dimensions).is_empty() => {
            Some(Output::from(&mut **bytes))
        }
        RunOutput::Bytes { .. } | RunOutput::Memory { .. } | RunOutput::Device { .. } => None,
    }
}

/// Executes the only step, whose outputs are known to have such shapes, unless it is too late for that.
fn carried(
    step: &Step,
    known: &Arc<[OutputShape]>,
    options: &ExecuteOptions,
    carry: impl FnOnce() -> RuntimeResult<Completed>,
) -> RuntimeResult<Finished> {
    expect_time(options)?;
    tracing::debug!(target: tags::EXECUTION, device = step.device.name(), "an execution of one step");
    let _computes = trace::span(SpanKind::Compute, 0);
    let _runs = trace::span(SpanKind::Step, 0);
    let completed = carry().map_err(|error| step.failed(error, known))?;
    let mut finished = Finished::default();
    report(step, (completed, known), options, &mut finished)?;
    Ok(finished)
}

/// Reports an execution of the only step, whose outputs are known to have such shapes. `finished` may tell
/// what an execution like this has reported, and then what this one has; it stays as it was after an error.
#[inline]
pub(super) fn report(
    step: &Step,
    (completed, known): (Completed, &Arc<[OutputShape]>),
    options: &ExecuteOptions,
    finished: &mut Finished,
) -> RuntimeResult<()> {
    let is_as_before = completed.output_shapes.is_empty() && Arc::ptr_eq(&finished.output_shapes, known);
    if !is_as_before {
        finished.output_shapes = step.output_shapes(completed.output_shapes, known)?;
    }
    finished.timing = asked(options, completed.timing);
    finished.fallback = None;
    Ok(())
}

/// Whether there is another way after this error: another device, or the same one opened again.
pub(super) fn may_go_on(compilation: &Compilation, error: &RuntimeError) -> bool {
    let may_recover = error.is_connection_lost() && compilation.policy().attempts > 0;
    may_recover || compilation.may_fall_back(error)
}
