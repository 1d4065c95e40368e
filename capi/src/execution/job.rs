//! One run of an execution: its arguments in the runtime's terms, and what came of it.

use std::sync::Arc;

use nnhal_client::runtime::{self, Finished, Room, RunInput, RunOutput, RuntimeResult};
use nnhal_client::{Deadline, ExecuteOptions, FencedTiming, OutputShape, Timing};

use super::arguments::{Argument, Arguments, Place};
use crate::codes::ResultCode;
use crate::ffi::{CallerRoom, caught};
use crate::result::{Failure, Outcome};

/// A run that is about to start.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) compilation: runtime::Compilation,
    pub(super) arguments: Arc<Arguments>,
    pub(super) options: ExecuteOptions,
    /// The one in the options.
    pub(super) deadline: Deadline,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(super) struct Results {
    pub(super) outcome: Outcome,
    /// One for each output; empty if the outcome tells nothing of them.
    pub(super) output_shapes: Vec<OutputShape>,
    /// Since the start, and since the dependencies were done.
    pub(super) timing: FencedTiming,
}

impl Results {
    pub(super) fn failed(failure: Failure) -> Results {
        Results {
            outcome: Err(failure),
            output_shapes: Vec::new(),
            timing: both(Timing::NONE),
        }
    }

    pub(super) fn of(result: RuntimeResult<Finished>) -> Results {
        match result {
            Ok(finished) => Results {
                outcome: Ok(()),
                output_shapes: finished.output_shapes,
                timing: both(finished.timing),
            },
            Err(error) => Results {
                output_shapes: error.output_shapes().to_vec(),
                ..Results::failed(error.into())
            },
        }
    }

    /// Whether the shapes of outputs mean something.
    pub(super) fn has_shapes(&self) -> bool {
        match &self.outcome {
            Ok(()) => true,
            Err(failure) => failure.code == ResultCode::ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE,
        }
    }
}

/// An execution without dependencies has both times alike.
fn both(timing: Timing) -> FencedTiming {
    FencedTiming {
        launched: timing,
        fenced: timing,
    }
}

impl Job {
    /// Runs it as `run` does. It has results in any case.
    pub(super) fn run(
        &self,
        run: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>], &ExecuteOptions) -> RuntimeResult<Finished>,
    ) -> Results {
        caught(|| Ok(self.run_to_end(run))).unwrap_or_else(Results::failed)
    }

    fn run_to_end(
        &self,
        run: impl FnOnce(&[RunInput<'_>], &mut [RunOutput<'_>], &ExecuteOptions) -> RuntimeResult<Finished>,
    ) -> Results {
        let inputs = self.inputs();
        let mut rooms: Vec<CallerRoom> = self.rooms();
        if !self.arguments.is_overlapping {
            let mut slices = rooms.iter_mut().map(CallerRoom::as_mut_slice);
            let mut outputs = self.outputs(&mut slices);
            return Results::of(run(&inputs, &mut outputs, &self.options));
        }
        let mut private: Vec<Vec<u8>> = rooms.iter().map(|room| vec![0; room.len()]).collect();
        let mut slices = private.iter_mut().map(Vec::as_mut_slice);
        let mut outputs = self.outputs(&mut slices);
        let results = Results::of(run(&inputs, &mut outputs, &self.options));
        drop(outputs);
        if results.outcome.is_ok() {
            for (room, bytes) in rooms.iter_mut().zip(&private) {
                room.copy_from(bytes);
            }
        }
        results
    }

    pub(super) fn inputs(&self) -> Vec<RunInput<'_>> {
        self.arguments.inputs.iter().map(input_of).collect()
    }

    /// Where the driver is to write, for executions whose outputs are all in memories or left out; otherwise `None`.
    pub(super) fn shared_outputs(&self) -> Option<Vec<Room>> {
        self.arguments
            .outputs
            .iter()
            .map(|argument| {
                let dimensions = argument.dimensions.clone();
                match &argument.place {
                    Place::Shared(shared) => Some(Room::Memory {
                        memory: shared.memory.clone(),
                        offset: shared.offset as u64,
                        length: shared.length as u64,
                        dimensions,
                    }),
                    Place::Device(memory) => Some(Room::Device {
                        memory: memory.clone(),
                        dimensions,
                    }),
                    Place::Omitted | Place::Input(_) | Place::Output(_) => None,
                }
            })
            .collect()
    }

    fn rooms(&self) -> Vec<CallerRoom> {
        let outputs = self.arguments.outputs.iter();
        outputs
            .filter_map(|argument| match argument.place {
                Place::Output(room) => Some(room),
                _ => None,
            })
            .collect()
    }

    fn outputs<'a>(&'a self, rooms: &mut dyn Iterator<Item = &'a mut [u8]>) -> Vec<RunOutput<'a>> {
        let outputs = self.arguments.outputs.iter();
        outputs
            .map(|argument| {
                let dimensions = argument.dimensions.as_slice();
                match &argument.place {
                    Place::Output(_) => RunOutput::Bytes {
                        bytes: rooms.next().unwrap_or_default(),
                        dimensions,
                    },
                    Place::Shared(shared) => RunOutput::Memory {
                        memory: &shared.memory,
                        offset: shared.offset as u64,
                        length: shared.length as u64,
                        dimensions,
                    },
                    Place::Device(memory) => RunOutput::Device { memory, dimensions },
                    Place::Omitted | Place::Input(_) => RunOutput::Bytes {
                        bytes: Default::default(),
                        dimensions,
                    },
                }
            })
            .collect()
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
