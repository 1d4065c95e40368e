//! The operations of the extension [`org.nnhal.tflite`](crate::tflite), one file per family.
//!
//! Those that are wider than NNAPI's have its arguments, rules and shapes, and more types or ranks.

mod binary;
mod bitcast;
mod choice;
mod conversion;
mod diagonals;
pub mod dilate;
pub mod elementwise;
pub mod filling;
mod joining;
mod layers;
mod moving;
pub mod random;
mod recurrent;
pub mod reduce_window;
mod reduction;
pub mod regions;
mod reshape;
pub mod scatter;
mod searching;
mod segments;
pub mod sequences;
mod series;
mod shape;
pub mod spectra;
mod suppression;
mod types;
pub mod volumes;

use super::operation_entry::OperationEntry;
use crate::OperationType;

/// The table, by family.
pub const FAMILIES: &[&[OperationEntry]] = &[
    binary::ENTRIES,
    bitcast::ENTRIES,
    choice::ENTRIES,
    conversion::ENTRIES,
    diagonals::ENTRIES,
    dilate::ENTRIES,
    elementwise::ENTRIES,
    filling::ENTRIES,
    joining::ENTRIES,
    layers::ENTRIES,
    moving::ENTRIES,
    random::ENTRIES,
    recurrent::ENTRIES,
    reduce_window::ENTRIES,
    reduction::ENTRIES,
    regions::ENTRIES,
    reshape::ENTRIES,
    scatter::ENTRIES,
    searching::ENTRIES,
    segments::ENTRIES,
    sequences::ENTRIES,
    series::ENTRIES,
    shape::ENTRIES,
    spectra::ENTRIES,
    suppression::ENTRIES,
    volumes::ENTRIES,
];

/// The entry of an operation of the extension.
pub(super) fn entry(operation: OperationType) -> Option<&'static OperationEntry> {
    entries().find(|entry| entry.operation == operation)
}

/// Every entry, by family.
pub fn entries() -> impl Iterator<Item = &'static OperationEntry> {
    FAMILIES.iter().copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::{entries, entry};
    use crate::tflite::OPERATIONS;

    #[test]
    fn every_operation_has_one_entry() {
        assert_eq!(entries().count(), OPERATIONS.len());
        for operation in OPERATIONS {
            assert!(entry(*operation).is_some(), "{operation} is not in the table");
        }
    }
}
