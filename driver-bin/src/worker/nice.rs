//! Threads that work at low priority, which the system has others go before.

use nnhal::diag::tags;
use nnhal_os::sched;

/// Has the system prefer others to the calling thread, which does nothing but work of low priority.
pub(crate) fn become_nice() {
    // The driver as a whole may be nicer yet.
    if let Err(error) = sched::become_nice() {
        tracing::debug!(target: tags::DRIVER, %error, "a thread of low priority keeps its nice value");
    }
}
