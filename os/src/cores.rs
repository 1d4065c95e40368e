//! On how many processors the threads of a program compute.

use std::any::Any;
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Leave to have one thread more, until dropped.
pub type ThreadPermit = Box<dyn Any + Send>;

/// Who says on how many processors a program may compute.
pub trait Cores: Sync + Debug {
    /// Most threads that one execution may compute with, 1 or more.
    fn most(&self) -> usize;

    /// Notes that the calling thread computes from now on. It is not refused, however busy the machine is.
    fn enter(&self);

    /// Notes that a thread that entered has done computing.
    fn leave(&self);

    /// Takes at most `wanted` processors on which nobody computes, for helpers; returns how many.
    fn take(&self, wanted: usize) -> usize;

    /// Gives back processors that were taken.
    fn give_back(&self, count: usize);

    /// Asks for leave to make a helper thread, which keeps the permit until it ends. `None` if there are as
    /// many threads as there may be.
    fn permit_helper(&self) -> Option<ThreadPermit>;
}

/// The processors of a process that shares them with nobody.
#[derive(Debug)]
pub struct OwnCores {
    count: usize,
    busy: AtomicUsize,
}

impl OwnCores {
    /// So many, at least one.
    #[must_use]
    pub fn new(count: usize) -> OwnCores {
        OwnCores {
            count: count.max(1),
            busy: AtomicUsize::new(0),
        }
    }
}

impl Cores for OwnCores {
    fn most(&self) -> usize {
        self.count
    }

    fn enter(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    fn take(&self, wanted: usize) -> usize {
        let free = |busy: usize| wanted.min(self.count.saturating_sub(busy));
        let taken = self
            .busy
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |busy| {
                Some(busy + free(busy))
            });
        taken.map_or(0, free)
    }

    fn give_back(&self, count: usize) {
        self.busy.fetch_sub(count, Ordering::Relaxed);
    }

    fn permit_helper(&self) -> Option<ThreadPermit> {
        Some(Box::new(()))
    }
}
