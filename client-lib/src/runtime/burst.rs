//! Many executions in a row: each step by a burst of its own.

use nnhal::hal::OutputShape;

use super::execution::{Finished, expect_time};
use super::run::sanitised;
use super::step::{Step, StepBurst};
use super::{Compilation, RunInput, RunOutput, RuntimeError, RuntimeResult};
use crate::{ExecuteOptions, Input, Output};

/// Executions of one compilation in a row, faster each than on their own. The role of the NDK's
/// `ANeuralNetworksBurst`. One execution runs at a time.
#[derive(Debug)]
pub struct RunBurst {
    compilation: Compilation,
    /// By step.
    bursts: Vec<StepBurst>,
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
        if let ([step], [burst]) = (
            self.compilation.plan().steps.as_slice(),
            self.bursts.as_mut_slice(),
        ) && !step.device.is_cpu()
            && let Some((given, mut room)) = plain(inputs, outputs)
        {
            expect_time(options)?;
            match execute_plain(step, burst, (&given, &mut room), options) {
                Err(error) if may_go_on(&self.compilation, &error) => {
                    tracing::debug!(%error, "a burst's execution is done once more the other way");
                }
                result => return result.map(|shapes| self.finished(shapes)),
            }
        }
        self.compilation
            .execute_by(inputs, outputs, options, Some(&mut self.bursts))
    }

    fn finished(&self, completed: crate::Completed) -> Finished {
        let outputs = self.compilation.outputs().iter();
        let output_shapes = if completed.output_shapes.is_empty() {
            outputs
                .map(|ty| OutputShape {
                    dimensions: ty.dimensions().to_vec(),
                    is_sufficient: true,
                })
                .collect()
        } else {
            completed.output_shapes
        };
        Finished {
            output_shapes,
            timing: completed.timing,
            fallback: None,
        }
    }
}

fn execute_plain(
    step: &Step,
    burst: &mut StepBurst,
    (inputs, outputs): (&[Input<'_>], &mut [Output<'_>]),
    options: &ExecuteOptions,
) -> RuntimeResult<crate::Completed> {
    let burst = step
        .burst(burst)?
        .ok_or_else(|| RuntimeError::failed("the CPU of this process has no bursts"))?;
    sanitised(step, burst.run(inputs, outputs, options)?)
}

/// Whether there is another way after this error: another device, or the same one opened again.
fn may_go_on(compilation: &Compilation, error: &RuntimeError) -> bool {
    let may_recover = error.is_connection_lost() && compilation.policy().attempts > 0;
    may_recover || compilation.may_fall_back(error)
}

/// Arguments that are all in this process's own memory, as a burst takes them.
fn plain<'a>(
    inputs: &[RunInput<'a>],
    outputs: &'a mut [RunOutput<'_>],
) -> Option<(Vec<Input<'a>>, Vec<Output<'a>>)> {
    let inputs = inputs.iter().map(|input| match *input {
        RunInput::Omitted => Some(Input::omitted()),
        RunInput::Bytes { bytes, dimensions } => Some(Input::from(bytes).with_dimensions(dimensions)),
        RunInput::Memory { .. } | RunInput::Device { .. } => None,
    });
    let inputs = inputs.collect::<Option<Vec<_>>>()?;
    let outputs = outputs.iter_mut().map(|output| match output {
        // A burst does not assert dimensions.
        RunOutput::Bytes {
            bytes,
            dimensions: [],
        } => Some(Output::from(&mut **bytes)),
        _ => None,
    });
    Some((inputs, outputs.collect::<Option<Vec<_>>>()?))
}
