//! The devices of this library, which implement the contract of [`nnhal_device`], and the list of those that
//! a driver binary knows.

pub mod cpu;
mod cpu_performance;
pub mod empty;
pub(crate) mod registry;
