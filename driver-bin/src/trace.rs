//! Spans of time for the client, if it asked for them.
//!
//! A worker serves one client, so there is one [`Tracer`] for the process. Until the client has given it a
//! memory, what is here costs a load and a comparison.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use nnhal::diag::trace::{Guard, MAX_SPANS, SpanKind, Tracer, trace_bytes};
use nnhal_hal::{ErrorStatus, Failure};
use nnhal_os::shm::SharedMemory;

use crate::usage::Permit;

/// With what its memory counts for.
static TRACER: OnceLock<(Tracer, Permit)> = OnceLock::new();

/// Where spans are recorded, if they are.
#[inline]
pub(crate) fn tracer() -> Option<&'static Tracer> {
    TRACER.get().map(|(tracer, _)| tracer)
}

/// Begins a span that ends when the result is dropped.
#[inline]
pub(crate) fn span(kind: SpanKind, subject: u64, detail: u64) -> Option<Guard<'static>> {
    tracer().map(|tracer| tracer.span(kind, subject, detail))
}

/// Records into the client's memory from now on, which `count` counts among those that it shares.
///
/// # Errors
///
/// The memory cannot be used, or there is one already.
pub(crate) fn start(
    fd: Option<OwnedFd>,
    size: u64,
    count: impl FnOnce() -> Result<Permit, Failure>,
) -> Result<(), Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::invalid_argument(error.to_string());
    let fd = fd.ok_or_else(|| invalid(&"a trace needs its memory"))?;
    let memory = SharedMemory::from_fd(fd, size, trace_bytes(MAX_SPANS)).map_err(|error| invalid(&error))?;
    if !memory.cannot_shrink() {
        return Err(invalid(&"a trace's memory must be sealed against shrinking"));
    }
    let tracer = Tracer::new(&memory).map_err(|error| invalid(&error))?;
    let again = || Failure::new(ErrorStatus::GeneralFailure, "this worker traces already");
    if TRACER.get().is_some() {
        return Err(again());
    }
    TRACER.set((tracer, count()?)).map_err(|_| again())
}
