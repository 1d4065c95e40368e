//! The text of each thread's last error.

use std::cell::RefCell;
use std::ffi::CString;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps what went wrong in a function for this thread.
pub(crate) fn set(function: &str, text: &str) {
    let mut bytes = format!("{function}: {text}").into_bytes();
    bytes.retain(|byte| *byte != 0);
    // No NUL is left. A thread that ends has nobody to read it any more.
    let _ = LAST.try_with(|last| last.replace(CString::new(bytes).unwrap_or_default()));
}

/// The address of this thread's text, until its next error.
pub(crate) fn pointer() -> *const std::ffi::c_char {
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// This thread's text.
#[cfg(test)]
pub(crate) fn text() -> String {
    LAST.with(|last| last.borrow().to_string_lossy().into_owned())
}
