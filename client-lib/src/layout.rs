//! Where values lie in one memory.

use std::ops::Range;

use crate::model::ALIGNMENT;

/// Value after value, each on cache lines of its own, none at byte 0 without bytes.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Where the next value would begin; the size of the memory.
    pub(crate) end: u64,
}

impl Layout {
    /// The place of one more value of so many bytes.
    pub(crate) fn add(&mut self, size: u64) -> Range<u64> {
        // No bytes at byte 0 would mean the whole memory.
        let start = if size == 0 {
            self.end.max(ALIGNMENT as u64)
        } else {
            self.end
        };
        let end = start.saturating_add(size);
        // A value has at least one line, so that no two have the same place, of which nothing could be told
        // apart.
        let padded = end
            .max(start.saturating_add(1))
            .checked_next_multiple_of(ALIGNMENT as u64);
        self.end = padded.unwrap_or(u64::MAX);
        start..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_without_bytes_lies_at_byte_0() {
        let mut layout = Layout::default();
        assert_eq!(layout.add(0), 64..64);
        assert_eq!(layout.add(5), 128..133);
        assert_eq!(layout.add(0), 192..192);
        assert_eq!(layout.end, 256);
    }
}
