//! Many executions in a row: each step by a burst of its own.

use std::sync::Arc;

use nnhal_hal::OutputShape;

use super::arguments::{RunInput, RunOutput};
use super::compilation::Compilation;
use super::computed::Finished;
use super::deadline::expect_time;
use super::direct::{may_go_on, report};
use super::result::{RuntimeError, RuntimeResult};
use super::step::{Step, StepBurst};
use crate::burst::RegisteredRequest;
use crate::execution::ExecuteOptions;
use crate::values::OwnValues;

/// Executions of one compilation in a row, faster each than on their own. The role of the NDK's
/// `ANeuralNetworksBurst`. One execution runs at a time.
#[derive(Debug)]
pub struct RunBurst {
    compilation: Compilation,
    /// By step.
    bursts: Vec<StepBurst>,
    /// What [`RunBurst::fire`] has failed with, if another way may go on after it.
    failed: Option<RuntimeError>,
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
            failed: None,
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
        let mut failed = self.failed.take();
        if let Some((step, burst)) = only_step(&self.compilation, &mut self.bursts)
            && failed.is_none()
        {
            let arguments = (inputs, &mut *outputs);
            match self.compilation.execute_directly(step, burst, arguments, options) {
                Some(Err(error)) if may_go_on(&self.compilation, &error) => failed = Some(error),
                Some(result) => return result,
                None => {}
            }
        }
        self.compilation
            .execute_by(inputs, outputs, options, (Some(&mut self.bursts), failed))
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
        self.compilation.expect_counts(inputs, outputs)?;
        if let Some((inputs, outputs)) = self.compilation.own_values(inputs, outputs) {
            let result = step.burst(burst)?.register_values(&inputs, &outputs);
            burst.end_after(&result);
            return Ok(result?.map(|request| RegisteredRun {
                request,
                known_shapes: Arc::clone(&step.declared_shapes),
            }));
        }
        let Some(request) = self.compilation.shared_request(inputs, outputs) else {
            return Ok(None);
        };
        let request = request?;
        let result = step.burst(burst)?.register(&request);
        burst.end_after(&result);
        Ok(Some(RegisteredRun {
            request: Arc::new(result?),
            known_shapes: step.known_shapes(&request),
        }))
    }

    /// Executes what is registered. `values` has the arguments that are in this process's own memory.
    /// `finished` tells what an execution before has reported, or nothing, and then what this one has; it
    /// stays as it was if this one reports nothing.
    ///
    /// `None` if it is not registered here, or not any more, or is to be done another way. Then call
    /// [`RunBurst::execute`] with the same arguments next, which goes on from there.
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
        self.failed = None;
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
            Err(error) => Err(step.failed(error.into(), &registered.known_shapes)),
        };
        match result {
            Err(error) if may_go_on(&self.compilation, &error) => {
                self.failed = Some(error);
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
    Some((compilation.only_step()?, bursts.first_mut()?))
}
