//! What is logged, and where to.

use std::panic::PanicHookInfo;

use nnhal::diag::tags;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// A filter of NNAPI's tags, levels and modules.
pub(crate) fn filter(text: &str) -> Result<Targets, tracing_subscriber::filter::ParseError> {
    tags::directives(text).parse()
}

/// What [`tags::LOG_VARIABLE`] asks to log; warnings if it is not set or makes no sense.
pub(crate) fn of_environment() -> Targets {
    std::env::var(tags::LOG_VARIABLE)
        .ok()
        .and_then(|filter| self::filter(&filter).ok())
        .unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN))
}

/// Logs go to standard error, for the service manager to keep.
pub(crate) fn start(filter: &Targets) {
    let format = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .without_time()
        .with_ansi(false);
    // A binary that is more than a driver may log already.
    let _ = tracing_subscriber::registry()
        .with(format.with_filter(filter.clone()))
        .try_init();
}

/// Which thread has panicked, and why.
pub(crate) fn describe_panic(info: &PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    format!(
        "thread {} panicked: {info}",
        thread.name().unwrap_or("without a name")
    )
}
