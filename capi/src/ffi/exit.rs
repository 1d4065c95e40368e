//! What is left to do when the program ends.
#![allow(unsafe_code, reason = "gives the C library a function to call")]

use std::panic::catch_unwind;

use nnhal::diag::tags;

/// Has what the trace still lacks written when the program returns from `main` or calls `exit`.
pub(crate) fn flush_trace_at_exit() {
    extern "C" fn flush() {
        // Nobody is left to be told of a panic.
        let _ = catch_unwind(nnhal_client::flush_trace);
    }
    // SAFETY: the function does not unwind, and stays where it is, since the library is linked so that it is
    // never unloaded.
    let result = unsafe { libc::atexit(flush) };
    if result != 0 {
        tracing::debug!(target: tags::MANAGER, "the end of a trace may be missing: no room for a function to call at the exit");
    }
}
