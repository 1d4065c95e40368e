//! How long a helper looks for work before it sleeps.
//!
//! It looks as long behind an execution as between two operations: the next execution may follow at once.
//! Where none does, each execution costs its helpers that much of their processors.

use crate::plan::cost::{LOOKS_BETWEEN_CLOCKS, SPIN};

/// For how long a helper looks for work.
pub(super) struct Spin {
    looks: u32,
    since: Option<std::time::Instant>,
}

impl Spin {
    pub(super) fn new() -> Spin {
        Spin {
            looks: 0,
            since: None,
        }
    }

    pub(super) fn lasts(&mut self) -> bool {
        if cfg!(loom) {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS_BETWEEN_CLOCKS) {
            return true;
        }
        let now = std::time::Instant::now();
        now.duration_since(*self.since.get_or_insert(now)) < SPIN
    }
}
