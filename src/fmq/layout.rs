//! The cells of a ring, the words beside them, and what a sequence word says.
//!
//! Lines that different sides write are 128 bytes apart, since processors fetch cache lines in pairs.

use super::sync::{AtomicU32, AtomicU64, SleeperWord};
#[cfg(not(loom))]
use super::words::{AWAKE, SLEEPING, SUPPRESSED};

/// Bytes of a cell: one cache line.
pub const CELL_BYTES: usize = 64;

/// Payload bytes of a cell.
pub const PAYLOAD_BYTES: usize = 56;

/// The most cells a ring may have: 1 MiB, far more than the deepest pipeline of the longest requests needs,
/// and a packet's cell count fits its 16 bits.
pub const MAX_CELLS: u32 = 16_384;

/// Payload words of a cell. Loom's model has one: the protocol is the same, its states are far fewer.
#[cfg(not(loom))]
pub(super) const PAYLOAD_WORDS: usize = PAYLOAD_BYTES / 8;
#[cfg(loom)]
pub(super) const PAYLOAD_WORDS: usize = 1;

/// One cell. Only the ring's producer writes it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) sequence: AtomicU64,
    pub(super) payload: [AtomicU64; PAYLOAD_WORDS],
}

/// The words of a ring beside its cells. Both sides may write them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Control {
    pub(super) progress: Progress,
    pub(super) doorbell: Doorbell,
}

/// Written by the consumer after each packet, read by the producer when the ring seems full.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Progress {
    /// Position up to which cells may be used again.
    pub(super) consumed: AtomicU64,
}

/// Read by the producer after each packet, written only around a sleep, after many packets without one, when
/// it rings and at the end.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Doorbell {
    /// One of [`super::words`]; the futex word.
    pub(super) sleeper: SleeperWord,
    /// Not 0 once the ring has ended.
    pub(super) closed: AtomicU32,
    /// When the producer last rang: monotonic nanoseconds. The consumer judges by it how long to poll, and
    /// believes it only within the time that it slept.
    pub(super) rung_at: AtomicU64,
}

/// The bits of a sequence word that say how many cells a packet has.
const COUNT_BITS: u32 = 16;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// The sequence word of the cell at `position` in a packet that starts there with `count` cells, or goes on
/// there (0).
///
/// Positions wrap after 2^48 cells; the value is then again that of 2^48 cells before, which no slot still
/// holds.
#[inline(always)]
pub(super) const fn sequence_word(position: u64, count: u16) -> u64 {
    (position.wrapping_add(1) << COUNT_BITS) | count as u64
}

/// The part of a sequence word that tells positions apart.
#[inline(always)]
pub(super) const fn stamp(word: u64) -> u64 {
    word & !COUNT_MASK
}

/// The packet length in a sequence word, in cells.
#[inline(always)]
pub(super) const fn cell_count(word: u64) -> u16 {
    (word & COUNT_MASK) as u16
}

/// The stamp that the slot of `position` has before its cell is produced: that of a lap ago, 0 in the first
/// lap.
#[inline(always)]
pub(super) const fn idle_stamp(position: u64, capacity: u64) -> u64 {
    if position < capacity {
        0
    } else {
        sequence_word(position - capacity, 0)
    }
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Cell>() == CELL_BYTES);
    assert!(size_of::<Control>() == 256);
    // Both sides of a channel rely on these.
    assert!(std::mem::offset_of!(Cell, payload) == 8);
    assert!(std::mem::offset_of!(Control, progress.consumed) == 0);
    assert!(std::mem::offset_of!(Control, doorbell.sleeper) == 128);
    assert!(std::mem::offset_of!(Control, doorbell.closed) == 132);
    assert!(std::mem::offset_of!(Control, doorbell.rung_at) == 136);
    assert!(AWAKE == 0 && SLEEPING == 1 && SUPPRESSED == 2);
    assert!(MAX_CELLS < 1 << COUNT_BITS);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sequence_words_wrap_without_meeting_their_lap_before() {
        let last = (1_u64 << 48) - 1;
        for position in [0, 1, 7, 8, 1000, last - 1, last, last + 1] {
            let word = sequence_word(position, 3);
            assert_eq!(cell_count(word), 3);
            assert_ne!(stamp(word), idle_stamp(position, 8));
            assert_eq!(stamp(word), idle_stamp(position + 8, 8));
        }
    }
}
