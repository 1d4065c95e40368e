//! How many slots are taken, and by whom.

use std::sync::atomic::{AtomicU64, Ordering};

/// What part of the slots a piece of work may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of them, beside others that have the same.
    Own,
    /// Those that all others leave: of low priority.
    Left,
}

impl Share {
    /// One slot, as it is counted.
    fn one(self) -> u64 {
        match self {
            Share::Own => 1,
            Share::Left => 1 << u32::BITS,
        }
    }
}

/// A bounded number of slots.
#[derive(Debug)]
pub(super) struct Slots {
    count: u64,
    /// The taken ones: in the lower half [`Share::Own`], in the upper half [`Share::Left`].
    taken: AtomicU64,
}

impl Slots {
    /// So many, at least one.
    pub(super) fn new(count: u32) -> Slots {
        Slots {
            count: u64::from(count.max(1)),
            taken: AtomicU64::new(0),
        }
    }

    fn is_free(&self, taken: u64, share: Share) -> bool {
        let own = taken & u64::from(u32::MAX);
        let before = match share {
            Share::Own => own,
            Share::Left => own + (taken >> u32::BITS),
        };
        before < self.count
    }

    /// Whether there is one for such work.
    pub(super) fn are_free_for(&self, share: Share) -> bool {
        self.is_free(self.taken.load(Ordering::SeqCst), share)
    }

    /// Takes one; `false` if there is none.
    #[inline]
    pub(super) fn take(&self, share: Share) -> bool {
        let more = |taken| self.is_free(taken, share).then(|| taken + share.one());
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Takes one whether there is one or not, for work that gives it back at once.
    pub(super) fn take_beyond(&self, share: Share) {
        self.taken.fetch_add(share.one(), Ordering::SeqCst);
    }

    pub(super) fn give(&self, share: Share) {
        self.taken.fetch_sub(share.one(), Ordering::SeqCst);
    }

    /// Whether any is taken.
    pub(super) fn are_taken(&self) -> bool {
        self.taken.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_low_priority_takes_none_from_others() {
        let slots = Slots::new(2);
        assert!(slots.take(Share::Left) && slots.take(Share::Left) && !slots.take(Share::Left));
        assert!(slots.take(Share::Own) && slots.take(Share::Own) && !slots.take(Share::Own));
        slots.give(Share::Left);
        slots.give(Share::Left);
        assert!(!slots.take(Share::Left));
        slots.give(Share::Own);
        assert!(slots.take(Share::Left) && slots.are_free_for(Share::Own));
        slots.give(Share::Left);
        slots.give(Share::Own);
        assert!(!slots.are_taken());
    }
}
