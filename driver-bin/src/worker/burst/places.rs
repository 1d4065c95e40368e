//! The places for shared pollers, and those who have one.
//!
//! Lent bursts come back to their own threads when they end, when their tasks are short no more, or when the
//! shared poller ceases to be one. Of each kind of burst there are no more shared pollers than half of the
//! processors, the other half being for the threads of the client, so that with no more bursts than that each
//! keeps its own thread.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::fmq::{MAX_WAIT_SET, Waker};
use nnhal_os::futex;

use super::lent::{LentBurst, ReturnSlot};
use super::serve::{Kind, Server};

/// The shared pollers of a client's worker.
#[derive(Debug)]
pub(super) struct Places {
    /// Of each kind.
    most: AtomicUsize,
    taken: Mutex<Vec<Place>>,
    /// Counts up when room for a shared poller or a lent burst may have become free.
    openings: AtomicU32,
}

/// A shared poller as those see it who look for one.
#[derive(Debug)]
struct Place {
    waker: Arc<Waker>,
    kind: Kind,
    /// How many bursts are lent to it, with those that arrive.
    lent: usize,
    /// Those that it has not yet taken in.
    arriving: Vec<LentBurst>,
}

impl Places {
    /// With at most so many shared pollers of each kind; 0 for half of the processors.
    pub(super) fn new(most: u32) -> Places {
        let processors = crate::processors::processors();
        let most = match most {
            0 => (processors / 2).max(1),
            most => most as usize,
        };
        Places {
            // Without this a thread cannot sleep for several bursts.
            most: AtomicUsize::new(if futex::can_wait_on_any() { most } else { 0 }),
            taken: Mutex::default(),
            openings: AtomicU32::new(0),
        }
    }

    /// How often room may have become free.
    #[inline]
    pub(super) fn openings(&self) -> u32 {
        self.openings.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        // The list is whole between any two statements of this module.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread of a burst a shared poller, if there may be one more of its kind: the waker that
    /// calls it.
    pub(super) fn take(&self, server: &Server) -> Option<Arc<Waker>> {
        let mut taken = self.lock();
        let same = taken.iter().filter(|place| place.kind == server.kind()).count();
        if same >= self.most.load(Ordering::Relaxed) {
            return None;
        }
        // Tasks may become short again and again.
        let waker = Arc::clone(server.waker());
        taken.push(Place {
            waker: Arc::clone(&waker),
            kind: server.kind(),
            lent: 0,
            arriving: Vec::new(),
        });
        self.openings.fetch_add(1, Ordering::Relaxed);
        Some(waker)
    }

    /// Lends a burst to the shared poller of its kind that has the fewest, if there is one with room.
    pub(super) fn lend(&self, server: Box<Server>) -> Result<Arc<ReturnSlot>, Box<Server>> {
        let kind = server.kind();
        let mut taken = self.lock();
        let place = taken
            .iter_mut()
            .filter(|place| place.kind == kind && place.lent < MAX_WAIT_SET)
            .min_by_key(|place| place.lent);
        let Some(place) = place else { return Err(server) };
        let returns = Arc::<ReturnSlot>::default();
        place.lent += 1;
        place.arriving.push(LentBurst::new(server, Arc::clone(&returns)));
        place.waker.wake();
        Ok(returns)
    }

    /// From now on no thread becomes a shared poller: it could not sleep for several bursts. Those that are
    /// stay so until they find out the same.
    pub(super) fn give_up(&self) {
        self.most.store(0, Ordering::Relaxed);
    }

    /// Those that were lent to a shared poller since it last asked.
    pub(super) fn arrived(&self, waker: &Arc<Waker>) -> Vec<LentBurst> {
        let mut taken = self.lock();
        let place = taken.iter_mut().find(|place| Arc::ptr_eq(&place.waker, waker));
        place
            .map(|place| std::mem::take(&mut place.arriving))
            .unwrap_or_default()
    }

    /// A lent burst goes back.
    pub(super) fn has_left(&self, waker: &Arc<Waker>) {
        let mut taken = self.lock();
        if let Some(place) = taken.iter_mut().find(|place| Arc::ptr_eq(&place.waker, waker)) {
            place.lent -= 1;
        }
        self.openings.fetch_add(1, Ordering::Relaxed);
    }

    /// A shared poller ceases to be one. Bursts that are on their way to it go back.
    pub(super) fn closes(&self, waker: &Arc<Waker>) {
        self.lock().retain(|place| !Arc::ptr_eq(&place.waker, waker));
        self.openings.fetch_add(1, Ordering::Relaxed);
    }
}
