//! Waiting for descriptors, with a deadline and across signals.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::SysError;
use crate::time::{Clock, Deadline, MonotonicClock};

/// Waits until one of `fds` is ready or the deadline passes; returns how many are ready (0: the deadline).
/// The readiness of each is in its `revents`.
///
/// The remaining time is computed anew after each signal, so a storm of signals cannot prolong the wait.
pub fn wait(fds: &mut [PollFd], deadline: Deadline) -> Result<usize, SysError> {
    loop {
        let timeout = deadline
            .remaining(MonotonicClock.now())
            .map(TimeSpec::from_duration);
        match ppoll(fds, timeout, None) {
            Ok(ready) => return Ok(usize::try_from(ready).unwrap_or(0)),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(SysError { call: "ppoll", errno }),
        }
    }
}

/// Waits for one descriptor; returns what it is ready for, empty if the deadline passed first.
pub fn one(fd: impl AsFd, events: PollFlags, deadline: Deadline) -> Result<PollFlags, SysError> {
    let mut fds = [PollFd::new(fd.as_fd(), events)];
    wait(&mut fds, deadline)?;
    let [fd] = fds;
    Ok(fd.revents().unwrap_or(PollFlags::empty()))
}

/// What `fd` is ready for at this moment, without waiting.
pub fn ready_now(fd: BorrowedFd<'_>, events: PollFlags) -> Result<PollFlags, SysError> {
    let mut fds = [PollFd::new(fd, events)];
    loop {
        match ppoll(&mut fds, Some(TimeSpec::new(0, 0)), None) {
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(SysError { call: "ppoll", errno }),
        }
    }
    let [fd] = fds;
    Ok(fd.revents().unwrap_or(PollFlags::empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::TimePoint;

    #[test]
    fn deadline_in_the_past_polls_once() {
        let event = crate::eventfd::create().unwrap();
        let past = Deadline::at(TimePoint::from_nanos(1));
        assert_eq!(one(&event, PollFlags::POLLIN, past).unwrap(), PollFlags::empty());
        crate::eventfd::add(&event, 1).unwrap();
        assert_eq!(one(&event, PollFlags::POLLIN, past).unwrap(), PollFlags::POLLIN);
    }
}
