//! Executing a compiled model: step after step, and what happens when one fails.

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_hal::validate::ValidRequest;

use super::arguments::{BoundArguments, Location, OutputBuffer, RunInput, RunOutput};
use super::compilation::Compilation;
use super::computed::Finished;
use super::deadline::expect_time;
use super::direct::{ByModel, may_go_on};
use super::request_builder::{RequestBuilder, Target};
use super::result::{ResultCode, RuntimeError, RuntimeResult, once_more_if_lost};
use super::run::Run;
use super::step::{Step, StepBurst};
use crate::execution::ExecuteOptions;
use crate::trace;

/// What became of an execution, after all attempts at it.
struct Attempts {
    result: RuntimeResult<Finished>,
    /// Whether nobody writes to its memories any more. A driver that gave no answer may, also after another
    /// attempt, or the CPU, has given the result.
    is_over: bool,
}

impl Compilation {
    /// Executes and waits for the end. The role of the NDK's `ANeuralNetworksExecution_compute`.
    ///
    /// # Errors
    /// [`ResultCode::BadData`] for what is wrong with an argument; [`ResultCode::OutputInsufficientSize`]
    /// with the shapes that are needed; what the device failed with, where the CPU may not take over or
    /// failed too.
    pub fn execute(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &mut [RunOutput<'_>],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Finished> {
        let mut failed = None;
        if let Some(step) = self.only_step() {
            let arguments = (inputs, &mut *outputs);
            match self.execute_directly(step, &mut ByModel, arguments, options) {
                Some(Err(error)) if may_go_on(self, &error) => failed = Some(error),
                Some(result) => return result,
                None => {}
            }
        }
        self.execute_by(inputs, outputs, options, (None, failed))
    }

    /// As [`Compilation::execute`], each step by its burst if there are some, perhaps after a first attempt
    /// that has failed.
    pub(super) fn execute_by(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &mut [RunOutput<'_>],
        options: &ExecuteOptions,
        (bursts, failed): (Option<&mut [StepBurst]>, Option<RuntimeError>),
    ) -> RuntimeResult<Finished> {
        let rooms: Vec<OutputBuffer> = outputs.iter().map(RunOutput::room).collect();
        let placed = BoundArguments::new(self, inputs, &rooms, |size| self.take_memory(size))?;
        let Attempts { result, is_over } = self.attempt(&placed, options, bursts, true, failed);
        if let Ok(finished) = &result {
            for (index, output) in outputs.iter_mut().enumerate() {
                if let RunOutput::Bytes { bytes, .. } = output {
                    let types = (self.outputs(), self.layouts());
                    placed.read_output(index, types, &finished.output_shapes, bytes)?;
                }
            }
        }
        if is_over {
            placed
                .memory
                .into_iter()
                .for_each(|memory| self.give_back(memory));
        }
        result
    }

    /// Executes with arguments that are in their places. The CPU of this process takes over only if it
    /// `may_fall_back`.
    pub(super) fn run(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        may_fall_back: bool,
    ) -> RuntimeResult<Finished> {
        self.attempt(placed, options, None, may_fall_back, None).result
    }

    /// The same after a first attempt that failed with `error`.
    pub(super) fn run_after(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        error: RuntimeError,
    ) -> RuntimeResult<Finished> {
        self.attempt(placed, options, None, true, Some(error)).result
    }

    fn attempt(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        bursts: Option<&mut [StepBurst]>,
        may_fall_back: bool,
        failed: Option<RuntimeError>,
    ) -> Attempts {
        let mut is_over = true;
        let result = self.run_as_allowed(placed, options, bursts, (&mut is_over, may_fall_back), failed);
        settle(placed, &result);
        Attempts { result, is_over }
    }

    /// Executes, as often as the application wants; `is_over` is false afterwards if an attempt may go on.
    fn run_as_allowed(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        mut bursts: Option<&mut [StepBurst]>,
        (is_over, mut may_fall_back): (&mut bool, bool),
        mut failed: Option<RuntimeError>,
    ) -> RuntimeResult<Finished> {
        let _computes = trace::span(SpanKind::Compute, 0);
        tracing::debug!(target: tags::EXECUTION, steps = self.plan().steps.len(), "an execution");
        if failed.is_none() {
            expect_time(options)?;
        }
        if self.plan().steps.len() > 1 {
            self.check(placed)?;
        }
        let mut attempts = self.policy().attempts;
        loop {
            let error = match failed.take() {
                Some(error) => error,
                None => {
                    let mut run = Run::new(self, placed, options)?;
                    run.may_fall_back = may_fall_back;
                    let result = run.steps(bursts.as_deref_mut());
                    if run.is_over {
                        self.give_back_temporaries(std::mem::take(&mut run.temporaries));
                    }
                    *is_over &= run.is_over;
                    match result {
                        Ok(finished) => return Ok(finished),
                        Err(error) => error,
                    }
                }
            };
            // A model that killed a worker stays one, whatever comes of later attempts.
            may_fall_back &= self.may_fall_back(&error);
            if attempts == 0 || !(error.is_connection_lost() || placed.has_lost_memory()) {
                return if may_fall_back {
                    self.run_on_cpu(placed, options, &error)
                } else {
                    Err(error)
                };
            }
            attempts -= 1;
            tracing::warn!(target: tags::EXECUTION, %error, "the execution is repeated on a device that is opened again");
            match self.revive(placed) {
                Err(error) if may_fall_back && self.may_fall_back(&error) => {
                    return self.run_on_cpu(placed, options, &error);
                }
                revived => revived?,
            }
        }
    }

    /// Prepares again what died with its worker, and gets the memories back.
    pub(super) fn revive(&self, placed: &BoundArguments) -> RuntimeResult<()> {
        once_more_if_lost(|| {
            self.revive_steps()?;
            for (locations, is_needed) in [(&placed.inputs, true), (&placed.outputs, false)] {
                for location in locations {
                    if let Location::Device { memory, .. } = location {
                        memory.restore(is_needed)?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Whether the worker of a step is dead.
    pub(super) fn has_lost_step(&self) -> bool {
        self.plan().steps.iter().any(Step::is_lost)
    }

    /// Whether the CPU of this process may take over after this error.
    pub(super) fn may_fall_back(&self, error: &RuntimeError) -> bool {
        self.policy().may_fall_back_after(error)
            && (self.policy().may_outlive_death || !self.has_lost_step())
            && !self.is_on_cpu()
            && !is_reported(error)
    }

    /// Executes the whole model on the CPU of this process.
    pub(super) fn run_on_cpu(
        &self,
        placed: &BoundArguments,
        options: &ExecuteOptions,
        why: &RuntimeError,
    ) -> RuntimeResult<Finished> {
        tracing::warn!(target: tags::EXECUTION, error = %why, "the CPU of this process takes over");
        let program = self.whole_on_cpu()?;
        let built = self.whole_request(placed, Target::Cpu)?;
        let completed = program.execute(&built.request, options)?;
        built.store(&completed.output_shapes)?;
        Ok(Finished {
            output_shapes: completed.output_shapes.into(),
            timing: completed.timing,
            fallback: Some(why.to_string()),
        })
    }

    /// Checks the arguments against the whole model, so that what is wrong is told by the application's own
    /// indexes.
    fn check(&self, placed: &BoundArguments) -> RuntimeResult<()> {
        self.valid_request(placed).map(drop)
    }

    pub(super) fn valid_request(&self, placed: &BoundArguments) -> RuntimeResult<ValidRequest> {
        let built = self.whole_request(placed, Target::Nobody)?;
        ValidRequest::new(self.valid(), built.request.checked()?)
            .map_err(|error| RuntimeError::bad_data(error.to_string()))
    }

    /// The request with all arguments of the whole model.
    fn whole_request<'a>(
        &self,
        placed: &'a BoundArguments,
        target: Target<'a>,
    ) -> RuntimeResult<RequestBuilder<'a>> {
        let mut builder = RequestBuilder::new(target);
        for (location, ty) in placed.inputs.iter().zip(self.inputs()) {
            builder.input(location, ty.dimensions())?;
        }
        for (location, ty) in placed.outputs.iter().zip(self.outputs()) {
            builder.output(location, ty.dimensions())?;
        }
        Ok(builder)
    }
}

/// Gives device memories their new values, or takes them away.
pub(super) fn settle(placed: &BoundArguments, result: &RuntimeResult<Finished>) {
    for (index, location) in placed.outputs.iter().enumerate() {
        let Location::Device { memory, .. } = location else {
            continue;
        };
        match result {
            Ok(finished) => {
                let shape = finished.output_shapes.get(index);
                memory
                    .store()
                    .written(shape.map(|shape| shape.dimensions.clone()).unwrap_or_default());
            }
            Err(_) => memory.store().forget(),
        }
    }
}

/// Whether an execution's error is the application's to see, whatever else could be done.
pub(super) fn is_reported(error: &RuntimeError) -> bool {
    matches!(
        error.code(),
        ResultCode::OutputInsufficientSize
            | ResultCode::MissedDeadlineTransient
            | ResultCode::MissedDeadlinePersistent
    )
}
