//! What part of a memory may be used, and how.

use super::ShmError;

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// Checks that `length` bytes from `offset` lie within `size` bytes.
#[inline]
pub(super) fn check_range(offset: u64, length: u64, size: u64) -> Result<(), ShmError> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ShmError::OutOfBounds { offset, length, size }),
    }
}
