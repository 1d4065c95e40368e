//! Many executions in a row: each step by a burst of its own.

use nnhal::diag::tags;

use super::execution::{Finished, expect_time};
use super::run::{asked, sanitised};
use super::step::{Step, StepBurst};
use super::{Compilation, RunInput, RunOutput, RuntimeError, RuntimeResult};
use crate::{Completed, ExecuteOptions, Input, Memory, Output};

/// Arguments of which lists are made without allocating.
const FEW: usize = 4;

/// Executions of one compilation in a row, faster each than on their own. The role of the NDK's
/// `ANeuralNetworksBurst`. One execution runs at a time.
#[derive(Debug)]
pub struct RunBurst {
    compilation: Compilation,
    /// By step.
    bursts: Vec<StepBurst>,
    /// The arguments of the request that the only step's burst has registered.
    known: Option<KnownArguments>,
}

/// Arguments that were checked and registered, all in shared memory: those of a reusable execution that is computed again
/// need not be looked at again.
#[derive(Debug)]
struct KnownArguments {
    inputs: Vec<Part>,
    outputs: Vec<Part>,
}

/// A part of a shared memory, and the dimensions of the value there.
#[derive(Debug)]
struct Part {
    memory: Memory,
    offset: u64,
    length: u64,
    dimensions: Vec<u32>,
}

impl Part {
    fn is(&self, memory: &Memory, (offset, length): (u64, u64), dimensions: &[u32]) -> bool {
        self.offset == offset
            && self.length == length
            && self.dimensions == dimensions
            && self.memory.is_same(memory)
    }
}

impl KnownArguments {
    /// The arguments, if all are in shared memory.
    fn of(inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> Option<KnownArguments> {
        let part = |memory: &Memory, offset, length, dimensions: &[u32]| Part {
            memory: memory.clone(),
            offset,
            length,
            dimensions: dimensions.to_vec(),
        };
        let inputs = inputs.iter().map(|input| match *input {
            RunInput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } => Some(part(memory, offset, length, dimensions)),
            _ => None,
        });
        let outputs = outputs.iter().map(|output| match *output {
            RunOutput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } => Some(part(memory, offset, length, dimensions)),
            _ => None,
        });
        Some(KnownArguments {
            inputs: inputs.collect::<Option<_>>()?,
            outputs: outputs.collect::<Option<_>>()?,
        })
    }

    /// Whether these are the same.
    fn are(&self, inputs: &[RunInput<'_>], outputs: &[RunOutput<'_>]) -> bool {
        let is_input = |(known, input): (&Part, &RunInput<'_>)| match *input {
            RunInput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } => known.is(memory, (offset, length), dimensions),
            _ => false,
        };
        let is_output = |(known, output): (&Part, &RunOutput<'_>)| match *output {
            RunOutput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } => known.is(memory, (offset, length), dimensions),
            _ => false,
        };
        self.inputs.len() == inputs.len()
            && self.outputs.len() == outputs.len()
            && self.inputs.iter().zip(inputs).all(is_input)
            && self.outputs.iter().zip(outputs).all(is_output)
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
            known: None,
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
            && is_plain(inputs, outputs)
        {
            expect_time(options)?;
            match execute_plain(step, burst, (inputs, outputs), options) {
                Err(error) if may_go_on(&self.compilation, &error) => {
                    tracing::debug!(target: tags::EXECUTION, %error, "a burst's execution is done once more the other way");
                }
                result => {
                    return result.map(|completed| Finished {
                        output_shapes: completed.output_shapes,
                        timing: asked(options, completed.timing),
                        fallback: None,
                    });
                }
            }
        }
        if let Some(result) = self.execute_known(inputs, outputs, options) {
            match result {
                Err(error) if may_go_on(&self.compilation, &error) => {
                    tracing::debug!(target: tags::EXECUTION, %error, "a burst's execution is done once more the other way");
                }
                result => return result,
            }
        }
        self.known = None;
        let finished = self
            .compilation
            .execute_by(inputs, outputs, options, Some(&mut self.bursts))?;
        if let [burst] = self.bursts.as_slice()
            && burst.has_registered()
        {
            self.known = KnownArguments::of(inputs, outputs);
        }
        Ok(finished)
    }

    /// Executes once more what the burst knows, if these are its arguments.
    fn execute_known(
        &mut self,
        inputs: &[RunInput<'_>],
        outputs: &[RunOutput<'_>],
        options: &ExecuteOptions,
    ) -> Option<RuntimeResult<Finished>> {
        let known = self.known.as_ref()?;
        let ([step], [burst]) = (
            self.compilation.plan().steps.as_slice(),
            self.bursts.as_mut_slice(),
        ) else {
            return None;
        };
        if !known.are(inputs, outputs) {
            return None;
        }
        if let Err(error) = expect_time(options) {
            return Some(Err(error));
        }
        let completed = step.fire_again(burst, options)?;
        let completed = completed.and_then(|completed| sanitised(step, completed));
        Some(completed.map(|completed| Finished {
            output_shapes: completed.output_shapes,
            timing: asked(options, completed.timing),
            fallback: None,
        }))
    }
}

/// Executes with arguments that are all in this process's own memory.
fn execute_plain(
    step: &Step,
    burst: &mut StepBurst,
    (inputs, outputs): (&[RunInput<'_>], &mut [RunOutput<'_>]),
    options: &ExecuteOptions,
) -> RuntimeResult<Completed> {
    let open = step.burst(burst)?;
    let result = if inputs.len() <= FEW && outputs.len() <= FEW {
        // No memory is allocated for lists that are short.
        let (ins, outs) = (inputs.len(), outputs.len());
        let mut inputs = inputs.iter();
        let inputs: [Input<'_>; FEW] =
            std::array::from_fn(|_| inputs.next().map_or(Input::omitted(), plain_input));
        let mut outputs = outputs.iter_mut();
        let mut outputs: [Output<'_>; FEW] =
            std::array::from_fn(|_| outputs.next().map_or_else(no_room, plain_output));
        open.run(&inputs[..ins], &mut outputs[..outs], options)
    } else {
        let inputs: Vec<Input<'_>> = inputs.iter().map(plain_input).collect();
        let mut outputs: Vec<Output<'_>> = outputs.iter_mut().map(plain_output).collect();
        open.run(&inputs, &mut outputs, options)
    };
    burst.end_after(&result);
    sanitised(step, result?)
}

/// Whether there is another way after this error: another device, or the same one opened again.
fn may_go_on(compilation: &Compilation, error: &RuntimeError) -> bool {
    let may_recover = error.is_connection_lost() && compilation.policy().attempts > 0;
    may_recover || compilation.may_fall_back(error)
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
