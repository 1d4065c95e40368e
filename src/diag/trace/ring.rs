//! The memory that spans are recorded in.
//!
//! It is a row of slots of 64 bytes, written in turn, over and over. A slot starts with its *state*: 2 n once
//! the row has been filled n times up to here, 2 n - 1 while that is being done. A reader that finds the
//! state it expects before and after it has copied the rest has copied one record; one that finds a later
//! state has been overtaken and counts what it lost. A writer that finds its slot taken, because another one
//! stopped in the middle a whole row ago, gives its record up rather than wait.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Span, SpanKind};
use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};
use nnhal_os::time::{Clock, MonotonicClock, TimePoint};

/// Bytes of a slot: those of a cache line, so that two threads do not write to the same one.
const SLOT_BYTES: u64 = 64;

/// The most spans that a memory holds.
pub const MAX_SPANS: u32 = 1 << 18;

/// Bytes of a memory for so many spans.
#[must_use]
pub const fn trace_bytes(spans: u32) -> u64 {
    spans as u64 * SLOT_BYTES
}

/// Why a memory cannot be used for spans.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Its size is wrong.
    #[error(
        "a memory of {size} bytes holds no spans; it must have a multiple of {SLOT_BYTES}, at most {}",
        trace_bytes(MAX_SPANS)
    )]
    Size {
        /// In bytes.
        size: u64,
    },
    /// It cannot be mapped.
    #[error("the memory for spans cannot be used: {0}")]
    Memory(#[from] ShmError),
}

/// What is in a slot behind its lap.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Record {
    start_ns: u64,
    duration_ns: u64,
    subject: u64,
    detail: u64,
    kind: u32,
    thread: u32,
}

/// Where a record starts in its slot: behind the lap and what aligns the record.
const RECORD_OFFSET: u64 = 8;

fn map(memory: &SharedMemory) -> Result<(Mapping, u64), TraceError> {
    let size = memory.size();
    if size == 0 || !size.is_multiple_of(SLOT_BYTES) || size > trace_bytes(MAX_SPANS) {
        return Err(TraceError::Size { size });
    }
    // States are atomics for the reader as well.
    let mapping = Mapping::prefaulted(memory, Access::ReadWrite)?;
    Ok((mapping, size / SLOT_BYTES))
}

/// Where the slot of the span with this number is, and its state when it is written. States that do not fit
/// are those of no slot: 2^31 rows are more than a process will ever fill.
fn place(number: u64, slots: u64) -> (u64, u32) {
    let state = u32::try_from((number / slots + 1).saturating_mul(2)).unwrap_or(u32::MAX);
    (number % slots * SLOT_BYTES, state)
}

thread_local! {
    static THREAD: Cell<u32> = const { Cell::new(0) };
}

/// The system's number of this thread.
fn this_thread() -> u32 {
    THREAD.with(|number| {
        if number.get() == 0 {
            number.set(nix::unistd::gettid().as_raw().cast_unsigned());
        }
        number.get()
    })
}

fn nanos_between(start: TimePoint, end: TimePoint) -> u64 {
    u64::try_from(end.saturating_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// Records spans, from any number of threads.
#[derive(Debug)]
pub struct Tracer {
    mapping: Mapping,
    slots: u64,
    /// The number of the next span. Not in the memory, which others can write.
    next: AtomicU64,
}

impl Tracer {
    /// Records into `memory`, of [`trace_bytes`], all zero.
    ///
    /// # Errors
    /// The memory has another size or cannot be mapped for writing.
    pub fn new(memory: &SharedMemory) -> Result<Tracer, TraceError> {
        let (mapping, slots) = map(memory)?;
        Ok(Tracer {
            mapping,
            slots,
            next: AtomicU64::new(0),
        })
    }

    /// Begins a span that ends when the guard is dropped.
    #[must_use = "the span ends when this is dropped"]
    // Cold, like the other end: where spans cost nothing is where nobody traces.
    #[cold]
    pub fn span(&self, kind: SpanKind, subject: u64, detail: u64) -> Guard<'_> {
        Guard {
            tracer: self,
            kind,
            subject,
            detail,
            start: MonotonicClock.now(),
        }
    }

    /// Records a span that began at `start` and ends now.
    pub fn record_since(&self, start: TimePoint, kind: SpanKind, subject: u64, detail: u64) {
        self.record_from_to((start, MonotonicClock.now()), kind, subject, detail);
    }

    /// Records a span of this thread.
    pub fn record_from_to(
        &self,
        (start, end): (TimePoint, TimePoint),
        kind: SpanKind,
        subject: u64,
        detail: u64,
    ) {
        self.record(&Span {
            kind,
            thread: this_thread(),
            start,
            duration_ns: nanos_between(start, end),
            subject,
            detail,
        });
    }

    /// Records a wait that began at `start` and ends now, and kept no thread busy.
    pub fn record_wait(&self, start: TimePoint, kind: SpanKind) {
        self.record(&Span {
            kind,
            thread: 0,
            start,
            duration_ns: nanos_between(start, MonotonicClock.now()),
            subject: 0,
            detail: 0,
        });
    }

    /// Records a span. If the reader has not kept up, an older one is lost.
    pub fn record(&self, span: &Span) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (slot, written) = place(number, self.slots);
        let record = Record {
            start_ns: span.start.as_nanos(),
            duration_ns: span.duration_ns,
            subject: span.subject,
            detail: span.detail,
            kind: span.kind.code(),
            thread: span.thread,
        };
        let slice = self.mapping.as_slice();
        // Slots lie in the memory and are aligned.
        let Ok(state) = slice.atomic_u32(slot) else {
            return;
        };
        let found = state.load(Ordering::Relaxed);
        let is_free = found.is_multiple_of(2) && found < written;
        let being_written = written - 1;
        if !is_free
            || state
                .compare_exchange(found, being_written, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        // No part of the record is seen before the state that says that it is being written.
        fence(Ordering::Release);
        if slice
            .write_at(slot + RECORD_OFFSET, bytemuck::bytes_of(&record))
            .is_ok()
        {
            state.store(written, Ordering::Release);
        }
    }
}

/// A span that has begun.
#[derive(Debug)]
pub struct Guard<'a> {
    tracer: &'a Tracer,
    kind: SpanKind,
    subject: u64,
    detail: u64,
    start: TimePoint,
}

