//! Descriptors of the caller.
#![allow(unsafe_code, reason = "takes a number for a descriptor")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::result::{Failure, Outcome};

/// A descriptor of the same thing, which the caller's own does not end with.
pub(crate) fn duplicate(fd: c_int) -> Outcome<OwnedFd> {
    if fd < 0 {
        return Err(Failure::bad_data(format!("{fd} is no descriptor")));
    }
    // SAFETY: it is not -1, and used for this one system call only, which tells whether it is open; the
    // caller has promised that it stays so for the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed
        .try_clone_to_owned()
        .map_err(|error| Failure::bad_data(format!("descriptor {fd} cannot be duplicated: {error}")))
}
