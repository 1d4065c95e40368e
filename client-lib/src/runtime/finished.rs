//! What executions report.

use std::sync::Arc;

use nnhal_hal::{MeasureTiming, OutputShape, Timing};

use crate::execution::ExecuteOptions;

/// What a successful execution reports beside its outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finished {
    /// The dimensions of each output.
    pub output_shapes: Arc<[OutputShape]>,
    /// How long it took, if it was measured, in microseconds.
    pub timing: Timing,
    /// Why the CPU of this process took a driver's place, if it did.
    pub fallback: Option<String>,
}

/// A driver's measurement, if it was asked for.
pub(super) fn asked(options: &ExecuteOptions, timing: Timing) -> Timing {
    match options.measure {
        MeasureTiming::Yes => timing,
        MeasureTiming::No => Timing::NONE,
    }
}
