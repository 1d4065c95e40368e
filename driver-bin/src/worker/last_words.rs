//! Why this process ends, for the supervisor to tell.

use std::sync::OnceLock;

use crate::link::BlackBox;

static BLACK_BOX: OnceLock<BlackBox> = OnceLock::new();

/// Has notes kept there. Only the first call counts.
pub(super) fn keep_in(black_box: BlackBox) {
    let _ = BLACK_BOX.set(black_box);
}

/// Notes why this process is about to end.
pub(super) fn note(text: &str) {
    if let Some(black_box) = BLACK_BOX.get() {
        black_box.note(text);
    }
}
