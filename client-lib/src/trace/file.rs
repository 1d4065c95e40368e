//! The file, in the JSON array form of the Trace Event Format, which Perfetto and `chrome://tracing` read.
//! The form allows the closing bracket to be missing, so the file is whole after every event.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use nnhal::diag::tags;
use nnhal::diag::trace::{Span, SpanKind};
use nnhal_hal::OperationType;
use nnhal_os::time::{Clock as _, MonotonicClock};
use serde::Serialize;

/// `path` with the process id for `%p`.
pub(super) fn with_process_id(path: &OsStr, pid: u32) -> PathBuf {
    let bytes = path.as_bytes();
    let Some(at) = bytes.windows(2).position(|pair| pair == b"%p") else {
        return path.into();
    };
    let whole = [&bytes[..at], pid.to_string().as_bytes(), &bytes[at + 2..]].concat();
    OsString::from_vec(whole).into()
}

/// An event of the format. Times are in microseconds.
#[derive(Serialize)]
struct Event<'a> {
    name: &'a str,
    cat: &'a str,
    /// What it is: `X` a span of a thread, `b` and `e` begin and end of a wait, `M` a name, `i` an instant.
    ph: &'a str,
    pid: u32,
    tid: u32,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Arguments<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arguments<'a> {
    Process { name: &'a str },
    Place { index: u64 },
    Lost { spans: u64 },
}

/// A file that spans are written to.
#[derive(Debug)]
pub(super) struct TraceFile {
    out: BufWriter<File>,
    /// The number of the next wait.
    next_wait: u64,
    /// Told once.
    has_failed: bool,
}

impl TraceFile {
    /// An empty trace in place of whatever the file holds.
    pub(super) fn create(path: &Path) -> io::Result<TraceFile> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(b"[\n")?;
        out.flush()?;
        Ok(TraceFile {
            out,
            next_wait: 0,
            has_failed: false,
        })
    }

    /// Says what a process is.
    pub(super) fn name_process(&mut self, pid: u32, name: &str) {
        self.put(&Event {
            args: Some(Arguments::Process { name }),
            ..event("process_name", "__metadata", "M", pid)
        });
    }

    pub(super) fn write(&mut self, pid: u32, span: &Span) {
        let operation = u32::try_from(span.detail).ok().map(OperationType);
        let text = match (span.kind, operation) {
            (SpanKind::Operation, Some(operation)) => Some(operation.to_string()),
            _ => None,
        };
        let name = text.as_deref().unwrap_or(span.kind.name());
        let has_place = matches!(
            span.kind,
            SpanKind::Operation | SpanKind::Step | SpanKind::CompileStep
        );
        let start = span.start.as_nanos();
        let begun = Event {
            tid: span.thread,
            ts: micros(start),
            dur: Some(micros(span.duration_ns)),
            args: has_place.then_some(Arguments::Place { index: span.subject }),
            ..event(name, span.kind.tag(), "X", pid)
        };
        if span.thread != 0 {
            return self.put(&begun);
        }
        let id = Some(self.next_wait);
        self.next_wait += 1;
        self.put(&Event {
            ph: "b",
            dur: None,
            id,
            ..begun
        });
        self.put(&Event {
            ts: micros(start.saturating_add(span.duration_ns)),
            id,
            ..event(name, span.kind.tag(), "e", pid)
        });
    }

    /// Says that spans are missing here.
    pub(super) fn write_lost(&mut self, pid: u32, spans: u64) {
        self.put(&Event {
            ts: micros(MonotonicClock.now().as_nanos()),
            args: Some(Arguments::Lost { spans }),
            ..event("spans lost", nnhal::diag::tags::DRIVER, "i", pid)
        });
    }

    fn put(&mut self, event: &Event<'_>) {
        let written = serde_json::to_writer(&mut self.out, event)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b",\n"));
        self.note(written);
    }

    /// What is not written yet goes to the file.
    pub(super) fn flush(&mut self) {
        let flushed = self.out.flush();
        self.note(flushed);
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(error) = outcome
            && !std::mem::replace(&mut self.has_failed, true)
        {
            tracing::warn!(target: tags::DRIVER, %error, "the trace is incomplete");
        }
    }
}

fn event<'a>(name: &'a str, cat: &'a str, ph: &'a str, pid: u32) -> Event<'a> {
    Event {
        name,
        cat,
        ph,
        pid,
        tid: 0,
        ts: 0.0,
        dur: None,
        id: None,
        args: None,
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use nnhal_os::time::TimePoint;
    use serde_json::Value;

    use super::*;

    fn span(kind: SpanKind, thread: u32) -> Span {
        Span {
            kind,
            thread,
            start: TimePoint::from_nanos(1_500),
            duration_ns: 250,
            subject: 4,
            detail: u64::from(OperationType::CONV_2D.0),
        }
    }

    /// What the file holds, read as its readers do: a missing end is theirs to add.
    fn written(write: impl FnOnce(&mut TraceFile)) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let mut file = TraceFile::create(&path).unwrap();
        write(&mut file);
        file.flush();
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = format!("{}]", text.trim_end().trim_end_matches(','));
        serde_json::from_str(&whole).unwrap()
    }

    #[test]
    fn spans_of_threads_are_complete_events() {
        let events = written(|file| file.write(9, &span(SpanKind::Operation, 5)));
        let expected = serde_json::json!([{
            "name": "CONV_2D", "cat": "cpuexe", "ph": "X", "pid": 9, "tid": 5, "ts": 1.5, "dur": 0.25,
            "args": {"index": 4},
        }]);
        assert_eq!(Value::Array(events), expected);
    }

    #[test]
    fn waits_are_pairs_of_their_own() {
        let events = written(|file| {
            file.write(9, &span(SpanKind::FenceWait, 0));
            file.write(9, &span(SpanKind::FenceWait, 0));
        });
        let phases: Vec<_> = events.iter().map(|event| (&event["ph"], &event["id"])).collect();
        assert_eq!(
            format!("{phases:?}"),
            r#"[(String("b"), Number(0)), (String("e"), Number(0)), (String("b"), Number(1)), (String("e"), Number(1))]"#
        );
        assert_eq!(events[1]["ts"], 1.75);
    }

    #[test]
    fn processes_are_named_and_losses_counted() {
        let events = written(|file| {
            file.name_process(9, "camera \"1\"");
            file.write_lost(9, 70);
        });
        assert_eq!(events[0]["args"]["name"], "camera \"1\"");
        assert_eq!(events[1]["args"]["spans"], 70);
    }

    #[test]
    fn the_process_id_takes_its_place_in_the_name() {
        let name = |path: &str| with_process_id(OsStr::new(path), 12);
        assert_eq!(name("/run/a-%p.json"), Path::new("/run/a-12.json"));
        assert_eq!(name("plain"), Path::new("plain"));
    }
}
