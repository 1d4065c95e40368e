//! Stress of devices: random cases side by side, each in a process of its own, until the time is up.
//!
//! A case is a seed and a device, which give all that it does, so that one that failed can be run again.

mod case;
mod cases;
mod one;
mod outcome;
mod scenarios;

pub(crate) use cases::run;
pub(crate) use one::run_one;
