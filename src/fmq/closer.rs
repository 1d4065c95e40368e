//! Ending a channel from any thread.

use std::sync::Arc;

use super::memory::RingMemory;
use super::parked::Parked;
use super::sync::{Ordering, fence};
use super::words::{AWAKE, SLEEPING};

/// Ends both rings of a channel end, for whoever learns that the peer is gone: usually the thread that
/// watches the peer's socket or pid descriptor.
#[derive(Clone, Debug)]
pub struct ChannelCloser {
    produced: Arc<RingMemory>,
    consumed: Arc<RingMemory>,
    parked: Arc<Parked>,
}

impl ChannelCloser {
    pub(super) fn new(produced: Arc<RingMemory>, consumed: Arc<RingMemory>, parked: Arc<Parked>) -> Self {
        Self {
            produced,
            consumed,
            parked,
        }
    }

    /// Closes both rings and makes sure that this process's consumer does not sleep on: it and the producer
    /// report the end, after the packets that are already there. Returns when the consumer is up, if it
    /// slept.
    ///
    /// It may be called any number of times.
    pub fn close(&self) {
        self.parked.set_closed();
        close_ring(&self.produced);
        close_ring(&self.consumed);
        // The consumer sets `asleep`, fences, and looks at `closed`; here it is the other way round, so
        // either it sees the end or this sees it asleep. A hostile peer can put the doorbell word back
        // between the store in `close_ring` and the wake, so waking is repeated until the consumer has left.
        fence(Ordering::SeqCst);
        while self.parked.is_asleep() {
            self.parked.wait_until_up();
            close_ring(&self.consumed);
        }
    }

    /// Closes the ring that this end consumes: its consumer reports the end after the packets that are there,
    /// and its producer sends on. Otherwise as [`ChannelCloser::close`].
    pub fn close_consumed(&self) {
        close_ring(&self.consumed);
        fence(Ordering::SeqCst);
        while self.parked.is_asleep() {
            self.parked.wait_until_up();
            close_ring(&self.consumed);
        }
    }

    /// What a hostile peer can do to a sleeper's word and to the shared end.
    #[cfg(all(test, loom))]
    pub(super) fn tamper(&self) {
        let doorbell = &self.consumed.control().doorbell;
        doorbell.sleeper.store(super::words::SLEEPING, Ordering::Relaxed);
        doorbell.closed.store(0, Ordering::Relaxed);
    }

    /// Whether [`ChannelCloser::close`] was called on this end.
    pub fn is_closed(&self) -> bool {
        self.parked.is_closed()
    }
}

/// Marks a ring as ended and wakes its sleeper, on whichever side.
pub(super) fn close_ring(ring: &RingMemory) {
    let doorbell = &ring.control().doorbell;
    doorbell.closed.store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    doorbell.sleeper.store(AWAKE, Ordering::Relaxed);
    ring.wake();
}

/// Wakes the consumer of a ring, if it sleeps, to look at what was stored before. It says that it sleeps,
/// fences, and looks; here it is the other way round, so it either sees what was stored or does not fall
/// asleep, unless the peer puts the word back: whose burst sleeps on then until its next packet. One that is
/// awake and suppresses notification goes on doing so.
pub(super) fn wake_consumer(ring: &RingMemory) {
    fence(Ordering::SeqCst);
    let sleeper = &ring.control().doorbell.sleeper;
    if sleeper.load(Ordering::Relaxed) == SLEEPING {
        sleeper.store(AWAKE, Ordering::Relaxed);
        ring.wake();
    }
}
