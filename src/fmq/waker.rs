//! By what threads of this process end a wait of one of them.

use std::sync::Arc;

use super::closer::wake_consumer;
use super::memory::RingMemory;
use super::sync::{AtomicU32, Ordering};

const IDLE: u32 = 0;
const WOKEN: u32 = 1;

/// Stays woken until the thread that waits for a ring's packets clears it. [`super::Consumer::new_waker`]
/// makes it; a wait with a wait set that has it looks at it.
#[derive(Debug)]
pub struct Waker {
    ring: Arc<RingMemory>,
    state: AtomicU32,
}

impl Waker {
    pub(super) fn new(ring: Arc<RingMemory>) -> Waker {
        Waker {
            ring,
            state: AtomicU32::new(IDLE),
        }
    }

    /// Ends the wait of the thread that waits, or its next. What was stored before is seen by whoever has
    /// cleared the waker.
    pub fn wake(&self) {
        self.state.store(WOKEN, Ordering::Release);
        wake_consumer(&self.ring);
    }

    /// Whether it was woken, and not cleared since.
    #[inline]
    pub fn is_woken(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WOKEN
    }

    /// Makes it idle again, and says whether it was woken.
    pub fn clear(&self) -> bool {
        self.state.swap(IDLE, Ordering::AcqRel) == WOKEN
    }
}
