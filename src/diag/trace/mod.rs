//! Spans of time, recorded where they happen and read elsewhere.
//!
//! A client that traces shares a memory with its worker. Both sides record spans into memories of this form,
//! each its own, and the client reads both and writes one file. Recording a span is one atomic addition and a
//! copy of 64 bytes: no lock, no allocation, no system call but a thread's first. Who is not asked to trace
//! pays a comparison.
//!
//! Contract: a [`Tracer`] trusts nothing in the memory, which its reader can write; it only ever writes
//! there. A [`TraceReader`] takes whatever it finds for what its writer says, and bounds all of it.

mod ring;
mod span;

pub use ring::{Guard, MAX_SPANS, TraceError, TraceReader, Tracer, trace_bytes};
pub use span::{Span, SpanKind};
