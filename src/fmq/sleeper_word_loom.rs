//! The word that a consumer sleeps on, in loom's model of memory.

use std::sync::atomic::AtomicBool;

use super::words;
use loom::sync::atomic::{AtomicU32, Ordering};

/// The doorbell word, which says no longer that notification is suppressed once that has begun a short sleep:
/// by then its word for that is behind a fence.
#[derive(Debug)]
pub(super) struct SleeperWord {
    word: AtomicU32,
    /// Whether [`words::SUPPRESSED`] cannot be seen any more. Not of loom: it is about what has been done,
    /// not about who may know of it.
    is_settled: AtomicBool,
}

impl SleeperWord {
    pub(super) fn new(value: u32) -> SleeperWord {
        SleeperWord {
            word: AtomicU32::new(value),
            is_settled: AtomicBool::new(false),
        }
    }

    pub(super) fn load(&self, ordering: Ordering) -> u32 {
        match self.word.load(ordering) {
            words::SUPPRESSED if self.is_settled.load(Ordering::Relaxed) => words::SLEEPING,
            value => value,
        }
    }

    pub(super) fn store(&self, value: u32, ordering: Ordering) {
        if value == words::SUPPRESSED {
            self.is_settled.store(false, Ordering::Relaxed);
        }
        self.word.store(value, ordering);
    }

    pub(super) fn settle(&self) {
        self.is_settled.store(true, Ordering::Relaxed);
    }
}
