//! By what threads of this process end a wait of one of them.

use std::sync::Arc;

use super::closer::wake_consumer;
use super::memory::RingMemory;
use super::sync::{AtomicU32, Ordering};

const SILENT: u32 = 0;
const RUNG: u32 = 1;

/// Rings until the thread that waits for a ring's packets has heard it: made by [`super::Consumer::new_bell`], and heard by a wait in
/// a company that has it.
#[derive(Debug)]
pub struct Bell {
    ring: Arc<RingMemory>,
    state: AtomicU32,
}

impl Bell {
    pub(super) fn new(ring: Arc<RingMemory>) -> Bell {
        Bell {
            ring,
            state: AtomicU32::new(SILENT),
        }
    }

    /// Ends the wait of the thread that waits, or its next. What was stored before is seen by whoever has silenced the bell.
    pub fn ring(&self) {
        self.state.store(RUNG, Ordering::Release);
        wake_consumer(&self.ring);
    }

    /// Whether it rings.
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RUNG
    }

    /// Has it be silent again, and says whether it rang.
    pub fn silence(&self) -> bool {
        self.state.swap(SILENT, Ordering::AcqRel) == RUNG
    }
}
