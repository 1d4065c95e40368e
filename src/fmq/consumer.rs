//! The receiving end of a ring.

use std::sync::Arc;
#[cfg(all(test, not(loom)))]
use std::time::Duration;

use super::calibrate::PollRates;
use super::closer::close_ring;
use super::error::{Misbehaviour, ReceiveError};
use super::layout::{PAYLOAD_WORDS, cell_count, idle_stamp, sequence_word, stamp};
use super::memory::RingMemory;
use super::packet::Packet;
use super::parked::Parked;
use super::suppression::Suppression;
use super::sync::{Ordering, fence};
use super::wait::{WaitPolicy, WaitSettings};
use super::waker::Waker;
use super::yielder::Yielder;

/// Receives packets. Dropping it closes the ring.
#[derive(Debug)]
pub struct Consumer {
    pub(super) ring: Arc<RingMemory>,
    pub(super) parked: Arc<Parked>,
    /// Position of the next cell to read; never read back from the ring.
    pub(super) position: u64,
    pub(super) policy: WaitPolicy,
    pub(super) yielder: Yielder,
    pub(super) suppression: Suppression,
    poison: Option<Misbehaviour>,
}

impl Consumer {
    pub(super) fn new(ring: Arc<RingMemory>, parked: Arc<Parked>, settings: WaitSettings) -> Self {
        Self {
            ring,
            parked,
            position: 0,
            policy: WaitPolicy::new(settings, PollRates::get()),
            yielder: Yielder::default(),
            suppression: Suppression::new(),
            poison: None,
        }
    }

    /// A buffer for the longest packet of this ring.
    pub fn new_packet(&self) -> Packet {
        Packet::with_room_for(self.ring.capacity() as usize)
    }

    /// A waker for a thread that waits for this ring's packets.
    pub fn new_waker(&self) -> Waker {
        Waker::new(Arc::clone(&self.ring))
    }

    /// Sets how to wait from now on.
    pub fn set_wait(&mut self, settings: WaitSettings) {
        self.policy = WaitPolicy::new(settings, PollRates::get());
    }

    /// How long its next wait polls before it sleeps.
    #[cfg(all(test, not(loom)))]
    pub(super) fn window(&self) -> Duration {
        self.policy.window()
    }

