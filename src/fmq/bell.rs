//! By what threads of this process end a wait of one of them.

use super::sync::{AtomicU32, Ordering};

/// The bell has not rung since it was last silenced.
const SILENT: u32 = 0;
const RUNG: u32 = 1;

/// Rings until the thread that waits has heard it.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// Ends the wait of the thread that waits, or its next. What was stored before is seen by whoever has silenced the bell.
    pub fn ring(&self) {
        self.0.store(RUNG, Ordering::Release);
        self.wake();
    }

    /// Whether it rings.
    #[inline]
    pub fn has_rung(&self) -> bool {
        self.0.load(Ordering::Relaxed) == RUNG
    }

    /// Has it be silent again, and says whether it rang.
    pub fn silence(&self) -> bool {
        self.0.swap(SILENT, Ordering::AcqRel) == RUNG
    }

    /// What the thread that waits sleeps on, and as long as this is there.
    #[cfg(not(loom))]
    pub(super) fn word(&self) -> (&AtomicU32, u32) {
        (&self.0, SILENT)
    }

    #[cfg(not(loom))]
    fn wake(&self) {
        // It fails for no word that is mapped.
        let _ = crate::sys::futex::wake(&self.0, i32::MAX);
    }

    /// Sleepers of the model look at the word itself.
    #[cfg(loom)]
    fn wake(&self) {}
}
