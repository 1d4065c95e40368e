//! The log of programs that have none of Rust's.

use std::sync::Once;

use nnhal::diag::tags;
use nnhal_os::environment;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

static STARTED: Once = Once::new();

/// Logs to standard error what [`tags::LOG_VARIABLE`] asks for, from the first call on; nothing if it is not
/// set, since the output is the program's. A program in Rust that logs already keeps its own log.
#[inline]
pub(crate) fn start() {
    STARTED.call_once(|| {
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
    });
}