impl Drop for Guard<'_> {
    #[cold]
    fn drop(&mut self) {
        self.tracer
            .record_since(self.start, self.kind, self.subject, self.detail);
    }
}

/// Reads spans that a [`Tracer`] records, here or in another process.
#[derive(Debug)]
pub struct TraceReader {
    mapping: Mapping,
    slots: u64,
    next: u64,
    /// Whether the last drain ended because of this slot, which the next one then gives up if later ones are
    /// there.
    stopped_at: Option<u64>,
}

/// What a slot has for a reader.
enum Found {
    Record(Record),
    /// It is not written yet.
    Nothing,
    /// It has been written again, this number of laps later.
    Overtaken(u64),
}

impl TraceReader {
    /// Reads what is recorded into `memory` from the first span on.
    ///
    /// # Errors
    /// As for [`Tracer::new`].
    pub fn new(memory: &SharedMemory) -> Result<TraceReader, TraceError> {
        let (mapping, slots) = map(memory)?;
        Ok(TraceReader {
            mapping,
            slots,
            next: 0,
            stopped_at: None,
        })
    }

    /// Hands out the spans recorded since the last time, at most as many as the memory holds. Returns how
    /// many were lost because they were not read in time, as far as the writer is to be believed.
    pub fn drain(&mut self, each: &mut dyn FnMut(Span)) -> u64 {
        let mut lost: u64 = 0;
        for _ in 0..self.slots {
            match self.look(self.next) {
                Found::Nothing if self.is_given_up() => {
                    lost = lost.saturating_add(1);
                    self.next = self.next.saturating_add(1);
                }
                Found::Nothing => {
                    self.stopped_at = Some(self.next);
                    break;
                }
                Found::Overtaken(laps) => {
                    let skipped = laps.saturating_mul(self.slots);
                    lost = lost.saturating_add(skipped);
                    self.next = self.next.saturating_add(skipped);
                }
                Found::Record(record) => {
                    self.next = self.next.saturating_add(1);
                    match SpanKind::from_code(record.kind) {
                        Some(kind) => each(Span {
                            kind,
                            thread: record.thread,
                            start: TimePoint::from_nanos(record.start_ns),
                            duration_ns: record.duration_ns,
                            subject: record.subject,
                            detail: record.detail,
                        }),
                        None => lost = lost.saturating_add(1),
                    }
                }
            }
        }
        lost
    }

    /// Whether the next slot was not written last time either, and the one behind it is.
    fn is_given_up(&self) -> bool {
        self.stopped_at == Some(self.next)
            && !matches!(self.look(self.next.saturating_add(1)), Found::Nothing)
    }

