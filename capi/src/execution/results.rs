//! What came of an execution.

use nnhal_client::runtime::{Finished, RunEvent, RuntimeResult};
use nnhal_client::{Deadline, FencedTiming, OutputShape, Timing};

use crate::codes::{DurationCode, ResultCode};
use crate::result::{Failure, Outcome};

/// How a run ended.
#[derive(Debug)]
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

/// What a duration is to be counted from, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurationKind {
    is_fenced: bool,
    is_hardware: bool,
}

impl DurationKind {
    pub(super) fn of_code(code: i32) -> Outcome<DurationKind> {
        const HARDWARE: i32 = DurationCode::ANEURALNETWORKS_DURATION_ON_HARDWARE as i32;
        const DRIVER: i32 = DurationCode::ANEURALNETWORKS_DURATION_IN_DRIVER as i32;
        const FENCED_HARDWARE: i32 = DurationCode::ANEURALNETWORKS_FENCED_DURATION_ON_HARDWARE as i32;
        const FENCED_DRIVER: i32 = DurationCode::ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER as i32;
        let (is_fenced, is_hardware) = match code {
            HARDWARE => (false, true),
            DRIVER => (false, false),
            FENCED_HARDWARE => (true, true),
            FENCED_DRIVER => (true, false),
            _ => {
                return Err(Failure::bad_data(format!(
                    "there is no duration {code}; there are 0 to 3"
                )));
            }
        };
        Ok(DurationKind {
            is_fenced,
            is_hardware,
        })
    }
}

impl Results {
    /// A duration of the run, in nanoseconds.
    pub(super) fn duration(&self, kind: DurationKind, is_measured: bool) -> Outcome<u64> {
        if let Err(failure) = &self.outcome {
            return Err(Failure::bad_state(format!(
                "the execution has failed, which is not measured: {}",
                failure.text
            )));
        }
        if !is_measured {
            return Err(Failure::bad_state(
                "the execution was not measured; see ANeuralNetworksExecution_setMeasureTiming",
            ));
        }
        let timing = self.timing();
        let timing: Timing = if kind.is_fenced {
            timing.fenced
        } else {
            timing.launched
        };
        let microseconds = if kind.is_hardware {
            timing.time_on_device_us
        } else {
            timing.time_in_driver_us
        };
        // The largest number means that there is none, in both units.
        Ok(microseconds.saturating_mul(1000))
    }

    /// The shape of an output of a model that has so many, and whether its buffer was large enough.
    pub(super) fn output_shape(&self, index: i32, outputs: usize) -> Outcome<OutputShape> {
        if !self.has_shapes() {
            return Err(Failure::bad_state(
                "the execution has failed, after which nothing is known of its outputs",
            ));
        }
        let shape = usize::try_from(index)
            .ok()
            .and_then(|index| self.finished.output_shapes.get(index));
        shape
            .cloned()
            .ok_or_else(|| Failure::bad_data(format!("there is no output {index}, the model has {outputs}")))
    }
}

pub(super) fn not_ended() -> Failure {
    Failure::bad_state("the execution has not ended")
}

/// Waits for an execution behind fences.
pub(super) fn fenced_results(event: &RunEvent) -> Results {
    let mut results = Results::of(event.wait(Deadline::NONE));
    results.fenced = event.fenced_timing();
    results
}

/// The code for an output that was too small.
pub(crate) fn too_small(index: i32, shape: &OutputShape) -> Failure {
    Failure::new(
        ResultCode::ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE,
        format!(
            "the buffer of output {index} was too small for dimensions {:?}",
            shape.dimensions
        ),
    )
}
