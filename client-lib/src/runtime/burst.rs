//! Many executions in a row: each step by a burst of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use nnhal::diag::tags;
use smallvec::SmallVec;

use super::arguments::{RunInput, RunOutput};
use super::compilation::Compilation;
use super::computed::Computed;
use super::execution::expect_time;
use super::finished::{Finished, asked};
use super::result::{RuntimeError, RuntimeResult};
use super::step::{Step, StepBurst};
use crate::burst::LayoutName;
use crate::execution::ExecuteOptions;
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
    /// Those of the request that the only step's burst has registered.
    registered: Option<KnownArguments>,
    /// Those of the last execution, if they are these.
    known: Option<KnownArguments>,
    /// Whether [`RunBurst::execute_again`] has failed in a way that another may go on after.
    is_to_go_on: bool,
}

/// Names the arguments of an execution that its burst knows, so that [`RunBurst::execute_again`] computes
/// them again without looking at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownArguments(Known);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Those of a request that is registered, all in shared memory.
    Request(u64),
    /// Values of such sizes, all in this process's own memory.
    Values(LayoutName),
}

impl KnownArguments {
    /// A name that no other arguments of this process have.
    fn of_request() -> KnownArguments {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        KnownArguments(Known::Request(NEXT.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Computed {
    /// What the whole reports whose only step this is.
    fn finished(self, options: &ExecuteOptions) -> Finished {
        Finished {
            output_shapes: self.output_shapes,
            timing: asked(options, self.timing),
            fallback: None,
        }
    }
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
            registered: None,
            known: None,
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
        self.known = None;
        let has_failed = std::mem::take(&mut self.is_to_go_on);
        if let ([step], [burst]) = (
            self.compilation.plan().steps.as_slice(),
            self.bursts.as_mut_slice(),
        ) && !has_failed
            && !step.device.is_cpu()
            && is_plain(inputs, outputs)
        {
            expect_time(options)?;
            match execute_plain(step, burst, (inputs, outputs), options) {
                Err(error) if may_go_on(&self.compilation, &error) => {
                    tracing::debug!(target: tags::EXECUTION, %error, "a burst's execution is done once more the other way");
                }
                result => {
                    return result.map(|(computed, layout)| {
                        self.known = layout.map(Known::Values).map(KnownArguments);
                        computed.finished(options)
                    });
                }
            }
        }
        self.registered = None;
        let finished = self
            .compilation
            .execute_by(inputs, outputs, options, Some(&mut self.bursts))?;
        if let [burst] = self.bursts.as_slice()
            && finished.fallback.is_none()
            && burst.registered_shapes().is_some()
            && is_shared(inputs, outputs)
        {
            self.registered = Some(KnownArguments::of_request());
            self.known = self.registered;
        }
        Ok(finished)
    }

    /// The name of the arguments of the last [`RunBurst::execute`], if they can be computed again by it: it
    /// was successful, one driver's device computes the whole, and they are all in this process's own memory,
    /// outputs without dimensions, or all in shared memory and came twice in a row; and they fit the rings.
    #[must_use]
    pub fn known(&self) -> Option<KnownArguments> {
        self.known
    }

    /// Executes once more with the arguments of this name. `values` has those in this process's own memory.
    /// `finished` tells what an execution before has reported, or nothing, and then what this one has; it
    /// stays as it was if this one reports nothing. `None` if the burst does not know the arguments any more,
    /// or the execution is to be done once more another way: [`RunBurst::execute`] does both.
    ///
    /// # Errors
    /// As [`Compilation::execute`].
    pub fn execute_again(
        &mut self,
        known: KnownArguments,
        values: &mut (impl OwnValues + ?Sized),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>> {
        self.is_to_go_on = false;
        let ([step], [burst]) = (
            self.compilation.plan().steps.as_slice(),
            self.bursts.as_mut_slice(),
        ) else {
            return None;
        };
        if let Err(error) = expect_time(options) {
            return Some(Err(error));
        }
        let completed = match known.0 {
            Known::Request(_) if self.registered == Some(known) => step.fire_again(burst, options)?,
            Known::Request(_) => return None,
            Known::Values(layout) => step.run_again(burst, layout, values, options)?,
        };
        let result = match completed {
            Ok(completed) => {
                let registered = match known.0 {
                    Known::Request(_) => burst.registered_shapes(),
                    Known::Values(_) => None,
                };
                let shapes = registered.unwrap_or(&step.declared_shapes);
                step.report_again(completed, shapes, options, finished)
            }
            Err(error) if error.is_argument() && matches!(known.0, Known::Values(_)) => {
                return Some(Err(error.into()));
            }
            Err(error) => Err(error.into()),
        };
        match result {
            Err(error) if may_go_on(&self.compilation, &error) => {
                tracing::debug!(target: tags::EXECUTION, %error, "a burst's execution is done once more the other way");
                self.is_to_go_on = true;
                None
            }
            result => Some(result),
        }
    }
}

/// Executes with arguments that are all in this process's own memory, and outputs whose dimensions the model
/// alone says.
fn execute_plain(
    step: &Step,
    burst: &mut StepBurst,
    (inputs, outputs): (&[RunInput<'_>], &mut [RunOutput<'_>]),
    options: &ExecuteOptions,
) -> RuntimeResult<(Computed, Option<LayoutName>)> {
    let open = step.burst(burst)?;
    let result = open.run_by_layout(
        &few(inputs.iter().map(plain_input)),
        &mut few(outputs.iter_mut().map(plain_output)),
        options,
    );
    burst.end_after(&result);
    let (completed, layout) = result?;
    Ok((step.computed(completed, &step.declared_shapes)?, layout))
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
fn is_plain(inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> bool {
    let mut outputs = outputs.iter();
    inputs
        .iter()
        .all(|input| matches!(input, RunInput::Omitted | RunInput::Bytes { .. }))
        && outputs.all(|output| matches!(output, RunOutput::Bytes { dimensions: [], .. }))
}

/// An input as a burst takes it.
fn plain_input<'a>(input: &RunInput<'a>) -> Input<'a> {
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
fn plain_output<'a>(output: &'a mut RunOutput<'_>) -> Output<'a> {
    match output {
        RunOutput::Bytes { bytes, .. } => Output::from(&mut **bytes),
        RunOutput::Memory { .. } | RunOutput::Device { .. } => no_room(),
    }
}

fn no_room<'a>() -> Output<'a> {
    Output::from(&mut [] as &mut [u8])
}