    /// What the slot of the span with this number has.
    fn look(&self, number: u64) -> Found {
        let (slot, written) = place(number, self.slots);
        let slice = self.mapping.as_slice();
        let Ok(state) = slice.atomic_u32(slot) else {
            return Found::Nothing;
        };
        let found = state.load(Ordering::Acquire);
        if found < written {
            return Found::Nothing;
        }
        if found > written {
            return Found::Overtaken(u64::from((found - written).div_ceil(2)));
        }
        let mut record: Record = bytemuck::Zeroable::zeroed();
        let is_read = slice.read_at(slot + RECORD_OFFSET, bytemuck::bytes_of_mut(&mut record));
        fence(Ordering::Acquire);
        // Written again meanwhile: what was copied may be of two records.
        if is_read.is_err() || state.load(Ordering::Relaxed) != written {
            return Found::Overtaken(1);
        }
        Found::Record(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(spans: u32) -> (Tracer, TraceReader, SharedMemory) {
        let memory = SharedMemory::create(trace_bytes(spans)).unwrap();
        let tracer = Tracer::new(&memory).unwrap();
        (tracer, TraceReader::new(&memory).unwrap(), memory)
    }

    fn span(subject: u64) -> Span {
        Span {
            kind: SpanKind::Operation,
            thread: 3,
            start: TimePoint::from_nanos(subject * 7),
            duration_ns: subject * 11,
            subject,
            detail: subject * 13,
        }
    }

    fn drained(reader: &mut TraceReader) -> (Vec<Span>, u64) {
        let mut found = Vec::new();
        let lost = reader.drain(&mut |span| found.push(span));
        (found, lost)
    }

    #[test]
    fn spans_are_read_in_turn_once() {
        let (tracer, mut reader, _) = pair(8);
        for round in 0..5 {
            let spans: Vec<Span> = (0..6).map(|at| span(round * 6 + at)).collect();
            spans.iter().for_each(|span| tracer.record(span));
            assert_eq!(drained(&mut reader), (spans, 0));
            assert_eq!(drained(&mut reader), (vec![], 0));
        }
    }

    #[test]
    fn guards_record_when_they_are_dropped() {
        let (tracer, mut reader, _) = pair(8);
        let before = MonotonicClock.now();
        drop(tracer.span(SpanKind::Step, 1, 2));
        let (spans, _) = drained(&mut reader);
        let [span] = spans[..] else { panic!("{spans:?}") };
        assert!(span.start >= before && span.thread != 0);
        assert_eq!((span.kind, span.subject, span.detail), (SpanKind::Step, 1, 2));
    }

    #[test]
    fn a_reader_that_is_overtaken_counts_what_it_lost() {
        let (tracer, mut reader, _) = pair(4);
        (0..11).for_each(|at| tracer.record(&span(at)));
        let (spans, lost) = drained(&mut reader);
        assert_eq!(spans.len() as u64 + lost, 11);
        assert_eq!(spans.last(), Some(&span(10)));
        tracer.record(&span(11));
        assert_eq!(drained(&mut reader), (vec![span(11)], 0));
    }

    #[test]
    fn memory_of_another_size_is_refused() {
        for size in [1, 63, 65, trace_bytes(MAX_SPANS) + SLOT_BYTES] {
            let memory = SharedMemory::create(size).unwrap();
            assert!(
                matches!(Tracer::new(&memory), Err(TraceError::Size { .. })),
                "{size}"
            );
            assert!(TraceReader::new(&memory).is_err(), "{size}");
        }
    }

    #[test]
    fn whatever_a_writer_leaves_is_bounded() {
        let (_, mut reader, memory) = pair(8);
        let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
        for word in [u32::MAX, 1, 2, 0x8000_0000] {
            for at in 0..memory.size() / 4 {
                mapping.as_slice().write_at(at * 4, &word.to_ne_bytes()).unwrap();
            }
            let (spans, _) = drained(&mut reader);
            assert!(spans.len() <= 8, "{word}");
        }
    }

    /// Threads record all the time while another one reads: no record is ever mixed from two.
    #[test]
    fn no_record_is_torn() {
        const EACH: u64 = 20_000;
        let (tracer, mut reader, _) = pair(16);
        let (mut seen, mut lost) = (0, 0);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let tracer = &tracer;
                    scope.spawn(move || (0..EACH).for_each(|at| tracer.record(&span(writer * EACH + at))))
                })
                .collect();
            let mut is_last = false;
            while !is_last {
                is_last = writers.iter().all(|writer| writer.is_finished());
                lost += reader.drain(&mut |found| {
                    assert_eq!(found, span(found.subject));
                    seen += 1;
                });
            }
        });
        assert!(seen > 0 && seen + lost <= 2 * EACH, "{seen} seen, {lost} lost");
    }

    #[test]
    fn a_slot_whose_writer_stopped_is_passed_over() {
        let (tracer, mut reader, memory) = pair(4);
        let mapping = Mapping::new(&memory, Access::ReadWrite).unwrap();
        let state = mapping.as_slice().atomic_u32(SLOT_BYTES).unwrap();
        tracer.record(&span(0));
        state.store(1, Ordering::Relaxed);
        tracer.record(&span(1));
        tracer.record(&span(2));
        assert_eq!(drained(&mut reader), (vec![span(0)], 0));
        assert_eq!(drained(&mut reader), (vec![span(2)], 1));
    }
}
