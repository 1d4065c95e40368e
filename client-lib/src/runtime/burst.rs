//! Many executions in a row: each step by a burst of its own.

use std::sync::Arc;

use nnhal::diag::tags;
use nnhal_hal::OutputShape;
use smallvec::SmallVec;

use super::arguments::{BoundArguments, RunInput, RunOutput};
use super::compilation::Compilation;
use super::computed::{Finished, asked};
use super::execution::expect_time;
use super::request_builder::Target;
use super::result::{RuntimeError, RuntimeResult};
use super::run::Run;
use super::step::{Step, StepBurst};
use crate::burst::RegisteredRequest;
use crate::execution::{Completed, ExecuteOptions};
use crate::values::{Input, Output, OwnValues};

/// A list that takes no memory of its own if it is short.
type Few<T> = SmallVec<[T; 4]>;

fn few<T>(items: impl Iterator<Item = T>) -> Few<T> {
    items.collect()
}

/// Executions of one compilation in a row, faster each than on their own. The role of the NDK's
/// `ANeuralNetworksBurst`. One execution runs at a time.
#[derive(Debug)]
pub struct RunBurst {
    compilation: Compilation,
    /// By step.
    bursts: Vec<StepBurst>,
    /// Whether [`RunBurst::fire`] has failed in a way that another may go on after.
    is_to_go_on: bool,
}

/// An execution that its burst's worker knows, so that [`RunBurst::fire`] computes it without looking at its
/// arguments. Made by [`RunBurst::register`].
#[derive(Debug)]
pub struct RegisteredRun {
    request: Arc<RegisteredRequest>,
    /// Of its outputs, as far as they are known before it is executed.
    known_shapes: Arc<[OutputShape]>,
}

impl Compilation {
    /// A burst, whose rings are made with the first execution.
    ///
    /// # Errors
    /// None at present.
    pub fn burst(&self) -> RuntimeResult<RunBurst> {
        Ok(RunBurst {
            compilation: self.clone(),
            bursts: self.plan().steps.iter().map(|_| StepBurst::default()).collect(),
            is_to_go_on: false,
        })
    }
}

impl RunBurst {
    /// What it executes.
    #[must_use]
    pub fn compilation(&self) -> &Compilation {
        &self.compilation
    }

