//! What nnhal needs of Linux: the system calls that nix does not wrap safely and the few that need this
//! project's own rules around them, shared memory ([`shm`]), and clocks and deadlines ([`time`]).
//!
//! Contract: every function here is safe to call with any argument; what is wrong with the arguments or the
//! system comes back as an error that names the call and the reason. Nothing here keeps state but names of
//! memories, the number of processors, and what a fork changes. Descriptors come back owned and
//! close-on-exec. Calls interrupted by a signal are resumed, except where the caller is told so.
#![allow(unsafe_code)]

pub mod buffer;
pub mod cores;
pub mod cpu;
pub mod directory_watch;
pub mod dma_buf;
pub mod environment;
pub mod eventfd;
pub mod fds;
pub mod file_mapping;
pub mod file_status;
pub mod fork;
pub mod futex;
pub mod heap;
pub mod memfd;
pub mod peer;
pub mod pidfd;
pub mod poll;
pub mod process;
pub mod rlimit;
pub mod sched;
pub mod shm;
pub mod socket;
pub mod spawn;
pub mod sync_file;
pub mod time;

use nix::errno::Errno;

/// A system call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed: {errno}")]
pub struct SysError {
    /// The system call, with the operation where one call has several.
    pub call: &'static str,
    /// What the kernel answered.
    pub errno: Errno,
}

impl SysError {
    /// Returns a closure for `map_err` that names `call`.
    pub fn of(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self { call, errno }
    }

    /// The error of `call` from the calling thread's `errno`.
    pub(crate) fn last(call: &'static str) -> Self {
        Self {
            call,
            errno: Errno::last(),
        }
    }

    /// Whether the process or the system has run out of something that may be free again later: descriptors,
    /// memory, processes or space.
    pub fn is_exhaustion(&self) -> bool {
        matches!(
            self.errno,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EAGAIN | Errno::ENOSPC
        )
    }
}
