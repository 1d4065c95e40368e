//! Processes held by descriptor, which no reuse of their number can confuse.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::signal::Signal;

use super::{SysError, poll};
use crate::time::Deadline;

/// Opens the process with number `pid`. It becomes readable when the process ends.
pub fn open(pid: i32) -> Result<OwnedFd, SysError> {
    // SAFETY: pidfd_open reads no memory of ours; it returns a new close-on-exec descriptor or -1.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    super::fds::own(i32::try_from(raw).unwrap_or(-1), "pidfd_open")
}

/// Sends a signal to the process behind `pidfd`. Returns false if it has ended.
pub fn send_signal(pidfd: impl AsFd, signal: Signal) -> Result<bool, SysError> {
    // SAFETY: the null siginfo pointer is allowed and makes the kernel fill one in; no other memory is passed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_fd().as_raw_fd(),
            signal as i32,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if done == 0 {
        return Ok(true);
    }
    match Errno::last() {
        Errno::ESRCH => Ok(false),
        errno => Err(SysError {
            call: "pidfd_send_signal",
            errno,
        }),
    }
}

/// Waits until the process behind `pidfd` has ended; false if the deadline came first.
pub fn wait_for_end(pidfd: impl AsFd, deadline: Deadline) -> Result<bool, SysError> {
    Ok(!poll::one(pidfd, PollFlags::POLLIN, deadline)?.is_empty())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::time::TimePoint;

    #[test]
    fn killed_child_is_seen_to_end() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = open(child.id() as i32).unwrap();
        assert!(!wait_for_end(&pidfd, Deadline::at(TimePoint::from_nanos(0))).unwrap());
        assert!(send_signal(&pidfd, Signal::SIGKILL).unwrap());
        assert!(wait_for_end(&pidfd, Deadline::NONE).unwrap());
        child.wait().unwrap();
        assert!(!send_signal(&pidfd, Signal::SIGKILL).unwrap());
    }
}
