//! A packet in private memory.

use super::layout::PAYLOAD_WORDS;

/// Room for the longest packet of a ring, filled by [`super::Consumer::receive`] again and again without
/// allocating.
#[derive(Clone, Debug)]
pub struct Packet {
    words: Box<[u64]>,
    cells: usize,
}

impl Packet {
    /// An empty packet with room for `cells` cells.
    pub(super) fn with_room_for(cells: usize) -> Self {
        Self {
            words: vec![0; cells * PAYLOAD_WORDS].into_boxed_slice(),
            cells: 0,
        }
    }

    /// The bytes received last: a whole number of cells; those after the sender's last byte are zero.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.words.get(..self.cells * PAYLOAD_WORDS).unwrap_or(&[]))
    }

    /// The payload words of `cells` cells, to be filled; `None` if there is no room for so many.
    #[inline]
    pub(super) fn fill(&mut self, cells: usize) -> Option<&mut [[u64; PAYLOAD_WORDS]]> {
        let words = self.words.get_mut(..cells.checked_mul(PAYLOAD_WORDS)?)?;
        self.cells = cells;
        Some(words.as_chunks_mut().0)
    }

    /// As [`Packet::fill`], making room first for a packet that was made for a smaller ring.
    pub(super) fn grow(&mut self, cells: usize) -> &mut [[u64; PAYLOAD_WORDS]] {
        if self.words.len() < cells * PAYLOAD_WORDS {
            *self = Self::with_room_for(cells);
        }
        self.fill(cells).unwrap_or(&mut [])
    }

    /// Forgets what was received.
    pub(super) fn clear(&mut self) {
        self.cells = 0;
    }
}