    /// How long the next sleep lasts at most, if it is a short one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleep_limit(&self) -> Option<Duration> {
        self.suppression.limit()
    }

    /// What it says of its sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn sleeper_word(&self) -> u32 {
        self.ring.control().doorbell.sleeper.load(Ordering::Relaxed)
    }

    /// Has it suppress notification as this says from now on.
    #[cfg(all(test, loom))]
    pub(super) fn set_suppression(&mut self, suppression: Suppression) {
        self.suppression = suppression;
    }

    /// Has its next wait begin with a timed sleep and go on with a few polls.
    #[cfg(all(test, loom))]
    pub(super) fn expect_timed_sleep(&mut self) {
        self.policy = WaitPolicy::expecting_timed_sleep();
    }

    /// Has the policy learn that waits are all so long; says whether the next has a timed sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn expect_waits_of(&mut self, wait: Duration) -> bool {
        self.policy.expect_waits_of(wait.as_nanos() as u64)
    }

    /// How long getting up took it of late; 0 if nobody has woken it.
    #[cfg(all(test, not(loom)))]
    pub(super) fn wake_nanos(&self) -> u64 {
        self.policy.wake_nanos()
    }

    /// Receives the next packet if it is there; `false` if not.
    ///
    /// # Errors
    /// [`ReceiveError::Closed`] if there is none and none will come, [`ReceiveError::Poisoned`].
    #[inline]
    pub fn try_receive(&mut self, packet: &mut Packet) -> Result<bool, ReceiveError> {
        if let Some(word) = self.poll()? {
            self.take(word, packet)?;
            return Ok(true);
        }
        if !self.is_closed() {
            return Ok(false);
        }
        // What was sent before the end still counts.
        match self.poll()? {
            Some(word) => self.take(word, packet).map(|()| true),
            None => Err(ReceiveError::Closed),
        }
    }

    /// Whether a packet is there, or the end, or an error: whether [`Consumer::receive`] would return at
    /// once.
    #[inline]
    pub fn is_ready(&mut self) -> bool {
        self.has_packet() || self.is_closed()
    }

    /// Whether a packet is there, or an error.
    #[inline]
    pub fn has_packet(&mut self) -> bool {
        !matches!(self.poll(), Ok(None))
    }

    /// Whether the ring has ended; packets sent before may still be there.
    pub fn is_closed(&self) -> bool {
        self.parked.is_closed() || self.ring.control().doorbell.closed.load(Ordering::Acquire) != 0
    }

    /// The sequence word of the next packet's first cell, once it is there.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<u64>, ReceiveError> {
        if let Some(misbehaviour) = self.poison {
            return Err(misbehaviour.into());
        }
        // A relaxed load and a fence, since other loads are not defined on memory that is mapped read-only.
        let word = self.ring.cell(self.position).sequence.load(Ordering::Relaxed);
        if stamp(word) == idle_stamp(self.position, u64::from(self.ring.capacity())) {
            return Ok(None);
        }
        self.committed(word)
    }

    #[inline(always)]
    fn committed(&mut self, word: u64) -> Result<Option<u64>, ReceiveError> {
        if stamp(word) == sequence_word(self.position, 0) {
            fence(Ordering::Acquire);
            return Ok(Some(word));
        }
        Err(self.poison(Misbehaviour::Sequence {
            position: self.position,
            found: word,
        }))
    }

    /// Copies the packet whose first cell has the sequence word `word`, and frees its cells.
    #[inline(always)]
    pub(super) fn take(&mut self, word: u64, packet: &mut Packet) -> Result<(), ReceiveError> {
        let cells = cell_count(word);
        if cells == 1
            && let Some([payload]) = packet.fill(1)
        {
            self.copy(self.position, payload);
        } else {
            self.take_long(cells, packet)?;
        }
        self.position += u64::from(cells);
        self.ring
            .control()
            .progress
            .consumed
            .store(self.position, Ordering::Release);
        self.suppression
            .received(self.position, &self.ring.control().doorbell);
        Ok(())
    }

    #[cold]
    fn take_long(&mut self, cells: u16, packet: &mut Packet) -> Result<(), ReceiveError> {
        let capacity = self.ring.capacity();
        let misbehaviour = if cells == 0 || u32::from(cells) > capacity {
            Err(Misbehaviour::PacketLength {
                position: self.position,
                cells,
                capacity,
            })
        } else {
            self.copy_all(cells, packet.grow(usize::from(cells)))
        };
        misbehaviour.map_err(|misbehaviour| {
            packet.clear();
            self.poison(misbehaviour)
        })
    }

    /// Copies every cell of a packet, checking that each belongs to it.
    fn copy_all(&self, cells: u16, payloads: &mut [[u64; PAYLOAD_WORDS]]) -> Result<(), Misbehaviour> {
        let mut count = cells;
        for (position, payload) in (self.position..).zip(payloads) {
            let found = self.ring.cell(position).sequence.load(Ordering::Relaxed);
            if found != sequence_word(position, count) {
                return Err(Misbehaviour::Sequence { position, found });
            }
            self.copy(position, payload);
            count = 0;
        }
        Ok(())
    }

    #[inline(always)]
    fn copy(&self, position: u64, payload: &mut [u64; PAYLOAD_WORDS]) {
        for (word, slot) in payload.iter_mut().zip(&self.ring.cell(position).payload) {
            *word = slot.load(Ordering::Relaxed);
        }
    }

    fn poison(&mut self, misbehaviour: Misbehaviour) -> ReceiveError {
        self.poison = Some(misbehaviour);
        misbehaviour.into()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        close_ring(&self.ring);
    }
}
