//! Executions behind fences: each driver's step waits for the one before, and what runs in this process waits
//! for all.

use nnhal::fence::Fence;
use nnhal_hal::HalVersion;
use nnhal_os::time::Deadline;

use super::arguments::{BoundArguments, OutputBuffer, RunInput};
use super::compilation::Compilation;
use super::computed::Finished;
use super::deadline::expect_time;
use super::event::{Going, RunEvent};
use super::execution::settle;
use super::fenced_end::{expect_ended, wait_for_fences};
use super::request_builder::Target;
use super::result::{RuntimeError, RuntimeResult};
use super::run::Run;
use super::step::{Prepared, Step};
use crate::execution::ExecuteOptions;
use crate::fenced::{FencedExecution, FencedTiming, WaitFor};

/// What a step of a fenced execution comes after.
#[derive(Clone, Copy, Debug)]
enum After {
    /// What the application wants waited for.
    Fences,
    /// The last step that was launched.
    Launched,
    /// Nothing that has not ended.
    Nothing,
}

/// What a fenced execution has still to end.
enum Launch {
    /// The last of these drivers' executions.
    Launched(Vec<FencedExecution>),
    /// Nothing.
    Ended(Finished),
}

impl Compilation {
    /// Starts an execution that waits for fences. The role of the NDK's
    /// `ANeuralNetworksExecution_startComputeWithDependencies`. Inputs in this process's own memory are
    /// copied before it returns. All output dimensions must be known. What runs in this process runs before
    /// the call returns.
    ///
    /// # Errors
    /// What is wrong with the arguments; one of the fences failed; a step cannot be launched, and the CPU may
    /// not take over. What was launched by then has ended when this returns; the text says so if it has not.
    pub fn execute_fenced(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[OutputBuffer],
        wait_for: &[&Fence],
        options: &ExecuteOptions,
    ) -> RuntimeResult<RunEvent> {
        let placed = self.place(inputs, outputs)?;
        self.valid_request(&placed)?
            .check_fenced(self.valid())
            .map_err(|error| RuntimeError::bad_data(error.to_string()))?;
        let launched = expect_time(options).and_then(|()| self.launch_as_allowed(&placed, wait_for, options));
        match launched {
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
                    launched: nnhal_hal::Timing::NONE,
                    fenced: nnhal_hal::Timing::NONE,
                };
                settle(&placed, &Ok(self.fenced_end(&placed, unmeasured)));
                let going = Going {
                    fences: wait_for.iter().map(|fence| (*fence).clone()).collect(),
                    launched,
                    ..Going::default()
                };
                Ok(RunEvent::new(self, placed, *options, going))
            }
            Err(error) => {
                settle(&placed, &Err(error.clone()));
                Err(error)
            }
        }
    }

    /// Launches it, once more on a device that is opened again if the application wants that, or runs it on
    /// the CPU of this process. On failure nothing of it goes on, unless the error says so.
    fn launch_as_allowed(
        &self,
        placed: &BoundArguments,
        wait_for: &[&Fence],
        options: &ExecuteOptions,
    ) -> RuntimeResult<Launch> {
        let mut attempts = self.policy().attempts;
        let mut may_fall_back = true;
        loop {
            let mut launched = Vec::new();
            let mut error = match self.launch(placed, wait_for, options, &mut launched) {
                Ok(Some(finished)) => return Ok(Launch::Ended(finished)),
                Ok(None) => return Ok(Launch::Launched(launched)),
                Err(error) => error,
            };
            let is_lost = error.is_connection_lost() || placed.has_lost_memory();
            let is_repeated = is_lost && attempts > 0;
            may_fall_back &= self.may_fall_back(&error);
            if !launched.is_empty() {
                // Whoever is next writes to the same memory.
                let goes_on = is_repeated || may_fall_back;
                end_of_launched(&launched, wait_for, options, goes_on)
                    .map_err(|reason| error.clone().about(&reason.to_string()))?;
            }
            if is_repeated {
                attempts -= 1;
                match self.revive(placed) {
                    Ok(()) => continue,
                    Err(failed) => error = failed,
                }
            }
            if !may_fall_back || !self.may_fall_back(&error) {
                return Err(error);
            }
            wait_for_fences(wait_for, options.deadline)?;
            let options = options.after_fences();
            return self.run_on_cpu(placed, &options, &error).map(Launch::Ended);
        }
    }

    /// Launches the steps, and runs those that cannot be launched. What was launched is in `launched`, also
    /// after an error. Returns the end, if the last step was not launched.
    fn launch(
        &self,
        placed: &BoundArguments,
        wait_for: &[&Fence],
        options: &ExecuteOptions,
        launched: &mut Vec<FencedExecution>,
    ) -> RuntimeResult<Option<Finished>> {
        let mut run = Run::new(self, placed, options)?;
        let mut after = After::Fences;
        for step in &self.plan().steps {
            let target = target(step);
            match step.prepared() {
                // A value that has to be copied is there only when the steps before have ended.
                Prepared::Driver(prepared)
                    if step.device.info().hal_version >= HalVersion::V1_3
                        && !run.is_copied(step, target)? =>
                {
                    let builder = run.request(step, target)?;
                    let fences: Vec<WaitFor<'_>> = match (after, launched.last()) {
                        (After::Launched, Some(last)) => vec![WaitFor::Execution(last)],
                        (After::Fences, _) => wait_for.iter().map(|fence| WaitFor::Fence(fence)).collect(),
                        _ => Vec::new(),
                    };
                    let execution = prepared.execute_fenced(&builder.request, &fences, &run.options)?;
                    drop(builder);
                    launched.push(execution);
                    after = After::Launched;
                }
                _ => {
                    match (after, launched.last()) {
                        (After::Launched, Some(last)) => drop(last.wait(run.options.deadline)?),
                        (After::Fences, _) => wait_for_fences(wait_for, run.options.deadline)?,
                        _ => {}
                    }
                    run.options = run.options.after_fences();
                    after = After::Nothing;
                    let computed = run.execute(step, target, None)?;
                    run.keep(step, &computed);
                }
            }
        }
        Ok(match after {
            After::Launched => None,
            After::Fences | After::Nothing => Some(run.finished()),
        })
    }
}

/// Waits until nothing of a launch that failed goes on. If the execution `goes_on` all the same, it waits for
/// its fences as long as it may; else a driver that waits for them is given the time of a call.
///
/// # Errors
/// Something goes on, or a fence failed or was not signalled by the deadline.
fn end_of_launched(
    launched: &[FencedExecution],
    wait_for: &[&Fence],
    options: &ExecuteOptions,
    goes_on: bool,
) -> RuntimeResult<()> {
    let fences = if goes_on {
        wait_for_fences(wait_for, options.deadline)
    } else {
        Ok(())
    };
    let deadline = match (options.wait_deadline(), launched.first()) {
        (Deadline::NONE, Some(first)) => first.call_deadline(),
        (own, _) => own,
    };
    expect_ended(launched, deadline)?;
    fences
}

fn target(step: &Step) -> Target<'_> {
    if step.device.is_cpu() {
        Target::Cpu
    } else {
        Target::Device(&step.device)
    }
}
