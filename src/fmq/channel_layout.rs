//! What lies where in the shared memory of a channel.
//!
//! ```text
//! page 0         header (written once by the creator), the controls of both rings
//! then           cells of ring 0 (creator to opener), rounded up to a page
//! then           cells of ring 1 (opener to creator), rounded up to a page
//! ```

use super::error::ChannelError;
use super::layout::{CELL_BYTES, Control, MAX_CELLS};

/// Sizes in bytes and offsets of a channel's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelLayout {
    /// Cells of each ring, a power of two each.
    pub(super) cells: [u32; 2],
}

pub(super) const PAGE_BYTES: u64 = 4096;
/// Where the control of a ring lies in page 0.
pub(super) const CONTROL_OFFSETS: [u64; 2] = [1024, 2048];

/// The start of page 0. All fields little-endian as on every machine this runs on.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub(super) struct Header {
    magic: [u8; 8],
    version: u32,
    cell_bytes: u32,
    cells: [u32; 2],
}

const MAGIC: [u8; 8] = *b"nnhalfmq";
const VERSION: u32 = 2;

impl Header {
    pub(super) fn new(layout: ChannelLayout) -> Self {
        Self {
            magic: MAGIC,
            version: VERSION,
            cell_bytes: CELL_BYTES as u32,
            cells: layout.cells,
        }
    }

    /// Checks a header from a peer.
    pub(super) fn validate(&self) -> Result<ChannelLayout, ChannelError> {
        if self.magic != MAGIC {
            return Err(ChannelError::NotAChannel);
        }
        if self.version != VERSION || self.cell_bytes != CELL_BYTES as u32 {
            return Err(ChannelError::Version {
                theirs: self.version,
                ours: VERSION,
            });
        }
        ChannelLayout::new(self.cells)
    }
}

impl ChannelLayout {
    /// Checks the cell counts.
    pub(super) fn new(cells: [u32; 2]) -> Result<Self, ChannelError> {
        for count in cells {
            if !count.is_power_of_two() || count > MAX_CELLS {
                return Err(ChannelError::CellCount { count });
            }
        }
        Ok(Self { cells })
    }

    /// Offset and length of a ring's cells.
    pub(super) fn cell_range(&self, ring: usize) -> (u64, u64) {
        let length =
            |ring: usize| (u64::from(self.cells[ring]) * CELL_BYTES as u64).next_multiple_of(PAGE_BYTES);
        let offset = if ring == 0 {
            PAGE_BYTES
        } else {
            PAGE_BYTES + length(0)
        };
        (offset, length(ring))
    }

    /// Size of the whole memory.
    pub(super) fn size(&self) -> u64 {
        let (offset, length) = self.cell_range(1);
        offset + length
    }
}

const _: () = {
    assert!(CONTROL_OFFSETS[0] as usize >= size_of::<Header>());
    assert!(CONTROL_OFFSETS[1] as usize + size_of::<Control>() <= PAGE_BYTES as usize);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_with_any_field_changed_is_refused() {
        let header = Header::new(ChannelLayout::new([64, 16]).unwrap());
        assert_eq!(header.validate().unwrap().size(), 4096 * 3);
        for index in 0..size_of::<Header>() {
            let mut bytes: [u8; size_of::<Header>()] = bytemuck::cast(header);
            bytes[index] ^= 0x81;
            let changed: Header = bytemuck::cast(bytes);
            assert!(changed.validate().is_err(), "byte {index}");
        }
    }

    #[test]
    fn cell_count_that_is_no_power_of_two_or_too_large_is_refused() {
        for count in [0, 3, 63, MAX_CELLS + 1, MAX_CELLS * 2, u32::MAX] {
            assert!(matches!(
                ChannelLayout::new([count, 64]),
                Err(ChannelError::CellCount { .. })
            ));
            assert!(matches!(
                ChannelLayout::new([64, count]),
                Err(ChannelError::CellCount { .. })
            ));
        }
        assert_eq!(
            ChannelLayout::new([MAX_CELLS; 2]).unwrap().size(),
            4096 + (2 << 20)
        );
    }
}
