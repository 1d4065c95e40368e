//! The functions of the interface, by the objects that they are about.
//!
//! Each checks its pointers for NULL, before anything else, and leaves the rest to the modules of the
//! objects.
#![allow(unsafe_code, reason = "the functions are exported by their names")]
#![allow(non_snake_case, reason = "the names are the public interface's own")]

mod arguments;
mod burst;
mod compilation;
mod device;
mod event;
mod execution;
mod extension;
mod memory;
mod memory_desc;
mod model;
mod nnhal;

pub use burst::*;
pub use compilation::*;
pub use device::*;
pub use event::*;
pub use execution::*;
pub use extension::*;
pub use memory::*;
pub use memory_desc::*;
pub use model::*;
pub use nnhal::*;

// Gives the functions their versions, in the assembly of this crate, which is one unit for that (see
// Cargo.toml).
#[cfg(symbol_versions)]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/symbol_versions.s")));
