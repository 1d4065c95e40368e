//! The functions of the interface, by the objects that they are about.
//!
//! Each checks its pointers for NULL, before anything else, and leaves the rest to the modules of the
//! objects.
#![allow(unsafe_code, reason = "the functions are exported by their names")]
#![allow(non_snake_case, reason = "the names are the public interface's own")]

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

use ::nnhal_hal::Operand;
use nnhal_client::OperandType;

use crate::ffi::{ConstHandle, In, Plain};
use crate::handles::{self, Kind};
use crate::result::{Failure, Outcome};
use crate::types::ANeuralNetworksOperandType;

/// An operand as the caller describes it.
fn operand(described: ANeuralNetworksOperandType) -> Outcome<Operand> {
    let most = ::nnhal_hal::MAX_RANK as u32;
    if described.dimensionCount > most {
        return Err(Failure::bad_data(format!(
            "the type has {} dimensions, at most {most} are supported",
            described.dimensionCount
        )));
    }
    let dimensions = inner_list(
        described.dimensions,
        described.dimensionCount,
        "the type has",
        "dimensions",
    )?;
    // Extension types use all 32 bits.
    let ty = OperandType(described.r#type.cast_unsigned());
    Ok(Operand::new(ty, &dimensions).with_quantization(described.scale, described.zeroPoint))
}

/// A list inside a structure. Unlike arguments, those are data: one that is NULL is `BAD_DATA` unless its
/// length is 0, and so is one of length 0 that is not NULL.
fn inner_list<T: Plain>(list: In<T>, count: u32, whose: &str, what: &str) -> Outcome<Vec<T>> {
    if list.is_null() != (count == 0) {
        return Err(Failure::bad_data(format!(
            "{whose} {count} {what} and {} list of them",
            if list.is_null() { "no" } else { "a" }
        )));
    }
    match count {
        0 => Ok(Vec::new()),
        count => list.list(count, what),
    }
}

/// A list of objects, none of which may be NULL.
fn objects<K: Kind>(
    list: In<ConstHandle<K::Pointee>>,
    count: u32,
    name: &str,
) -> Outcome<Vec<std::sync::Arc<K>>> {
    let handles = list.list(count, name)?;
    let object = |(index, handle)| handles::get_const::<K>(handle, &format!("{name}[{index}]"));
    handles.iter().enumerate().map(object).collect()
}

// Gives the functions their versions, in the assembly of this crate, which is one unit for that (see
// Cargo.toml).
#[cfg(symbol_versions)]
std::arch::global_asm!(include_str!(concat!(env!("OUT_DIR"), "/symbol_versions.s")));
