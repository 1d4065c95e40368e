//! Why this process ends, for the supervisor to tell.

use std::sync::OnceLock;

use nnhal_os::shm::BusError;

use super::memory::describe_bus_error;
use crate::link::CrashRecord;

static CRASH_RECORD: OnceLock<CrashRecord> = OnceLock::new();

/// Has notes kept there. Only the first call counts.
pub(super) fn keep_in(crash_record: CrashRecord) {
    let _ = CRASH_RECORD.set(crash_record);
}

/// Notes that memory was gone, before it ends this process. Takes no lock and allocates nothing.
pub(super) fn note_bus_error(error: &BusError) {
    let mut line = Line {
        bytes: [0; 256],
        length: 0,
    };
    // What does not fit is left out.
    let _ = describe_bus_error(error, &mut line);
    let text = line.bytes.get(..line.length).unwrap_or_default();
    note(std::str::from_utf8(text).unwrap_or("memory was gone when it was touched"));
}

/// Text in a place of its own.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl std::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let part = room.get_mut(..text.len()).ok_or(std::fmt::Error)?;
        part.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

/// Notes why this process is about to end.
pub(super) fn note(text: &str) {
    if let Some(crash_record) = CRASH_RECORD.get() {
        crash_record.note(text);
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn line_takes_what_fits() {
        let mut line = Line {
            bytes: [0; 256],
            length: 0,
        };
        line.write_str(&"a".repeat(250)).unwrap();
        assert!(line.write_str("seven..").is_err());
        line.write_str("six...").unwrap();
        assert_eq!(line.length, 256);
    }
}
