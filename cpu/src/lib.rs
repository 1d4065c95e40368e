//! The CPU devices of nnhal: reference kernels for the operations of the NN HAL, and the executor that runs a
//! validated model with them.
//!
//! The executor trusts the model's structure, which [`nnhal_hal::validate`] has proven, and nothing about
//! values: every index, axis, extent and code that comes from data is checked by the shape rule or kernel
//! that uses it.
#![deny(unsafe_code)]

pub mod executor;
mod fast;
pub mod kernel;
pub mod kernels;
pub mod scratch;
#[cfg(test)]
mod test_graph;
pub mod threads;

pub use executor::{
    CompiledProgram, Execution, ExecutionError, Interrupt, Interrupted, KernelSet, NeverInterrupted,
    ObservedOperation, Observer, Program, ProgramError, RunOptions, compiled_form,
};
pub use fast::{Peak, permit_tiles, reading_time};
pub use threads::{Helpers, Threads};
