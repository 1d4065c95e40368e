//! The sending end of a ring.

use std::sync::Arc;

use super::closer::close_ring;
use super::error::{Misbehaviour, SendError};
use super::layout::{Cell, PAYLOAD_BYTES, sequence_word};
use super::memory::RingMemory;
use super::parked::Parked;
use super::suppression;
use super::sync::{Ordering, fence};
use super::words::{AWAKE, SLEEPING};
use nnhal_os::cpu;
use nnhal_os::time::{Clock, MonotonicClock};

/// Sends packets. Dropping it closes the ring.
#[derive(Debug)]
pub struct Producer {
    ring: Arc<RingMemory>,
    parked: Arc<Parked>,
    /// Position of the next cell to fill; never read back from the ring.
    position: u64,
    /// Up to where the consumer is known to have read, by its own word or by its answers.
    consumed: u64,
    /// The last position that the consumer itself claimed.
    claimed: u64,
    poison: Option<Misbehaviour>,
}

impl Producer {
    pub(super) fn new(ring: Arc<RingMemory>, parked: Arc<Parked>) -> Self {
        Self {
            ring,
            parked,
            position: 0,
            consumed: 0,
            claimed: 0,
            poison: None,
        }
    }

    /// Bytes of the longest packet that can be sent at all.
    pub fn max_packet_bytes(&self) -> usize {
        self.ring.capacity() as usize * PAYLOAD_BYTES
    }

