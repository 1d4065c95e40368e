//! What a span says.

use crate::diag::tags;
use nnhal_os::time::TimePoint;

/// What went on during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SpanKind {
    /// A client connects to a driver.
    Connect = 1,
    /// HAL `getSupportedOperations`.
    GetSupportedOperations,
    /// HAL `prepareModel`.
    PrepareModel,
    /// HAL `prepareModelFromCache`.
    PrepareModelFromCache,
    /// A model is checked by the rules of the HAL.
    Validate,
    /// A device makes a model ready.
    Compile,
    /// A model is read from the files of a compilation cache.
    ReadCache,
    /// A prepared model is written to the files of a compilation cache.
    WriteCache,
    /// A memory is registered.
    RegisterMemory,
    /// HAL `allocate`.
    Allocate,
    /// HAL `copyTo` and `copyFrom`.
    Copy,
    /// HAL `configureExecutionBurst`.
    ConfigureBurst,
    /// HAL `execute` and `executeSynchronously`, as far as they go by messages.
    Execute,
    /// HAL `executeFenced`.
    ExecuteFenced,
    /// What a burst is asked: to execute, or to keep a request for later. Synchronous executions go by bursts
    /// from the second one of a model on.
    BurstRequest,
    /// Fences that an execution waits for.
    FenceWait,
    /// Work waits for a thread.
    ThreadWait,
    /// Other work goes first.
    QueueWait,
    /// Inputs are copied out of shared memory.
    CopyIn,
    /// The device executes.
    Run,
    /// Outputs are copied into shared memory.
    CopyOut,
    /// One operation. Subject: its place in its graph; detail: its HAL code.
    Operation,
    /// The runtime divides a model over devices.
    Divide,
    /// The runtime prepares one step of a divided model. Subject: its number.
    CompileStep,
    /// The runtime executes a divided model.
    Compute,
    /// The runtime executes one step of a divided model. Subject: its number.
    Step,
    /// Another call of the control protocol.
    OtherCall,
}

/// By code, from 1 on.
const KINDS: [(SpanKind, &str, &str); 27] = [
    (SpanKind::Connect, "connect", tags::MANAGER),
    (
        SpanKind::GetSupportedOperations,
        "get supported operations",
        tags::COMPILATION,
    ),
    (SpanKind::PrepareModel, "prepare model", tags::COMPILATION),
    (
        SpanKind::PrepareModelFromCache,
        "prepare model from cache",
        tags::COMPILATION,
    ),
    (SpanKind::Validate, "validate model", tags::MODEL),
    (SpanKind::Compile, "make model ready", tags::COMPILATION),
    (SpanKind::ReadCache, "read cache", tags::COMPILATION),
    (SpanKind::WriteCache, "write cache", tags::COMPILATION),
    (SpanKind::RegisterMemory, "register memory", tags::MANAGER),
    (SpanKind::Allocate, "allocate device buffer", tags::MANAGER),
    (SpanKind::Copy, "copy device buffer", tags::DRIVER),
    (SpanKind::ConfigureBurst, "configure burst", tags::DRIVER),
    (SpanKind::Execute, "execute", tags::EXECUTION),
    (SpanKind::ExecuteFenced, "execute fenced", tags::EXECUTION),
    (SpanKind::BurstRequest, "burst request", tags::EXECUTION),
    (SpanKind::FenceWait, "wait for fences", tags::DRIVER),
    (SpanKind::ThreadWait, "wait for a thread", tags::DRIVER),
    (SpanKind::QueueWait, "wait for a slot", tags::DRIVER),
    (SpanKind::CopyIn, "copy inputs", tags::DRIVER),
    (SpanKind::Run, "run", tags::DRIVER),
    (SpanKind::CopyOut, "copy outputs", tags::DRIVER),
    (SpanKind::Operation, "operation", tags::CPUEXE),
    (SpanKind::Divide, "divide model", tags::COMPILATION),
    (SpanKind::CompileStep, "prepare step", tags::COMPILATION),
    (SpanKind::Compute, "compute", tags::EXECUTION),
    (SpanKind::Step, "step", tags::EXECUTION),
    (SpanKind::OtherCall, "call", tags::DRIVER),
];

impl SpanKind {
    /// The kind with this code; `None` for any other number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<SpanKind> {
        let (kind, _, _) = KINDS.get(usize::try_from(code.checked_sub(1)?).ok()?)?;
        Some(*kind)
    }

    /// Its code; above 0.
    #[must_use]
    pub fn code(self) -> u32 {
        self as u32
    }

    fn entry(self) -> &'static (SpanKind, &'static str, &'static str) {
        &KINDS[usize::from(self as u8 - 1)]
    }

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// Which of [`tags::ALL`] it belongs to.
    #[must_use]
    pub fn tag(self) -> &'static str {
        self.entry().2
    }
}

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What it was.
    pub kind: SpanKind,
    /// The thread, as the system numbers it; 0 for what no thread was busy with, such as a wait.
    pub thread: u32,
    /// When it began.
    pub start: TimePoint,
    /// How long it took, in nanoseconds.
    pub duration_ns: u64,
    /// What it was about; see [`SpanKind`].
    pub subject: u64,
    /// More about that; see [`SpanKind`].
    pub detail: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_their_codes() {
        for (at, (kind, name, tag)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind.code() as usize, at + 1, "{name}");
            assert_eq!(SpanKind::from_code(kind.code()), Some(kind));
            assert_eq!((kind.name(), kind.tag()), (name, tag));
            assert!(tags::ALL.contains(&tag), "{tag}");
        }
        assert_eq!(SpanKind::from_code(0), None);
        assert_eq!(SpanKind::from_code(KINDS.len() as u32 + 1), None);
        assert_eq!(SpanKind::from_code(u32::MAX), None);
    }
}
