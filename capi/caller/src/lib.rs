//! Calls `libneuralnetworks.so` as programs do that open it by name: models, compilations and executions of
//! the HAL's own form are brought through the functions of the C API and through nothing else.
//!
//! Nothing of the library is linked to whoever uses this crate. The library is found by the loader at run
//! time, and where it finds its drivers is its own affair, as it is for every program. For the library's
//! conformance test and its measurements; programs that want nnhal from Rust use `nnhal-client`.

mod compilation;
mod error;
mod execution;
mod functions;
mod library;
mod model;
mod reusable;

pub use compilation::Compilation;
pub use error::{CallError, OpenError};
pub use execution::{Arguments, Computation, ExecutionSettings};
pub use library::Library;
pub use model::Model;
pub use reusable::{Burst, ReusableExecution};
