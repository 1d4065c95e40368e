//! Descriptors as a set: owning new ones, closing all the others, letting one pass through exec.

use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};

use super::SysError;

/// Takes ownership of what a descriptor-creating call returned, or reports its error.
pub(crate) fn own(raw: RawFd, call: &'static str) -> Result<OwnedFd, SysError> {
    if raw < 0 {
        return Err(SysError::last(call));
    }
    // SAFETY: every caller passes the result of a call that has just created this descriptor, so nobody else
    // owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A duplicate, close-on-exec, of a descriptor that is known by its number only, as an inherited one is.
///
/// # Errors
/// `EBADF` if there is no such descriptor.
pub fn duplicate(raw: RawFd) -> Result<OwnedFd, SysError> {
    // SAFETY: the call reads no memory of ours, and leaves the descriptor it duplicates as it is.
    let copy = unsafe { libc::fcntl(raw, libc::F_DUPFD_CLOEXEC, 0) };
    own(copy, "fcntl(F_DUPFD_CLOEXEC)")
}

/// A duplicate, close-on-exec.
pub fn duplicate_of(fd: impl AsFd) -> Result<OwnedFd, SysError> {
    use std::os::fd::AsRawFd;
    duplicate(fd.as_fd().as_raw_fd())
}

/// Marks every descriptor from `first` on close-on-exec, those that libraries opened without the flag
/// included.
///
/// Nothing is closed, so no owner in this process is left with a dead number.
pub fn set_cloexec_from(first: u32) -> Result<(), SysError> {
    // SAFETY: the call changes descriptor flags only and reads no memory of ours.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done < 0 {
        Err(SysError::last("close_range(CLOEXEC)"))
    } else {
        Ok(())
    }
}

/// Keeps `fd` open across exec, or not.
pub fn set_inheritable(fd: impl AsFd, inheritable: bool) -> Result<(), SysError> {
    let flags = if inheritable {
        FdFlag::empty()
    } else {
        FdFlag::FD_CLOEXEC
    };
    fcntl(fd, FcntlArg::F_SETFD(flags))
        .map(drop)
        .map_err(SysError::of("fcntl(F_SETFD)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inheritable_descriptor_becomes_close_on_exec_again() {
        let event = crate::eventfd::create().unwrap();
        let flags = |fd: &OwnedFd| FdFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFD).unwrap());
        set_inheritable(&event, true).unwrap();
        assert!(!flags(&event).contains(FdFlag::FD_CLOEXEC));
        set_inheritable(&event, false).unwrap();
        assert!(flags(&event).contains(FdFlag::FD_CLOEXEC));
    }
}
