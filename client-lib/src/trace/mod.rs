//! Traces: what this process and its workers spend their time on, in one file for Perfetto or
//! `chrome://tracing`.
//!
//! The environment variable [`TRACE_VARIABLE`] names the file, with `%p` for the process id. Each connection
//! then shares a memory with its worker, in which the worker records, and this process has one of its own
//! ([`nnhal::diag::trace`]); a thread of this library moves what is there into the file. Spans that happen
//! faster than they are read are lost, and the file says how many.

mod file;
mod sources;
mod worker_spans;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::diag::trace::{Guard, SpanKind, TraceReader, Tracer, trace_bytes};
use nnhal::wire::Call;
use nnhal_os::fork::PerProcess;
use nnhal_os::shm::SharedMemory;

use self::file::TraceFile;
use self::sources::{Source, Sources};
use self::worker_spans::SPANS;
pub use self::worker_spans::WorkerSpans;

/// The environment variable that names the file to trace to; `%p` in it stands for the process id.
pub const TRACE_VARIABLE: &str = "NNHAL_TRACE";

/// How often spans are read.
const PERIOD: Duration = Duration::from_millis(20);

static TRACE: PerProcess<OnceLock<Option<Trace>>> = PerProcess::new(OnceLock::new);

/// Whether this process, or one that it is a copy of, has its trace. A copy leaves the file to its parent.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The trace of this process.
#[derive(Debug)]
struct Trace {
    /// Of this process's own spans.
    tracer: Tracer,
    sources: Mutex<Sources>,
}

