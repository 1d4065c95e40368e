use std::ffi::{c_char, c_int};

use crate::compilation::Compilation;
use crate::ffi::{Handle, guard};
use crate::types::ANeuralNetworksCompilation;
use crate::{handles, last_error};

/// What went wrong in the last function of this thread that failed: the function, what was wrong and what
/// would be right. Empty if none has failed. The text ends with NUL and stays until the next failure of this
/// thread.
///
/// A function of nnhal, not of NNAPI.
#[unsafe(no_mangle)]
pub extern "C" fn nnhal_last_error() -> *const c_char {
    last_error::pointer()
}

/// Says how often an execution of this compilation is repeated when a driver's process dies: the device is
/// opened again, what it had is prepared again, from the cache if there is one, and memories that were made
/// from a description get back the values that this process gave them. An execution that needs a value that
/// was computed in the lost process fails with `DEAD_OBJECT` all the same. 0, the default unless the
/// environment variable `NNHAL_RECOVERY` says otherwise, repeats none.
///
/// `BAD_STATE` if the compilation is finished. A function of nnhal, not of NNAPI.
#[unsafe(no_mangle)]
pub extern "C" fn nnhal_compilation_set_recovery(
    compilation: Handle<ANeuralNetworksCompilation>,
    attempts: u32,
) -> c_int {
    guard("nnhal_compilation_set_recovery", || {
        handles::get::<Compilation>(&compilation, "compilation")?.set_recovery(attempts)
    })
}
