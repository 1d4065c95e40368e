//! Why this process ends, for the supervisor to tell.

use std::sync::OnceLock;

use crate::link::CrashRecord;

static CRASH_RECORD: OnceLock<CrashRecord> = OnceLock::new();

/// Has notes kept there. Only the first call counts.
pub(super) fn keep_in(crash_record: CrashRecord) {
    let _ = CRASH_RECORD.set(crash_record);
}

/// Notes why this process is about to end.
pub(super) fn note(text: &str) {
    if let Some(crash_record) = CRASH_RECORD.get() {
        crash_record.note(text);
    }
}
