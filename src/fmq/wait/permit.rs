//! How many threads of this process may poll with pauses at once: as many as there are processors. Who gets
//! no permit sleeps at once.
//!
//! Threads that poll offer their processors to others, but not if their window is fixed. Then more of them
//! than processors keep each other and their peers waiting for as long as the system lets each run. Five
//! bursts of one client on two processors took milliseconds for each request without this.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many permits are taken.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// The right of a thread to poll with pauses, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit(&'static AtomicU32);

impl Permit {
    /// One of `most`, if not all of them are taken.
    pub(super) fn take(most: u32) -> Option<Permit> {
        Permit::take_of(&TAKEN, most)
    }

    fn take_of(taken: &'static AtomicU32, most: u32) -> Option<Permit> {
        if taken.fetch_add(1, Ordering::Relaxed) < most {
            return Some(Permit(taken));
        }
        taken.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_and_each_comes_back() {
        static OWN: AtomicU32 = AtomicU32::new(0);
        let take = || Permit::take_of(&OWN, 2);
        let (first, second) = (take(), take());
        assert!(first.is_some() && second.is_some() && take().is_none());
        drop(first);
        assert!(take().is_some());
    }
}
