//! Points in time, deadlines and the clock they are read from, and measured durations.
//!
//! For points in time only CLOCK_MONOTONIC is used: it is the clock of HAL time points
//! (`nanosecondsSinceEpoch` of the steady clock), it is the same in every process of the machine, and it
//! never jumps. All arithmetic saturates. Durations are measured by a [`Stopwatch`].
#![forbid(unsafe_code)]

mod clock;
mod deadline;
mod stopwatch;

pub use clock::{Clock, ManualClock, MonotonicClock};
pub use deadline::{Deadline, TimePoint};
pub use stopwatch::Stopwatch;
