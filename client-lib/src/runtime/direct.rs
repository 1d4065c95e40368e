//! Executions whose arguments the driver takes as they are: one device computes the whole, and all arguments
//! are in this process's own memory or all in shared memory. Nothing has to be placed or copied for them.

use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::diag::trace::{Guard, SpanKind};
use nnhal_hal::OutputShape;
use smallvec::SmallVec;

use super::arguments::{RunInput, RunOutput, expect_count, range_in};
use super::compilation::Compilation;
use super::computed::{Finished, asked};
use super::request_builder::{RequestBuilder, Target};
use super::result::{RuntimeError, RuntimeResult};
use super::step::{Step, StepBurst};
use crate::execution::{Completed, ExecuteOptions};
use crate::request::Request;
use crate::trace;
use crate::values::{Input, Output};

/// A list that takes no memory of its own if it is short.
pub(super) type Few<T> = SmallVec<[T; 4]>;

fn few<T>(items: impl Iterator<Item = T>) -> Few<T> {
    items.collect()
}

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
pub(super) struct Synchronously;

impl Carrier for Synchronously {
    fn run(
        &mut self,
        step: &Step,
        inputs: &[Input<'_>],
        outputs: &mut [Output<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        let _spans = spans(step);
        step.run(inputs, outputs, options)
    }

    fn execute(
        &mut self,
        step: &Step,
        request: &Request,
        options: &ExecuteOptions,
    ) -> RuntimeResult<Completed> {
        let _spans = spans(step);
        step.execute(request, options, None)
    }
}

/// Tells logs of an execution, and traces until this is dropped.
fn spans(step: &Step) -> (Option<Guard<'static>>, Option<Guard<'static>>) {
    tracing::debug!(target: tags::EXECUTION, device = step.device.name(), "an execution of one step");
    let computes = trace::span(SpanKind::Compute, 0);
    // What is behind is dropped last.
    (trace::span(SpanKind::Step, 0), computes)
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
        if is_own(inputs, outputs) {
            let (inputs, mut outputs) = own_values(inputs, outputs);
            let completed = carrier.run(step, &inputs, &mut outputs, options);
            return Some(
                completed.and_then(|completed| finished(step, completed, &step.declared_shapes, options)),
            );
        }
        let result = self.shared_request(inputs, outputs)?.and_then(|request| {
            let completed = carrier.execute(step, &request, options)?;
            finished(step, completed, &step.known_shapes(&request), options)
        });
        Some(result)
    }

    /// The request with arguments that are all in shared memory; `None` if they are not.
    pub(super) fn shared_request(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[RunOutput<'_>],
    ) -> Option<RuntimeResult<Request>> {
        is_shared(inputs, outputs).then(|| self.request_in_memories(inputs, outputs))
    }

    fn request_in_memories(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[RunOutput<'_>],
    ) -> RuntimeResult<Request> {
        expect_count("inputs", inputs.len(), self.inputs().len())?;
        expect_count("outputs", outputs.len(), self.outputs().len())?;
        let mut builder = RequestBuilder::new(Target::Nobody);
        for (index, (input, ty)) in inputs.iter().zip(self.inputs()).enumerate() {
            if let RunInput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } = *input
            {
                let range = range_in(("input", index), memory, (offset, length))?;
                builder.memory_input(memory, range, (ty.dimensions(), dimensions));
            }
        }
        for (index, (output, ty)) in outputs.iter().zip(self.outputs()).enumerate() {
            if let RunOutput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } = *output
            {
                let range = range_in(("output", index), memory, (offset, length))?;
                builder.memory_output(memory, range, (ty.dimensions(), dimensions));
            }
        }
        Ok(builder.request)
    }
}

/// What an execution of the only step reports, whose outputs are known to have such shapes.
fn finished(
    step: &Step,
    completed: Completed,
    known: &Arc<[OutputShape]>,
    options: &ExecuteOptions,
) -> RuntimeResult<Finished> {
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

/// Whether all arguments are in shared memory.
fn is_shared(inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> bool {
    let mut outputs = outputs.iter();
    inputs
        .iter()
        .all(|input| matches!(input, RunInput::Memory { .. }))
        && outputs.all(|output| matches!(output, RunOutput::Memory { .. }))
}

/// Whether all arguments are in this process's own memory, without dimensions that a burst cannot assert.
pub(super) fn is_own(inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> bool {
    let mut outputs = outputs.iter();
    inputs
        .iter()
        .all(|input| matches!(input, RunInput::Omitted | RunInput::Bytes { .. }))
        && outputs.all(|output| matches!(output, RunOutput::Bytes { dimensions: [], .. }))
}

/// Arguments in this process's own memory as a prepared model and a burst take them.
pub(super) fn own_values<'a>(
    inputs: &[RunInput<'a>],
    outputs: &'a mut [RunOutput<'_>],
) -> (Few<Input<'a>>, Few<Output<'a>>) {
    let inputs = inputs.iter().map(own_input);
    (few(inputs), few(outputs.iter_mut().map(own_output)))
}

fn own_input<'a>(input: &RunInput<'a>) -> Input<'a> {
    match *input {
        RunInput::Bytes {
            bytes,
            dimensions: [],
        } => Input::from(bytes),
        RunInput::Bytes { bytes, dimensions } => Input::from(bytes).with_dimensions(dimensions),
        RunInput::Omitted | RunInput::Memory { .. } | RunInput::Device { .. } => Input::omitted(),
    }
}

fn own_output<'a>(output: &'a mut RunOutput<'_>) -> Output<'a> {
    match output {
        RunOutput::Bytes { bytes, .. } => Output::from(&mut **bytes),
        RunOutput::Memory { .. } | RunOutput::Device { .. } => no_room(),
    }
}

fn no_room<'a>() -> Output<'a> {
    Output::from(&mut [] as &mut [u8])
}