/// Why there is no trace, or no spans of a worker in it.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("the file {path} cannot be written: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("no memory for spans: {0}")]
    Memory(#[from] nnhal_os::shm::ShmError),
    #[error(transparent)]
    Trace(#[from] nnhal::diag::trace::TraceError),
    #[error("no thread to write them: {0}")]
    Thread(std::io::Error),
}

impl Trace {
    /// The trace that the environment asks for.
    fn of_environment() -> Option<Trace> {
        if IS_TAKEN.swap(true, Ordering::Relaxed) {
            return None;
        }
        let path = nnhal_os::environment::var_os(TRACE_VARIABLE).filter(|path| !path.is_empty())?;
        match Trace::start(&path) {
            Ok(trace) => Some(trace),
            Err(error) => {
                tracing::warn!(target: tags::DRIVER, %error, "{TRACE_VARIABLE} is set, but there will be no trace");
                None
            }
        }
    }

    fn start(path: &std::ffi::OsStr) -> Result<Trace, StartError> {
        let path = file::with_process_id(path, std::process::id());
        let failed = |source| StartError::File {
            path: path.clone(),
            source,
        };
        let file = TraceFile::create(&path).map_err(failed)?;
        let memory = SharedMemory::create(trace_bytes(SPANS))?;
        let tracer = Tracer::new(&memory)?;
        let own = Source::new(std::process::id(), process_name(), TraceReader::new(&memory)?);
        let mut sources = Sources::new(file);
        sources.add(own);
        std::thread::Builder::new()
            .name("nnhal-trace".into())
            .spawn(write_now_and_then)
            .map_err(StartError::Thread)?;
        Ok(Trace {
            tracer,
            sources: Mutex::new(sources),
        })
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        // A panic elsewhere leaves a source that is read again from where it was.
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn process_name() -> String {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(|path| path.file_name());
    name.map_or_else(
        || "application".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// The thread that reads spans. It lives as long as the process.
fn write_now_and_then() {
    loop {
        std::thread::park_timeout(PERIOD);
        flush_trace();
    }
}

/// The trace, if there is one and it is this process's, not that of its parent.
#[inline]
fn trace() -> Option<&'static Trace> {
    /// Whether this process was found not to trace: each packet of a burst asks, so that is one look.
    static TRACES_NOTHING: AtomicBool = AtomicBool::new(false);
    if TRACES_NOTHING.load(Ordering::Relaxed) {
        return None;
    }
    let trace = TRACE.get().get_or_init(Trace::of_environment).as_ref();
    TRACES_NOTHING.store(trace.is_none(), Ordering::Relaxed);
    trace
}

/// Writes what has been recorded up to now into the file that `NNHAL_TRACE` names; nothing if it names none.
/// It happens by itself some fifty times a second and when a connection ends; a program that ends suddenly
/// calls this before.
pub fn flush_trace() {
    if let Some(trace) = TRACE.get().get().and_then(Option::as_ref) {
        trace.sources().write();
    }
}

/// Begins a span of this process, if it traces.
#[inline]
pub(crate) fn span(kind: SpanKind, subject: u64) -> Option<Guard<'static>> {
    trace().map(|trace| trace.tracer.span(kind, subject, 0))
}

/// A wait of this process that keeps no thread busy; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Wait {
    kind: SpanKind,
    start: nnhal_os::time::TimePoint,
}

/// Begins to wait, if this process traces.
pub(crate) fn wait(kind: SpanKind) -> Option<Wait> {
    use nnhal_os::time::Clock as _;
    trace().map(|_| Wait {
        kind,
        start: nnhal_os::time::MonotonicClock.now(),
    })
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(trace) = trace() {
            trace.tracer.record_wait(self.start, self.kind);
        }
    }
}

/// The kind of a call's span.
pub(crate) fn kind_of(call: &Call) -> SpanKind {
    match call {
        Call::GetSupportedOperations { .. } => SpanKind::GetSupportedOperations,
        Call::PrepareModel(_) => SpanKind::PrepareModel,
        Call::PrepareModelFromCache(_) => SpanKind::PrepareModelFromCache,
        Call::Allocate { .. } => SpanKind::Allocate,
        Call::CopyTo { .. } | Call::CopyFrom { .. } => SpanKind::Copy,
        Call::RegisterMemory(_) => SpanKind::RegisterMemory,
        Call::Execute(_) => SpanKind::Execute,
        Call::ExecuteFenced(_) => SpanKind::ExecuteFenced,
        Call::ConfigureBurst { .. } => SpanKind::ConfigureBurst,
        Call::GetStatus
        | Call::RegisterFence
        | Call::GetExecutionInfo { .. }
        | Call::Release { .. }
        | Call::Cancel { .. }
        | Call::CancelBurst { .. }
        | Call::GetBurstFence { .. }
        | Call::StartTrace { .. } => SpanKind::OtherCall,
    }
}

/// A worker's part of the trace. Dropping it writes what is left and ends the part.
#[derive(Debug)]
pub(crate) struct WorkerTrace {
    source: Arc<()>,
}

/// A memory for the spans of the worker with this number, and its part of the trace; `None` if this process
/// does not trace.
pub(crate) fn of_worker(pid: u32, device: &str) -> Option<(SharedMemory, WorkerTrace)> {
    let trace = trace()?;
    let make = || -> Result<_, StartError> {
        let memory = SharedMemory::create(trace_bytes(SPANS))?;
        let reader = TraceReader::new(&memory)?;
        Ok((memory, reader))
    };
    match make() {
        Ok((memory, reader)) => {
            let source = Source::new(pid, format!("worker for {device}"), reader);
            let key = trace.sources().add(source);
            Some((memory, WorkerTrace { source: key }))
        }
        Err(error) => {
            tracing::warn!(target: tags::DRIVER, %error, "the trace lacks the worker's spans");
            None
        }
    }
}

impl Drop for WorkerTrace {
    fn drop(&mut self) {
        if let Some(trace) = trace() {
            let mut sources = trace.sources();
            sources.write();
            sources.remove(&self.source);
        }
    }
}

/// Who is told of operations that this process computes, if it traces.
#[cfg(feature = "runtime")]
pub(crate) fn observer() -> Option<&'static dyn nnhal_cpu::Observer> {
    trace().map(|_| &Operations as &dyn nnhal_cpu::Observer)
}

#[cfg(feature = "runtime")]
struct Operations;

#[cfg(feature = "runtime")]
impl nnhal_cpu::Observer for Operations {
    fn operation_ended(&self, observed: &nnhal_cpu::ObservedOperation) {
        if let Some(trace) = trace() {
            trace.tracer.record_from_to(
                (observed.started, observed.ended),
                SpanKind::Operation,
                observed.index as u64,
                u64::from(observed.operation.0),
            );
        }
    }
}
