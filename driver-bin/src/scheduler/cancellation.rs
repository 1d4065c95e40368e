//! Which work is asked to end: all of a ticket's, or one piece of it by its number.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of work that has none, as that of calls.
const UNNUMBERED: u64 = 1;

/// What runs, and what of it is to end.
#[derive(Debug)]
pub(super) struct Cancellation {
    /// Which piece of work runs, or is about to.
    run: AtomicU64,
    /// Which one is to end; 0 for none.
    wanted: AtomicU64,
}

impl Default for Cancellation {
    fn default() -> Cancellation {
        Cancellation {
            run: AtomicU64::new(UNNUMBERED),
            wanted: AtomicU64::new(0),
        }
    }
}

/// Numbers are told from [`UNNUMBERED`] and from none.
fn run_of(number: u32) -> u64 {
    1 << u32::BITS | u64::from(number)
}

/// Whether a piece of work comes before the one of a number. Numbers begin again behind the last.
fn is_before(run: u64, number: u32) -> bool {
    // The upper half only says that there is a number.
    (run as u32).wrapping_sub(number).cast_signed() < 0
}

impl Cancellation {
    /// Whether what runs is to end. What was to end before or after it does not count.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Acquire);
        wanted != 0 && wanted == self.run.load(Ordering::Relaxed)
    }

    /// Asks work without a number to end.
    pub(super) fn want(&self) {
        self.wanted.store(UNNUMBERED, Ordering::Release);
    }

    /// Asks the piece of work of this number to end. Of several the latest counts: a wish that comes after
    /// the end of its work is not instead of the one for a later piece.
    pub(super) fn want_run(&self, number: u32) {
        let later = |wanted| (wanted == 0 || is_before(wanted, number)).then(|| run_of(number));
        // Refused, it stays as it is.
        let _ = self
            .wanted
            .fetch_update(Ordering::Release, Ordering::Relaxed, later);
    }

    /// Nothing is to end.
    pub(super) fn reset(&self) {
        self.wanted.store(0, Ordering::Release);
    }

    /// The next piece of work has this number. Numbers count up.
    #[inline]
    pub(super) fn begin(&self, number: u32) {
        self.run.store(run_of(number), Ordering::Relaxed);
        if self.wanted.load(Ordering::Relaxed) != 0 {
            self.forget_before(number);
        }
    }

    /// Forgets a wish whose work has ended, before its number comes again.
    #[cold]
    fn forget_before(&self, number: u32) {
        let ended = |wanted| (wanted != 0 && is_before(wanted, number)).then_some(0);
        // Refused, it is for this piece or a later one.
        let _ = self
            .wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, ended);
    }

    /// Takes over the wish for another's work.
    pub(super) fn take_over(&self, other: &Cancellation) {
        let wanted = other.wanted.load(Ordering::Relaxed);
        self.wanted.store(wanted, Ordering::Release);
    }
}
