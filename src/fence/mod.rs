//! Fences: events between processes that happen once.
//!
//! A fence of this project is an eventfd that is written once and never read, so it stays ready for everyone
//! who polls it, in any process that has a descriptor of it. Three states can be told apart by polling alone:
//!
//! | count | state | ready for |
//! |---|---|---|
//! | 0 | pending | writing |
//! | 1 | signalled | reading and writing |
//! | 2^64 - 2, the most that can be written | failed | reading |
//!
//! [`Fence::from_fd`] takes any descriptor that can be polled, kernel `sync_file`s included, whose own error
//! state is seen.
//!
//! What a hostile peer can do (threat T9): it shares the eventfd's description, so it can read the count
//! (this side remembers what it has once seen), write it (it signals its own fence early, or fails it), and
//! clear `O_NONBLOCK`. The signalling write sets `O_NONBLOCK` again first and is left out when the fence is
//! ready already, so a saturated counter alone cannot block it. A peer that clears the flag and saturates the
//! counter between those two system calls can: the thread then sleeps in an interruptible write until the
//! process ends. Only a process that serves that peer alone may therefore signal its fences; its other
//! threads still see the hang-up, and it dies of any signal.
#![forbid(unsafe_code)]

mod fd_kind;
mod source;
mod wait;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::poll::PollFlags;

pub use source::FenceSource;
pub use wait::{WaitOutcome, wait_all};

use fd_kind::FdKind;
use nnhal_os::time::Deadline;
use nnhal_os::{SysError, eventfd, poll, sync_file};

/// A descriptor that cannot serve as a fence.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// There is no descriptor where a fence is due.
    #[error("the fence has no descriptor")]
    Missing,
    /// Files and directories are always ready, so waiting for them means nothing.
    #[error("the fence's descriptor is {kind}, which cannot be waited for")]
    NotPollable {
        /// What the descriptor is.
        kind: &'static str,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SysError),
}

/// How far a fence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceState {
    /// Not signalled yet.
    Pending,
    /// Signalled: what it stands for is done.
    Signalled,
    /// Signalled with an error: what it stands for will not be done.
    Failed,
}

/// An event that some process will signal, or has signalled.
///
/// Clones share one descriptor and what has been seen of it.
#[derive(Clone, Debug)]
pub struct Fence {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    fd: OwnedFd,
    kind: FdKind,
    /// [`PENDING`], [`SIGNALLED`] or [`FAILED`]: the final state once it has been seen.
    seen: AtomicU8,
}

const PENDING: u8 = 0;
const SIGNALLED: u8 = 1;
const FAILED: u8 = 2;

impl Fence {
    /// Creates a pending fence and the one right to signal it.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn create() -> Result<(FenceSource, Fence), FenceError> {
        let fence = Fence::new(eventfd::create()?, FdKind::Event);
        Ok((FenceSource::new(fence.clone()), fence))
    }

    /// Takes a descriptor from elsewhere as a fence: an eventfd of this project, a `sync_file`, or anything
    /// else that becomes readable when what it stands for is done.
    ///
    /// # Errors
    /// [`FenceError::NotPollable`]; the descriptor is closed then.
    pub fn from_fd(fd: OwnedFd) -> Result<Fence, FenceError> {
        let kind = FdKind::of(fd.as_fd())?;
        Ok(Fence::new(fd, kind))
    }

    /// As [`Fence::from_fd`] for a handle that may carry no descriptor.
    ///
    /// # Errors
    /// [`FenceError::Missing`] if there is none.
    pub fn from_handle(fd: Option<OwnedFd>) -> Result<Fence, FenceError> {
        Fence::from_fd(fd.ok_or(FenceError::Missing)?)
    }

    fn new(fd: OwnedFd, kind: FdKind) -> Fence {
        Fence {
            inner: Arc::new(Inner {
                fd,
                kind,
                seen: AtomicU8::new(PENDING),
            }),
        }
    }

    /// The state now. Once it is final it is remembered, and no system call is made any more.
    ///
    /// # Errors
    /// The kernel refused to poll the descriptor.
    pub fn state(&self) -> Result<FenceState, FenceError> {
        if let Some(state) = self.seen() {
            return Ok(state);
        }
        let state = self.poll()?;
        self.remember(state);
        Ok(state)
    }

    /// Waits until the state is final or the deadline passes; [`FenceState::Pending`] means the deadline.
    ///
    /// # Errors
    /// The kernel refused to poll the descriptor.
    pub fn wait(&self, deadline: Deadline) -> Result<FenceState, FenceError> {
        loop {
            let state = self.state()?;
            if state != FenceState::Pending {
                return Ok(state);
            }
            if poll::one(self, PollFlags::POLLIN, deadline)?.is_empty() {
                // A signal may have come with the deadline.
                return self.state();
            }
        }
    }

    /// Fails a pending fence whose source died with its process, so that nobody waits for it any more.
    /// Whoever gave a descriptor that is no eventfd may have led it anywhere, so nothing is written to such a
    /// one.
    pub fn fail_without_source(&self) {
        if self.inner.kind == FdKind::Event && matches!(self.state(), Ok(FenceState::Pending)) {
            // A counter too full for that is one that has signalled.
            let _ = eventfd::add(self, eventfd::MAX_COUNT);
        }
    }

    /// A descriptor of the same event, to pass on.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn try_clone_fd(&self) -> Result<OwnedFd, FenceError> {
        let duplicate = self.inner.fd.try_clone();
        Ok(duplicate.map_err(|error| SysError {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            errno: nix::errno::Errno::from_raw(error.raw_os_error().unwrap_or(0)),
        })?)
    }

    fn seen(&self) -> Option<FenceState> {
        match self.inner.seen.load(Ordering::Acquire) {
            SIGNALLED => Some(FenceState::Signalled),
            FAILED => Some(FenceState::Failed),
            _ => None,
        }
    }

    /// Keeps the first final state that anyone saw.
    fn remember(&self, state: FenceState) {
        let seen = match state {
            FenceState::Pending => return,
            FenceState::Signalled => SIGNALLED,
            FenceState::Failed => FAILED,
        };
        // If another thread was first, its answer stands.
        let _ = self
            .inner
            .seen
            .compare_exchange(PENDING, seen, Ordering::AcqRel, Ordering::Acquire);
    }

    fn poll(&self) -> Result<FenceState, FenceError> {
        let ready = poll::ready_now(self.inner.fd.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)?;
        let broken = ready.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL);
        let hung_up = ready.contains(PollFlags::POLLHUP) && !ready.contains(PollFlags::POLLIN);
        if broken || hung_up {
            return Ok(FenceState::Failed);
        }
        if !ready.contains(PollFlags::POLLIN) {
            return Ok(FenceState::Pending);
        }
        let failed = match self.inner.kind {
            FdKind::Event => !ready.contains(PollFlags::POLLOUT),
            FdKind::SyncFile => {
                matches!(
                    sync_file::status(self)?,
                    Some(sync_file::SyncFileStatus::Failed(_))
                )
            }
            FdKind::Other => false,
        };
        Ok(if failed {
            FenceState::Failed
        } else {
            FenceState::Signalled
        })
    }
}

impl AsFd for Fence {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

#[cfg(test)]
mod tests;
