//! The CPU devices of nnhal: reference and fast kernels for the operations of the NN HAL, the planner that
//! makes nodes of a validated model, and the executor that runs them.
//!
//! Both trust the model's structure, which [`nnhal_hal::validate`] has proven, and nothing about
//! values: every index, axis, extent and code that comes from data is checked by the shape rule or kernel
//! that uses it.
#![deny(unsafe_code)]

pub mod execute;
mod fast;
pub mod interrupt;
pub mod kernel;
pub mod kernels;
pub mod plan;
pub mod scratch;
#[cfg(test)]
mod test_graph;
pub mod threads;

pub use execute::{Execution, ExecutionError, ObservedOperation, Observer, RunOptions};
pub use fast::{Peak, permit_tiles, reading_time};
pub use interrupt::{Interrupt, Interrupted, NeverInterrupted};
pub use plan::{CompiledProgram, KernelSet, Program, ProgramError, compiled_form};
pub use threads::{Helpers, Threads};
