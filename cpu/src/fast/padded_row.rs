//! Rows of a tensor that are padded.

/// A row with zeros around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PaddedRow {
    /// Zeros before it.
    pub(super) before: usize,
    /// Its elements.
    pub(super) length: usize,
    /// All elements.
    pub(super) padded: usize,
}
