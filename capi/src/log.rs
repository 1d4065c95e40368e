//! The log of programs that have none of Rust's.

use std::sync::atomic::{AtomicBool, Ordering};

use nnhal::diag::tags;
use nnhal_os::environment;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// No lock is held meanwhile, which a child of `fork()` would wait for for ever.
static IS_STARTED: AtomicBool = AtomicBool::new(false);

/// Logs to standard error what [`tags::LOG_VARIABLE`] asks for, from the first call on; nothing if it is not
/// set, since the output is the program's. A program in Rust that logs already keeps its own log.
#[inline]
pub(crate) fn start() {
    if !IS_STARTED.load(Ordering::Acquire) {
        start_now();
    }
}

/// Two threads may do this at once, which does no harm.
#[cold]
fn start_now() {
    let filter = environment::var(tags::LOG_VARIABLE);
    let filter = filter.and_then(|filter| tags::directives(&filter).parse::<Targets>().ok());
    if let Some(filter) = filter {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .without_time();
        // Whoever was first has the log.
        let _ = tracing_subscriber::registry()
            .with(layer.with_filter(filter))
            .try_init();
    }
    IS_STARTED.store(true, Ordering::Release);
}
