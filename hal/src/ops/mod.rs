//! The operation table: one [`OperationEntry`] for each operation, and everything that follows from it.
//!
//! An entry says which operand types an operation takes in which HAL version ([`signature`]), which rules
//! hold between its operands ([`OperationEntry::check`]) and which shapes its outputs have ([`ShapeRule`]).
//! Model validation, the version check, support answers, the executor's output allocation and the
//! documentation are all made from it. Entries stand in one file per operation family; a family is added by
//! one line in [`FAMILIES`].
//!
//! Nothing here computes: the kernels are the device's.

pub mod batch_matmul;
pub mod bbox_transform;
pub mod box_with_nms_limit;
pub mod boxes;
pub mod channel_shuffle;
pub mod context;
pub mod convolution;
pub mod depthwise_convolution;
pub mod detection_postprocessing;
pub mod filters;
pub mod gather;
pub mod generate_proposals;
pub mod grouped_convolution;
pub mod heatmap;
pub mod lsh_projection;
pub mod lstm;
pub mod lstm_cell;
pub mod padding;
pub mod page;
pub mod pooling;
pub mod recurrent;
pub mod reduction;
pub mod resize;
pub mod rnn;
pub mod roi;
pub mod shapes;
pub mod signature;
pub mod slice;
pub mod space_batch;
pub mod space_depth;
pub mod tflite;
pub mod transpose;
pub mod transpose_convolution;
pub mod windows;

mod activation;
mod arg;
mod arithmetic;
mod comparison;
mod concatenation;
mod fill;
mod fully_connected;
mod logical;
mod lookup;
mod matching;
mod normalization;
mod operation_entry;
mod pack;
pub mod pad;
mod prelu;
mod quantization;
pub mod quantized_16bit_lstm;
pub mod quantized_lstm;
mod random;
mod reshape;
mod reverse;
mod select;
mod softmax;
mod split;
mod svdf;
mod tile;
mod topk;
mod unary;
pub mod version;

pub use context::{OpError, OperandInfo, OperationContext, OperationPart, ShapeIssue};
pub use matching::SignatureMatch;
pub use operation_entry::{OperationEntry, ShapeRule, keeps_quantization, no_further_rule};
pub use signature::{DefaultValue, Form, Param, Presence, Rank, Rule, Ty, Variant};
pub use version::Earliest;

use crate::OperationType;

/// The table, by family.
pub const FAMILIES: &[&[OperationEntry]] = &[
    activation::ENTRIES,
    arg::ENTRIES,
    arithmetic::ENTRIES,
    batch_matmul::ENTRIES,
    bbox_transform::ENTRIES,
    box_with_nms_limit::ENTRIES,
    channel_shuffle::ENTRIES,
    comparison::ENTRIES,
    concatenation::ENTRIES,
    convolution::ENTRIES,
    depthwise_convolution::ENTRIES,
    detection_postprocessing::ENTRIES,
    fill::ENTRIES,
    fully_connected::ENTRIES,
    gather::ENTRIES,
    generate_proposals::ENTRIES,
    grouped_convolution::ENTRIES,
    heatmap::ENTRIES,
    logical::ENTRIES,
    lookup::ENTRIES,
    lsh_projection::ENTRIES,
    lstm::ENTRIES,
    normalization::ENTRIES,
    pack::ENTRIES,
    pad::ENTRIES,
    pooling::ENTRIES,
    prelu::ENTRIES,
    quantization::ENTRIES,
    quantized_16bit_lstm::ENTRIES,
    quantized_lstm::ENTRIES,
    random::ENTRIES,
    reduction::ENTRIES,
    reshape::ENTRIES,
    resize::ENTRIES,
    reverse::ENTRIES,
    rnn::ENTRIES,
    roi::ENTRIES,
    select::ENTRIES,
    slice::ENTRIES,
    softmax::ENTRIES,
    space_batch::ENTRIES,
    space_depth::ENTRIES,
    split::ENTRIES,
    svdf::ENTRIES,
    tile::ENTRIES,
    topk::ENTRIES,
    transpose::ENTRIES,
    transpose_convolution::ENTRIES,
    unary::ENTRIES,
];

/// Codes of standard operations lie below this number, OEM_OPERATION excepted.
const STANDARD_CODES: usize = 106;

/// Made by the compiler: what was made at the first use would need a lock, which a child of `fork()` may find
/// held for ever.
static INDEX: [Option<&'static OperationEntry>; STANDARD_CODES] = index();

#[allow(clippy::indexing_slicing, reason = "the compiler computes it")]
const fn index() -> [Option<&'static OperationEntry>; STANDARD_CODES] {
    let mut index = [None; STANDARD_CODES];
    let mut families = FAMILIES;
    while let [family, others @ ..] = families {
        let mut entries = *family;
        while let [entry, rest @ ..] = entries {
            index[entry.operation.0 as usize] = Some(entry);
            entries = rest;
        }
        families = others;
    }
    index
}

/// The entry of `operation`, or `None` for one that the table does not know: OEM operations and those of
/// extensions but [`tflite`].
#[must_use]
pub fn entry(operation: OperationType) -> Option<&'static OperationEntry> {
    let standard = INDEX.get(operation.0 as usize).copied().flatten();
    standard.or_else(|| tflite::entry(operation))
}

/// Every entry of NNAPI's operations, by rising operation code.
pub fn entries() -> impl Iterator<Item = &'static OperationEntry> {
    INDEX.iter().copied().flatten()
}

#[cfg(test)]
mod reference_tests;

#[cfg(test)]
mod tests {
    use super::{FAMILIES, entries, entry};

    #[test]
    fn every_entry_is_found_by_its_operation_and_stands_once() {
        assert_eq!(
            FAMILIES.iter().map(|family| family.len()).sum::<usize>(),
            entries().count()
        );
        for found in entries() {
            assert_eq!(entry(found.operation).unwrap().operation, found.operation);
        }
    }
}
