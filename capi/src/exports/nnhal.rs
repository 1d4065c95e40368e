use std::ffi::c_char;

use crate::last_error;

/// What went wrong in the last function of this thread that failed: the function, what was wrong and what would be
/// right. Empty if none has failed. The text ends with NUL and stays until the next failure of this thread.
///
/// A function of nnhal, not of NNAPI.
#[unsafe(no_mangle)]
pub extern "C" fn nnhal_last_error() -> *const c_char {
    last_error::pointer()
}
