//! Event descriptors.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::SysError;

/// The largest count an eventfd can reach by writing; more would block.
pub const MAX_COUNT: u64 = u64::MAX - 1;

/// Creates an eventfd with count 0, non-blocking and close-on-exec.
pub fn create() -> Result<OwnedFd, SysError> {
    // SAFETY: eventfd reads no memory of ours; it returns a new descriptor or -1.
    let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    super::fds::own(raw, "eventfd")
}

/// Adds `count` to an eventfd without blocking, unless a peer that shares the description clears `O_NONBLOCK`
/// between this call's own `fcntl` and `write` and saturates the counter in the same moment.
///
/// Returns false if the counter was too full to take it.
pub fn add(fd: impl AsFd, count: u64) -> Result<bool, SysError> {
    let fd = fd.as_fd();
    let flags = fcntl(fd, FcntlArg::F_GETFL).map_err(SysError::of("fcntl(F_GETFL)"))?;
    let flags = OFlag::from_bits_retain(flags);
    if !flags.contains(OFlag::O_NONBLOCK) {
        fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map_err(SysError::of("fcntl(F_SETFL)"))?;
    }
    loop {
        match nix::unistd::write(fd, &count.to_ne_bytes()) {
            Ok(_) => return Ok(true),
            Err(Errno::EAGAIN) => return Ok(false),
            Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(SysError {
                    call: "write(eventfd)",
                    errno,
                });
            }
        }
    }
}

/// Wakes whoever polls an eventfd of this process alone, which nobody makes blocking. It writes only, so no
/// other call can fail before it. A counter that is full wakes as well, and the kernel refuses nothing else.
pub fn wake(fd: impl AsFd) {
    while nix::unistd::write(fd.as_fd(), &1_u64.to_ne_bytes()) == Err(Errno::EINTR) {}
}

/// Whether a descriptor is an eventfd, found by adding 0 to it: that changes no eventfd, and it could block
/// only one whose counter the kernel itself has overflowed, which `poll` reports as an error. Other objects
/// refuse it; of them, only ask this about anonymous ones, since a pipe or socket would take the bytes.
pub fn is_eventfd(fd: impl AsFd) -> Result<bool, SysError> {
    match nix::unistd::write(fd, &0_u64.to_ne_bytes()) {
        Ok(_) => Ok(true),
        Err(Errno::EINVAL | Errno::EBADF | Errno::EPERM | Errno::ENOENT) => Ok(false),
        Err(errno) => Err(SysError {
            call: "write(eventfd)",
            errno,
        }),
    }
}

/// Takes the count and leaves 0; returns what it was. For events that this process alone reads.
pub fn drain(fd: impl AsFd) -> Result<u64, SysError> {
    let mut count = [0; 8];
    loop {
        match nix::unistd::read(fd.as_fd(), &mut count) {
            Ok(_) => return Ok(u64::from_ne_bytes(count)),
            Err(Errno::EAGAIN) => return Ok(0),
            Err(Errno::EINTR) => {}
            Err(errno) => {
                return Err(SysError {
                    call: "read(eventfd)",
                    errno,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drained_counter_starts_anew() {
        let event = create().unwrap();
        add(&event, 3).unwrap();
        add(&event, 4).unwrap();
        assert_eq!(drain(&event).unwrap(), 7);
        assert_eq!(drain(&event).unwrap(), 0);
    }

    #[test]
    fn waking_adds_one_and_leaves_a_full_counter() {
        let event = create().unwrap();
        wake(&event);
        wake(&event);
        assert_eq!(drain(&event).unwrap(), 2);
        add(&event, MAX_COUNT).unwrap();
        wake(&event);
        assert_eq!(drain(&event).unwrap(), MAX_COUNT);
    }

    #[test]
    fn full_counter_refuses_without_blocking_even_when_a_peer_cleared_o_nonblock() {
        let event = create().unwrap();
        let duplicate = event.try_clone().unwrap();
        assert!(add(&event, MAX_COUNT).unwrap());
        fcntl(&duplicate, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        assert!(!add(&event, 1).unwrap());
    }
}
