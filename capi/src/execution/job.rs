//! One run of an execution: its arguments in the runtime's terms, and what came of it.

use nnhal_client::runtime::{
    Finished, KnownArguments, OutputBuffer, OwnValues, RunBurst, RunInput, RunOutput, RuntimeResult,
};
use nnhal_client::{ExecuteOptions, FencedTiming};
use smallvec::SmallVec;

use super::arguments::{Argument, Arguments, Place};
use crate::codes::ResultCode;
use crate::ffi::caught;
use crate::result::{Failure, Outcome};

/// A list that takes no memory of its own if it is short, as most models' are.
type Few<T> = SmallVec<[T; 4]>;

/// A run that is about to start.
#[derive(Debug)]
pub(super) struct Job {
    /// Nobody else's until it has ended.
    pub(super) arguments: Arguments,
    pub(super) options: ExecuteOptions,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) outcome: Outcome,
    /// What it has reported. The shapes are empty if the outcome tells nothing of them.
    pub(super) finished: Finished,
    /// The times of one behind fences.
    pub(super) fenced: Option<FencedTiming>,
}

impl Results {
    pub(super) fn failed(failure: Failure) -> Results {
        Results {
            outcome: Err(failure),
            finished: Finished::default(),
            fenced: None,
        }
    }

    pub(super) fn of(result: RuntimeResult<Finished>) -> Results {
        match result {
            Ok(finished) => Results {
                outcome: Ok(()),
                finished,
                fenced: None,
            },
            Err(error) => {
                let output_shapes = error.output_shapes().into();
                let mut results = Results::failed(error.into());
                results.finished.output_shapes = output_shapes;
                results
            }
        }
    }

    /// How long it took since the start, and since its dependencies were done, which is the same without any.
    pub(super) fn timing(&self) -> FencedTiming {
        self.fenced.unwrap_or(FencedTiming {
            launched: self.finished.timing,
            fenced: self.finished.timing,
        })
    }

    /// Whether the shapes of outputs mean something.
    pub(super) fn has_shapes(&self) -> bool {
        match &self.outcome {
            Ok(()) => true,
            Err(failure) => failure.code == ResultCode::ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE,
        }
    }
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

    /// Runs it by a burst.
    pub(super) fn run_by_burst(&mut self, burst: &mut RunBurst, options: &ExecuteOptions) -> Results {
        let results = self.run(options, |inputs, outputs, options| {
            burst.execute(inputs, outputs, options)
        });
        self.known = burst.known();
        results
    }

    /// Runs it once more by a burst that knows the arguments by this name, which takes neither a look at them
    /// nor memory. `results` are those of a run before, and then of this one, whether it ended well or not.
    /// `false` if the burst does not know them, or it has to be run another way.
    #[inline]
    pub(super) fn run_again(
        &mut self,
        (burst, known): (&mut RunBurst, KnownArguments),
        options: &ExecuteOptions,
        results: &mut Results,
    ) -> bool {
        // What overlaps takes a way of its own each time.
        if self.is_overlapping {
            return false;
        }
        let again = caught(|| Ok(burst.execute_again(known, self, options, &mut results.finished)));
        match again {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(error))) => *results = Results::of(Err(error)),
            Ok(None) => return false,
            Err(failure) => *results = Results::failed(failure),
        }
        true
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
        let mut private: Vec<Vec<u8>> = outputs.iter().map(|output| vec![0; own_room(output)]).collect();
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

/// Bytes of the caller's own memory that an output goes to.
fn own_room(output: &Argument) -> usize {
    match &output.place {
        Place::Output(room) => room.len(),
        _ => 0,
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
