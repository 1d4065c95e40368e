//! Points in time, deadlines and the clock they are read from.
//!
//! Only CLOCK_MONOTONIC is used: it is the clock of HAL time points (`nanosecondsSinceEpoch` of the steady clock),
//! it is the same in every process of the machine, and it never jumps. All arithmetic saturates.
#![forbid(unsafe_code)]

mod clock;
mod deadline;

pub use clock::{Clock, ManualClock, MonotonicClock};
pub use deadline::{Deadline, TimePoint};
