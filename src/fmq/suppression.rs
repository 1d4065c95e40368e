//! Notification suppression: sparing the producer the fence between each packet and its look at the sleeper.
//!
//! A producer that stores a packet and then looks whether the consumer sleeps needs a full fence between,
//! which waits until the packet's cache line has come over from the other processor: under load that is most
//! of what sending costs. A consumer that has not slept for a while says so in the doorbell word
//! ([`SUPPRESSED`]), and a producer that sees this needs no fence. It may have seen it too early, though:
//! while its packet was on its way, the consumer may have said that it sleeps and have looked for the packet
//! in vain. So the first sleep of such a consumer is a short one, of [`SETTLE`]; then it looks once more.
//! Whoever stored a packet before that sleep has it seen then, and whoever looks at the word since sees the
//! sleeper.
//!
//! What this takes is that a store becomes visible within [`SETTLE`]. Store buffers drain as fast as lines
//! arrive, in a few microseconds at worst, also while the thread that stored is interrupted or its virtual
//! processor is halted. (Morrison and Afek, "Temporally Bounding TSO for Fence-Free Asymmetric
//! Synchronization", ASPLOS 2015.) The system's `membarrier` would do without, but any process could
//! interrupt those that have registered for it as often as it likes.
//!
//! Should a store take longer after all, both sides would wait for each other for ever. So the sleep that
//! follows is bounded too, by [`BACKSTOP`], and such a packet is late instead of lost. A consumer that nobody
//! wants wakes up twice, then no more.
//!
//! No side has to trust the other: one that lies in the word delays its own packets.

use std::time::Duration;

use super::layout::Doorbell;
use super::sync::{Ordering, compiler_fence};
use super::words::SUPPRESSED;
use nnhal_os::time::{Deadline, TimePoint};

/// Cells that a consumer receives without a sleep before it spares the producer its fences: the short sleep
/// that follows costs what some hundred of them do.
pub(super) const SUPPRESS_AFTER: u64 = 256;

/// How long a store may take to be seen, with a wide margin.
pub(super) const SETTLE: Duration = Duration::from_micros(100);

/// How long one may take that is held up for a reason that nobody has thought of.
pub(super) const BACKSTOP: Duration = Duration::from_millis(10);

/// How long the sleeps of a consumer that suppresses notification last at most, one after the other.
pub(super) const LIMITS: [Duration; 2] = [SETTLE, BACKSTOP];

/// Whether the consumer spares the producer the fence behind the packet that it has just stored.
#[inline(always)]
pub(super) fn is_suppressed(doorbell: &Doorbell) -> bool {
    // The packet comes first in the program; that it is seen first is what the short sleep is for.
    compiler_fence(Ordering::SeqCst);
    doorbell.sleeper.load(Ordering::Relaxed) == SUPPRESSED
}

/// A consumer's part.
#[derive(Debug)]
pub(super) struct Suppression {
    /// Cells without a sleep before the producer is spared.
    after: u64,
    /// From what position on it is; none while it is.
    from: u64,
    /// The limits of the sleeps that follow then.
    short: &'static [Duration],
    /// Those to come, until a producer that has seen [`SUPPRESSED`] has had its packets seen.
    limits: &'static [Duration],
    /// When the first of them is over, in a sleep.
    until: Deadline,
}

impl Suppression {
    pub(super) fn new() -> Suppression {
        Suppression::after(SUPPRESS_AFTER, &LIMITS)
    }

    /// One that begins after so many cells, with as many short sleeps.
    pub(super) fn after(cells: u64, short: &'static [Duration]) -> Suppression {
        Suppression {
            after: cells,
            from: cells,
            short,
            limits: &[],
            until: Deadline::NONE,
        }
    }

    /// The limit of the next sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limits.first().copied()
    }

    /// To be called behind each packet, with the position of the next.
    #[inline(always)]
    pub(super) fn received(&mut self, position: u64, doorbell: &Doorbell) {
        if position >= self.from {
            self.begin(doorbell);
        }
    }

    #[cold]
    fn begin(&mut self, doorbell: &Doorbell) {
        self.from = u64::MAX;
        self.limits = self.short;
        doorbell.sleeper.store(SUPPRESSED, Ordering::Relaxed);
    }

    /// The consumer has said that it sleeps, before `now`. Returns until when it may.
    pub(super) fn sleeps(&mut self, now: TimePoint, deadline: Deadline) -> Deadline {
        let limit = self.limits.first();
        self.until = limit.map_or(Deadline::NONE, |limit| Deadline::after(now, *limit));
        self.until.earlier(deadline)
    }

    /// A sleep has lasted for as long as this says. If [`Suppression::sleeps`] has said no more, that was to
    /// look for packets once more, and the consumer may sleep on.
    pub(super) fn has_settled(&mut self, until: Deadline) {
        if self.until.earlier(until) == self.until {
            self.limits = self.limits.get(1..).unwrap_or_default();
        }
    }

    /// The consumer, whose next packet is at `position`, has said that it is awake, though it may not have
    /// slept: the word says no more that the producer is spared.
    pub(super) fn wakes(&mut self, position: u64) {
        self.from = position.saturating_add(self.after);
    }
}
