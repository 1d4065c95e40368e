//! Spans of a worker for the program itself.

use nnhal::diag::trace::{Span, TraceReader, trace_bytes};
use nnhal_os::shm::SharedMemory;

use crate::error::{Error, Result};

/// Spans that a memory holds: at a million each second, what happens in the time between two readings three
/// times over.
pub(super) const SPANS: u32 = 1 << 16;

/// The spans of time that a device's worker records, each operation of its executions among them, if the
/// device tells of them: see [`Device::record_spans`](crate::Device::record_spans).
#[derive(Debug)]
pub struct WorkerSpans {
    reader: TraceReader,
}

impl WorkerSpans {
    /// A memory for a worker to record in, and its reader.
    pub(crate) fn new() -> Result<(SharedMemory, WorkerSpans)> {
        let memory =
            SharedMemory::create(trace_bytes(SPANS)).map_err(Error::memory("make a memory for spans"))?;
        let reader = TraceReader::new(&memory)
            .map_err(|error| Error::argument(format!("spans cannot be read: {error}")))?;
        Ok((memory, WorkerSpans { reader }))
    }

    /// Hands out what was recorded since the last time. Returns how many spans were lost since then: the
    /// memory keeps the last 65536.
    ///
    /// Once an execution has ended, the spans of its operations are there; an operation that runs others, as
    /// IF and WHILE do, comes behind them, and they lie within it in time.
    pub fn drain(&mut self, mut each: impl FnMut(Span)) -> u64 {
        self.reader.drain(&mut each)
    }
}