    /// As [`Compilation::execute`].
    ///
    /// # Errors
    /// As [`Compilation::execute`].
    pub fn execute(
        &mut self,
        inputs: &[RunInput<'_>],
        outputs: &mut [RunOutput<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Finished> {
        let has_failed = std::mem::take(&mut self.is_to_go_on);
        if let Some((step, burst)) = only_step(&self.compilation, &mut self.bursts)
            && !has_failed
            && is_own(inputs, outputs)
        {
            expect_time(options)?;
            match execute_own(step, burst, (inputs, outputs), options) {
                Err(error) if may_go_on(&self.compilation, &error) => go_on_after(&error),
                result => return result,
            }
        }
        self.compilation
            .execute_by(inputs, outputs, options, Some(&mut self.bursts))
    }

    /// Has the worker keep an execution with these arguments, so that executing it again is short. `None`
    /// unless one driver's device computes the whole, and all arguments are in this process's own memory,
    /// outputs without dimensions, or all are in shared memory.
    ///
    /// # Errors
    /// What is wrong with an argument, as far as it can be told without its bytes; what keeps the worker from
    /// answering; too many are registered.
    pub fn register(
        &mut self,
        inputs: &[RunInput<'_>],
        outputs: &mut [RunOutput<'_>],
    ) -> RuntimeResult<Option<RegisteredRun>> {
        let Some((step, burst)) = only_step(&self.compilation, &mut self.bursts) else {
            return Ok(None);
        };
        if is_own(inputs, outputs) {
            let inputs = few(inputs.iter().map(own_input));
            let outputs = few(outputs.iter_mut().map(own_output));
            let result = step.burst(burst)?.register_values(&inputs, &outputs);
            burst.end_after(&result);
            return Ok(result?.map(|request| RegisteredRun {
                request,
                known_shapes: Arc::clone(&step.declared_shapes),
            }));
        }
        if !is_shared(inputs, outputs) {
            return Ok(None);
        }
        let rooms: Vec<_> = outputs.iter().map(|output| output.room()).collect();
        let make = |size| self.compilation.take_memory(size);
        let placed = BoundArguments::new(&self.compilation, inputs, &rooms, make)?;
        let run = Run::new(&self.compilation, &placed, &ExecuteOptions::new())?;
        let built = run.request(step, Target::Device(&step.device))?;
        let result = step.burst(burst)?.register(&built.request);
        burst.end_after(&result);
        Ok(Some(RegisteredRun {
            request: Arc::new(result?),
            known_shapes: step.known_shapes(&built.request),
        }))
    }

    /// Executes what is registered. `values` has the arguments that are in this process's own memory.
    /// `finished` tells what an execution before has reported, or nothing, and then what this one has; it
    /// stays as it was if this one reports nothing. `None` if it is not registered here, or not any more, or
    /// is to be done another way: [`RunBurst::execute`] does that.
    ///
    /// # Errors
    /// As [`Compilation::execute`].
    pub fn fire(
        &mut self,
        registered: &RegisteredRun,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>> {
        self.is_to_go_on = false;
        let (step, step_burst) = only_step(&self.compilation, &mut self.bursts)?;
        let burst = step.present_burst(step_burst)?;
        if !burst.has_registered(&registered.request) || options.loop_timeout.is_some() {
            return None;
        }
        if let Err(error) = expect_time(options) {
            return Some(Err(error));
        }
        let result = burst.fire_with(&registered.request, values, options);
        step_burst.end_after(&result);
        let result = match result {
            Ok(completed) => report(step, (completed, &registered.known_shapes), options, finished),
            Err(error) if error.is_argument() => return Some(Err(error.into())),
            Err(error) => Err(error.into()),
        };
        match result {
            Err(error) if may_go_on(&self.compilation, &error) => {
                go_on_after(&error);
                self.is_to_go_on = true;
                None
            }
            result => Some(result),
        }
    }
}

/// The only step of a compilation, and its burst, if a driver executes the whole.
#[inline]
fn only_step<'a>(
    compilation: &'a Compilation,
    bursts: &'a mut [StepBurst],
) -> Option<(&'a Step, &'a mut StepBurst)> {
    match (compilation.plan().steps.as_slice(), bursts) {
        ([step], [burst]) if !step.device.is_cpu() => Some((step, burst)),
        _ => None,
    }
}

/// Executes with arguments that are all in this process's own memory, and outputs whose dimensions the model
/// alone says.
fn execute_own(
    step: &Step,
    burst: &mut StepBurst,
    (inputs, outputs): (&[RunInput<'_>], &mut [RunOutput<'_>]),
    options: &ExecuteOptions,
) -> RuntimeResult<Finished> {
    let inputs = few(inputs.iter().map(own_input));
    let mut outputs = few(outputs.iter_mut().map(own_output));
    let result = step.burst(burst)?.run(&inputs, &mut outputs, options);
    burst.end_after(&result);
    let mut finished = Finished::default();
    report(step, (result?, &step.declared_shapes), options, &mut finished)?;
    Ok(finished)
}

/// Reports an execution of the only step, whose outputs are known to have such shapes. `finished` may tell
/// what an execution like this has reported, and then what this one has; it stays as it was after an error.
#[inline]
fn report(
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

#[cold]
fn go_on_after(error: &RuntimeError) {
    tracing::debug!(target: tags::EXECUTION, %error, "a burst's execution is done once more the other way");
}

/// Whether there is another way after this error: another device, or the same one opened again.
fn may_go_on(compilation: &Compilation, error: &RuntimeError) -> bool {
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
fn is_own(inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> bool {
    let mut outputs = outputs.iter();
    inputs
        .iter()
        .all(|input| matches!(input, RunInput::Omitted | RunInput::Bytes { .. }))
        && outputs.all(|output| matches!(output, RunOutput::Bytes { dimensions: [], .. }))
}

/// An input as a burst takes it.
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

/// An output as a burst takes it.
fn own_output<'a>(output: &'a mut RunOutput<'_>) -> Output<'a> {
    match output {
        RunOutput::Bytes { bytes, .. } => Output::from(&mut **bytes),
        RunOutput::Memory { .. } | RunOutput::Device { .. } => no_room(),
    }
}

fn no_room<'a>() -> Output<'a> {
    Output::from(&mut [] as &mut [u8])
}
