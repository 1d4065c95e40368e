//! `libneuralnetworks.so`: the C API of Android's NNAPI, as its NDK has it up to feature level 5, over nnhal.
//!
//! Programs that were written for NNAPI run unchanged. They are linked to this library or open it by its
//! name; models are compiled for the devices of the drivers that run, each in processes of its own, and for
//! the CPU of this process. Nothing is set up before the first call that needs it.
//!
//! The functions are in `exports`, the objects that they are about in the modules of those names. Pointers of
//! the caller are followed in `ffi` and nowhere else.

mod burst;
mod codes;
mod compilation;
mod device;
mod event;
mod execution;
mod exports;
mod extension;
mod ffi;
mod handles;
mod last_error;
mod log;
mod memory;
mod memory_desc;
mod model;
mod operation_codes;
mod process;
mod result;
mod types;

pub use codes::*;
pub use exports::*;
pub use ffi::{ConstHandle, Handle, In, Out};
pub use operation_codes::OperationCode;
pub use types::*;
