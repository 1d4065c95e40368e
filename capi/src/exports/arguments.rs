//! Arguments that several functions take: operands, and lists.

use nnhal_client::OperandType;
use nnhal_hal::Operand;

use crate::ffi::{ConstHandle, In, Plain};
use crate::handles::{self, Kind};
use crate::result::{Failure, Outcome};
use crate::types::ANeuralNetworksOperandType;

/// An operand as the caller describes it.
pub(super) fn operand(described: ANeuralNetworksOperandType) -> Outcome<Operand> {
    let most = nnhal_hal::MAX_RANK as u32;
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
pub(super) fn inner_list<T: Plain>(list: In<T>, count: u32, whose: &str, what: &str) -> Outcome<Vec<T>> {
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
pub(super) fn objects<K: Kind>(
    list: In<ConstHandle<K::Pointee>>,
    count: u32,
    name: &str,
) -> Outcome<Vec<std::sync::Arc<K>>> {
    let handles = list.list(count, name)?;
    let object = |(index, handle)| handles::get_const::<K>(handle, &format!("{name}[{index}]"));
    handles.iter().enumerate().map(object).collect()
}
