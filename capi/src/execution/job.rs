//! One run of an execution: its arguments in the runtime's terms.

use nnhal_client::ExecuteOptions;
use nnhal_client::runtime::{
    Finished, OutputBuffer, OwnValues, RegisteredRun, RunBurst, RunInput, RunOutput, RuntimeResult,
};
use smallvec::SmallVec;

use super::arguments::{Argument, Arguments, Place};
use super::results::Results;
use crate::ffi::caught;

/// A list that takes no memory of its own if it is short, as most models' are.
type Few<T> = SmallVec<[T; 4]>;

/// A run that is about to start.
#[derive(Debug)]
pub(super) struct Job {
    /// Nobody else's until it has ended.
    pub(super) arguments: Arguments,
    pub(super) options: ExecuteOptions,
}

impl Arguments {
    /// Runs an execution with them as `run` does. It has results in any case.
    pub(super) fn run(
        &mut self,
        options: &ExecuteOptions,
        run: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>], &ExecuteOptions) -> RuntimeResult<Finished>,
    ) -> Results {
        caught(|| Ok(self.run_to_end(options, run))).unwrap_or_else(Results::failed)
    }

    /// Registers it with a burst; `None` if that cannot be.
    #[cold]
    pub(super) fn register(&mut self, burst: &mut RunBurst) -> Option<RegisteredRun> {
        // What overlaps takes a way of its own each time.
        if self.is_overlapping {
            return None;
        }
        let inputs: Few<RunInput<'_>> = self.inputs.iter().map(input_of).collect();
        let mut outputs: Few<RunOutput<'_>> = self.outputs.iter_mut().map(output_of).collect();
        // What is wrong is told by who executes it.
        burst.register(&inputs, &mut outputs).ok().flatten()
    }

    fn run_to_end(
        &mut self,
        options: &ExecuteOptions,
        run: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>], &ExecuteOptions) -> RuntimeResult<Finished>,
    ) -> Results {
        let Arguments {
            inputs,
            outputs,
            is_overlapping,
            ..
        } = self;
        let inputs: Few<RunInput<'_>> = inputs.iter().map(input_of).collect();
        if !*is_overlapping {
            let mut outputs: Few<RunOutput<'_>> = outputs.iter_mut().map(output_of).collect();
            return Results::of(run(&inputs, &mut outputs, options));
        }
        // What is written comes into its place only after everything was read.
        let mut private: Vec<Vec<u8>> = outputs.iter().map(own_bytes).collect();
        let mut elsewhere: Vec<RunOutput<'_>> = outputs
            .iter()
            .zip(&mut private)
            .map(|(output, bytes)| match &output.place {
                Place::Output(_) => RunOutput::Bytes {
                    bytes,
                    dimensions: &output.dimensions,
                },
                place => shared_output(place, &output.dimensions),
            })
            .collect();
        let results = Results::of(run(&inputs, &mut elsewhere, options));
        drop((inputs, elsewhere));
        if results.outcome.is_ok() {
            for (output, bytes) in outputs.iter_mut().zip(&private) {
                if let Place::Output(room) = &mut output.place {
                    room.copy_from(bytes);
                }
            }
        }
        results
    }
}

impl OwnValues for Arguments {
    #[inline]
    fn input(&self, index: usize) -> &[u8] {
        match self.inputs.get(index).map(|input| &input.place) {
            Some(Place::Input(bytes)) => bytes.as_slice(),
            _ => &[],
        }
    }

    #[inline]
    fn output(&mut self, index: usize) -> &mut [u8] {
        match self.outputs.get_mut(index).map(|output| &mut output.place) {
            Some(Place::Output(room)) => room.as_mut_slice(),
            _ => &mut [],
        }
    }
}

impl Job {
    pub(super) fn inputs(&self) -> Vec<RunInput<'_>> {
        self.arguments.inputs.iter().map(input_of).collect()
    }

    /// Where the driver is to write, for executions whose outputs are all in memories or left out; otherwise
    /// `None`.
    pub(super) fn shared_outputs(&self) -> Option<Vec<OutputBuffer>> {
        self.arguments
            .outputs
            .iter()
            .map(|argument| {
                let dimensions = argument.dimensions.clone();
                match &argument.place {
                    Place::Shared(shared) => Some(OutputBuffer::Memory {
                        memory: shared.memory.clone(),
                        offset: shared.offset as u64,
                        length: shared.length as u64,
                        dimensions,
                    }),
                    Place::Device(memory) => Some(OutputBuffer::Device {
                        memory: memory.clone(),
                        dimensions,
                    }),
                    Place::Omitted | Place::Input(_) | Place::Output(_) => None,
                }
            })
            .collect()
    }
}

/// What is where an output goes to in the caller's own memory; behind a smaller value it stays.
fn own_bytes(output: &Argument) -> Vec<u8> {
    match &output.place {
        Place::Output(room) => room.to_vec(),
        _ => Vec::new(),
    }
}

fn output_of(output: &mut Argument) -> RunOutput<'_> {
    let Argument {
        place, dimensions, ..
    } = output;
    match place {
        Place::Output(room) => RunOutput::Bytes {
            bytes: room.as_mut_slice(),
            dimensions,
        },
        place => shared_output(place, dimensions),
    }
}

/// An output that is not in the caller's own memory.
fn shared_output<'a>(place: &'a Place, dimensions: &'a [u32]) -> RunOutput<'a> {
    match place {
        Place::Shared(shared) => RunOutput::Memory {
            memory: &shared.memory,
            offset: shared.offset as u64,
            length: shared.length as u64,
            dimensions,
        },
        Place::Device(memory) => RunOutput::Device { memory, dimensions },
        Place::Omitted | Place::Input(_) | Place::Output(_) => RunOutput::Bytes {
            bytes: Default::default(),
            dimensions,
        },
    }
}

fn input_of(argument: &Argument) -> RunInput<'_> {
    let dimensions = argument.dimensions.as_slice();
    match &argument.place {
        Place::Input(bytes) => RunInput::Bytes {
            bytes: bytes.as_slice(),
            dimensions,
        },
        Place::Shared(shared) => RunInput::Memory {
            memory: &shared.memory,
            offset: shared.offset as u64,
            length: shared.length as u64,
            dimensions,
        },
        Place::Device(memory) => RunInput::Device { memory, dimensions },
        Place::Omitted | Place::Output(_) => RunInput::Omitted,
    }
}
