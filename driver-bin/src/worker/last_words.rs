//! Why this process ends, for the supervisor to tell.

use std::fmt::Write;
use std::sync::OnceLock;

use nnhal::wire::Handle;
use nnhal_os::shm::BusError;

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
    let _ = describe(error, &mut line);
    let text = line.bytes.get(..line.length).unwrap_or_default();
    note(std::str::from_utf8(text).unwrap_or("memory was gone when it was touched"));
}

/// Notes that this process has aborted, where its code alone tells of it. Takes no lock and allocates
/// nothing.
pub(super) fn note_abort() {
    note("it aborted (SIGABRT)");
}

/// What a client is told of a memory that was gone when it was touched.
fn describe(error: &BusError, text: &mut Line) -> std::fmt::Result {
    let Some(memory) = error.memory else {
        return text.write_str(
            "memory that is not known by a name was not there when it was touched, or another process sent the signal",
        );
    };
    // As memories name their mappings.
    let Handle { index, generation } = Handle::from_bits(memory.name);
    write!(
        text,
        "the client's memory {index} of generation {generation}, {} bytes of a file, ",
        memory.size
    )?;
    if error.nothing_there {
        write!(
            text,
            "was cut short, or cannot be read: an argument touched byte {} of it",
            memory.offset
        )
    } else {
        write!(text, "is damaged at byte {}", memory.offset)
    }
}

/// Text in a place of its own.
struct Line {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Line {
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
