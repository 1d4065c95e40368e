//! Executions behind fences: each driver's step waits for the one before, and what runs in this process waits for all.

use std::borrow::Borrow;

use nnhal::fence::{Fence, FenceState};
use nnhal::hal::{HalVersion, OutputShape, Shape};
use nnhal::time::Deadline;

use super::arguments::{Location, Placed};
use super::event::Going;
use super::execution::{Finished, expect_time, settle};
use super::request_builder::Target;
use super::run::Run;
use super::step::{Prepared, Step};
use super::{Compilation, Room, RunEvent, RunInput, RuntimeError, RuntimeResult};
use crate::{ExecuteOptions, FencedExecution, FencedTiming, WaitFor};

/// What a fenced execution has still to end.
enum Launch {
    /// The last of these drivers' executions.
    Launched(Vec<FencedExecution>),
    /// Nothing.
    Ended(Finished),
}

impl Compilation {
    /// Starts an execution that waits for fences. The role of the NDK's
    /// `ANeuralNetworksExecution_startComputeWithDependencies`. Inputs in this process's own memory are copied before
    /// it returns. All output dimensions must be known. What runs in this process runs before the call returns.
    ///
    /// # Errors
    /// What is wrong with the arguments; one of the fences failed; a step cannot be launched, and the CPU may not take
    /// over.
    pub fn execute_fenced(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[Room],
        wait_for: &[&Fence],
        options: &ExecuteOptions,
    ) -> RuntimeResult<RunEvent> {
        expect_time(options)?;
        let placed = self.place(inputs, outputs)?;
        self.valid_request(&placed)?
            .check_fenced(self.valid())
            .map_err(|error| RuntimeError::bad_data(error.to_string()))?;
        match self.launch_as_allowed(&placed, wait_for, options) {
            Ok(Launch::Ended(finished)) => {
                let result = Ok(finished);
                settle(&placed, &result);
                let going = Going {
                    outcome: Some(result),
                    ..Going::default()
                };
                Ok(RunEvent::new(self, placed, *options, going))
            }
            Ok(Launch::Launched(launched)) => {
                // Later executions may be launched behind this one, which will have written by then.
                let unmeasured = FencedTiming {
                    launched: nnhal::hal::Timing::NONE,
                    fenced: nnhal::hal::Timing::NONE,
                };
                settle(&placed, &Ok(self.fenced_end(&placed, unmeasured)));
                let going = Going {
                    fences: wait_for.iter().map(|fence| (*fence).clone()).collect(),
                    launched,
                    outcome: None,
                };
                Ok(RunEvent::new(self, placed, *options, going))
            }
            Err(error) => {
                settle(&placed, &Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Launches it, once more on a device that is opened again if the application wants that, or runs it on the CPU of
    /// this process.
    fn launch_as_allowed(
        &self,
        placed: &Placed,
        wait_for: &[&Fence],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Launch> {
        let mut attempts = self.policy().attempts;
        loop {
            let error = match self.launch(placed, wait_for, options) {
                Err(error) if error.is_connection_lost() && attempts > 0 => {
                    attempts -= 1;
                    match self.revive(placed) {
                        Ok(()) => continue,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
                launched => return launched,
            };
            if !self.may_fall_back(&error) {
                return Err(error);
            }
            wait_for_fences(wait_for, options.deadline)?;
            return self.run_on_cpu(placed, options, &error).map(Launch::Ended);
        }
    }

    /// Whether an execution that a driver failed at after its launch is done once more.
    pub(super) fn is_repeatable(&self, error: &RuntimeError) -> bool {
        // Of a step whose worker died, those behind it are told as a failure.
        let is_lost = || self.plan().steps.iter().any(Step::is_lost);
        self.policy().attempts > 0 && (error.is_connection_lost() || is_lost())
    }

    /// The outcome of a fenced execution that failed after its launch: what doing it once more gives, if its worker died
    /// and the application wants that. What it waits for is done.
    pub(super) fn after_death(
        &self,
        placed: &Placed,
        options: &ExecuteOptions,
        error: RuntimeError,
    ) -> RuntimeResult<Finished> {
        if !self.is_repeatable(&error) {
            return Err(error);
        }
        self.revive(placed)?;
        self.run(placed, options, None)
    }

    /// What a fenced execution reports at its end.
    pub(super) fn fenced_end(&self, placed: &Placed, timing: FencedTiming) -> Finished {
        let outputs = self.outputs().iter().zip(&placed.outputs);
        let shapes = outputs.map(|(ty, location)| {
            let declared = Shape::new(ty.dimensions()).unwrap_or_default();
            let given = match location {
                Location::Memory { dimensions, .. } | Location::Device { dimensions, .. } => {
                    Shape::new(dimensions).unwrap_or_default()
                }
                Location::Omitted => Shape::SCALAR,
            };
            OutputShape {
                dimensions: declared.combine(&given).unwrap_or(declared).dims().to_vec(),
                is_sufficient: true,
            }
        });
        Finished {
            output_shapes: shapes.collect(),
            // Of several steps, the last one's time says nothing of the whole.
            timing: if self.plan().steps.len() == 1 {
                timing.launched
            } else {
                nnhal::hal::Timing::NONE
            },
            fallback: None,
        }
    }

    fn launch(
        &self,
        placed: &Placed,
        wait_for: &[&Fence],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Launch> {
        let mut run = Run::new(self, placed, options)?;
        let mut launched: Vec<FencedExecution> = Vec::new();
        // What the next step has to wait for: the last that was launched, or else what the application named.
        let mut is_launched = false;
        let mut is_waited = false;
        for step in &self.plan().steps {
            let builder = run.request(step, target(step))?;
            match step.prepared() {
                Prepared::Driver(prepared)
                    if step.device.info().hal_version >= HalVersion::V1_3 && !builder.is_staged() =>
                {
                    let last = launched.last().filter(|_| is_launched);
                    let fences: Vec<WaitFor<'_>> = match last {
                        Some(last) => vec![WaitFor::Execution(last)],
                        None if is_waited => Vec::new(),
                        None => wait_for.iter().map(|fence| WaitFor::Fence(fence)).collect(),
                    };
                    let execution = prepared.execute_fenced(&builder.request, &fences, options)?;
                    launched.push(execution);
                    is_launched = true;
                }
                _ => {
                    drop(builder);
                    match launched.last().filter(|_| is_launched) {
                        Some(last) => drop(last.wait(options.deadline)?),
                        None if is_waited => {}
                        None => wait_for_fences(wait_for, options.deadline)?,
                    }
                    is_launched = false;
                    is_waited = true;
                    let completed = run.execute(step, target(step), None)?;
                    run.keep(step, completed);
                }
            }
        }
        Ok(if is_launched {
            Launch::Launched(launched)
        } else {
            Launch::Ended(run.finished())
        })
    }
}

fn target(step: &Step) -> Target<'_> {
    if step.device.is_cpu() {
        Target::Cpu
    } else {
        Target::Device(&step.device)
    }
}

/// Waits for fences in this process.
pub(super) fn wait_for_fences<F: Borrow<Fence>>(fences: &[F], deadline: Deadline) -> RuntimeResult<()> {
    for fence in fences.iter().map(Borrow::borrow) {
        let state = fence
            .wait(deadline)
            .map_err(|error| RuntimeError::failed(format!("a fence cannot be waited for: {error}")))?;
        match state {
            FenceState::Signalled => {}
            FenceState::Pending => {
                return Err(RuntimeError::with_status(
                    nnhal::hal::ErrorStatus::MissedDeadlineTransient,
                    "a fence that the execution waits for was not signalled by its deadline",
                ));
            }
            FenceState::Failed => {
                return Err(RuntimeError::failed(
                    "a fence that the execution waits for failed",
                ));
            }
        }
    }
    Ok(())
}
