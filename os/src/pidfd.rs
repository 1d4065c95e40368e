//! Processes held by descriptor, which no reuse of their number can confuse.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

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
    // SAFETY: the null siginfo pointer is allowed and makes the kernel fill one in; no other memory is
    // passed.
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

/// `struct pidfd_info` of the kernel's `linux/pidfd.h` in its first version.
#[repr(C)]
#[derive(Default)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    /// Real, effective, saved and file system ids, each of user and group.
    ids: [u32; 8],
    exit_code: i32,
}

/// `_IOWR(0xFF, 11, struct pidfd_info)`.
const PIDFD_GET_INFO: u32 = (3 << 30) | ((size_of::<PidfdInfo>() as u32) << 16) | (0xFF << 8) | 11;

/// Asks for, and confirms, [`PidfdInfo::exit_code`].
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// How the process behind `pidfd` ended, in the form that `waitpid` gives it, for anyone who holds the
/// descriptor.
///
/// `None` if it has not ended, its parent has not reaped it yet, or the kernel is older than 6.15.
pub fn exit_status(pidfd: impl AsFd) -> Option<ExitStatus> {
    let mut info = PidfdInfo {
        mask: PIDFD_INFO_EXIT,
        ..PidfdInfo::default()
    };
    // SAFETY: `info` has the layout this request number names (its size is part of the number) and lives for
    // the call; descriptors of other kinds refuse the number.
    let done = unsafe {
        libc::ioctl(
            pidfd.as_fd().as_raw_fd(),
            PIDFD_GET_INFO as libc::Ioctl,
            &mut info,
        )
    };
    (done == 0 && info.mask & PIDFD_INFO_EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code))
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

    #[test]
    fn exit_status_is_there_for_all_once_the_child_is_reaped() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pidfd = open(child.id() as i32).unwrap();
        assert_eq!(exit_status(&pidfd), None);
        child.kill().unwrap();
        let status = child.wait().unwrap();
        // Kernels before 6.15 cannot tell.
        if let Some(seen) = exit_status(&pidfd) {
            assert_eq!(seen, status);
        }
        assert_eq!(exit_status(std::io::stdin()), None);
    }
}