    /// Sends one packet and wakes the consumer if it sleeps.
    ///
    /// # Errors
    /// [`SendError`]; nothing has been sent then.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        self.push(bytes)?;
        self.notify();
        Ok(())
    }

    /// Sends one packet without looking whether the consumer sleeps; [`Producer::notify`] must follow the
    /// last of a series, and [`Producer::notify_sleeper`] should follow the others.
    ///
    /// # Errors
    /// [`SendError`]; nothing has been sent then.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let cells = bytes.len().div_ceil(PAYLOAD_BYTES).max(1);
        self.reserve(cells, bytes.len())?;
        let first = &bytes[..bytes.len().min(PAYLOAD_BYTES)];
        if cells > 1 {
            self.fill_rest(&bytes[PAYLOAD_BYTES..]);
        }
        // `reserve` has bounded the count by the capacity, which fits its 16 bits.
        let word = sequence_word(self.position, cells as u16);
        let cell = self.ring.cell(self.position);
        fill(cell, first);
        cell.sequence.store(word, Ordering::Release);
        hand_over(cell);
        self.position += cells as u64;
        Ok(())
    }

    /// Wakes the consumer if it is seen asleep, and says whether it was. One that is falling asleep just now
    /// may be missed; [`Producer::notify`] must follow before long.
    #[inline]
    pub fn notify_sleeper(&self) -> bool {
        let is_asleep = self.ring.control().doorbell.sleeper.load(Ordering::Relaxed) == SLEEPING;
        if is_asleep {
            self.wake();
        }
        is_asleep
    }

    /// Wakes the consumer if it sleeps, and says whether it did. That takes a full fence, unless the consumer
    /// suppresses it.
    #[inline]
    pub fn notify(&self) -> bool {
        if suppression::is_suppressed(&self.ring.control().doorbell) {
            return false;
        }
        // Orders the commit before the look at the sleeper; the consumer has the mirror image of it.
        fence(Ordering::SeqCst);
        self.notify_sleeper()
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn doorbell(&self) -> &super::layout::Doorbell {
        &self.ring.control().doorbell
    }

    /// What the consumer says of its sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeper_word(&self) -> u32 {
        self.doorbell().sleeper.load(Ordering::Relaxed)
    }

    #[cold]
    fn wake(&self) {
        let doorbell = &self.ring.control().doorbell;
        self.parked.rings();
        let now = MonotonicClock.now().as_nanos();
        doorbell.rung_at.store(now, Ordering::Relaxed);
        doorbell.sleeper.store(AWAKE, Ordering::Relaxed);
        self.ring.wake();
    }

    /// Has the cell of the next packet taken from the consumer's cache while this side does something else.
    /// It pays where the consumer does not poll for that packet yet.
    #[inline]
    pub fn prefetch(&self) {
        let cell = self.ring.cell(self.position);
        cpu::prefetch_to_write(std::ptr::from_ref(cell).cast(), size_of::<Cell>());
    }

    /// The position in the stream after what was sent last, to be given to [`Producer::release`] once it has
    /// been answered.
    pub fn sent(&self) -> u64 {
        self.position
    }

    /// Frees the cells of everything sent before `sent` was taken by [`Producer::sent`], because the
    /// consumer's answer shows that it has read it.
    ///
    /// Without this the room is learned from the word that the consumer writes, when the ring seems full;
    /// that costs both sides a cache line's journey. A consumer that answers what it has not read harms
    /// itself only.
    #[inline]
    pub fn release(&mut self, sent: u64) {
        if sent <= self.position {
            self.consumed = self.consumed.max(sent);
        }
    }

    /// How many cells could be sent at this moment.
    ///
    /// # Errors
    /// [`SendError::Poisoned`].
    pub fn room(&mut self) -> Result<usize, SendError> {
        self.refresh_consumed()?;
        Ok(self.free() as usize)
    }

    /// Whether the ring has ended.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.ring.control().doorbell.closed.load(Ordering::Relaxed) != 0 || self.parked.is_closed()
    }

    /// Makes sure that `cells` cells are free.
    #[inline]
    fn reserve(&mut self, cells: usize, length: usize) -> Result<(), SendError> {
        if cells as u64 <= self.free() && self.poison.is_none() && !self.is_closed() {
            return Ok(());
        }
        self.reserve_slow(cells, length)
    }

    #[cold]
    fn reserve_slow(&mut self, cells: usize, length: usize) -> Result<(), SendError> {
        if let Some(misbehaviour) = self.poison {
            return Err(misbehaviour.into());
        }
        if cells > self.ring.capacity() as usize {
            return Err(SendError::TooLong {
                length,
                capacity: self.max_packet_bytes(),
            });
        }
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        self.refresh_consumed()?;
        if cells as u64 > self.free() {
            Err(SendError::Full)
        } else {
            Ok(())
        }
    }

    fn refresh_consumed(&mut self) -> Result<(), SendError> {
        if let Some(misbehaviour) = self.poison {
            return Err(misbehaviour.into());
        }
        let claimed = self.ring.control().progress.consumed.load(Ordering::Acquire);
        if claimed < self.claimed || claimed > self.position {
            let misbehaviour = Misbehaviour::Consumed {
                claimed,
                from: self.claimed,
                to: self.position,
            };
            self.poison = Some(misbehaviour);
            return Err(misbehaviour.into());
        }
        self.claimed = claimed;
        self.consumed = self.consumed.max(claimed);
        Ok(())
    }

    #[inline(always)]
    fn free(&self) -> u64 {
        // `consumed` never exceeds `position`, and `reserve` keeps their distance within the capacity.
        u64::from(self.ring.capacity()) - (self.position - self.consumed)
    }

    /// Fills the cells after a packet's first.
    fn fill_rest(&self, bytes: &[u8]) {
        let positions = self.position + 1..;
        for (chunk, position) in bytes.chunks(PAYLOAD_BYTES).zip(positions) {
            let cell = self.ring.cell(position);
            fill(cell, chunk);
            cell.sequence.store(sequence_word(position, 0), Ordering::Relaxed);
            hand_over(cell);
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        close_ring(&self.ring);
    }
}

/// Brings a cell closer to the consumer.
#[inline(always)]
fn hand_over(cell: &Cell) {
    cpu::demote(std::ptr::from_ref(cell).cast(), size_of::<Cell>());
}

/// Stores at most [`PAYLOAD_BYTES`] bytes as a cell's payload, zeros after them. They are read by words, as
/// packets are mostly written: the processor hands on at once what is read as it was stored.
#[inline(always)]
fn fill(cell: &Cell, bytes: &[u8]) {
    let (words, rest) = bytes.as_chunks::<{ size_of::<u64>() }>();
    for (number, slot) in cell.payload.iter().enumerate() {
        let word = match words.get(number) {
            Some(word) => u64::from_ne_bytes(*word),
            None if number == words.len() => last_word(rest),
            None => 0,
        };
        slot.store(word, Ordering::Relaxed);
    }
}

/// Fewer than eight bytes as a word, zeros after them.
#[inline(always)]
fn last_word(bytes: &[u8]) -> u64 {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    let value = match bytes.split_first_chunk() {
        Some((half, rest)) => u64::from(u32::from_le_bytes(*half)) | word(rest) << 32,
        None => word(bytes),
    };
    value.to_le()
}
