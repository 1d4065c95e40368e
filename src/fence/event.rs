//! A fence, as those see it who wait for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use nix::poll::PollFlags;

use super::error::FenceError;
use super::fd_kind::FdKind;
use nnhal_os::time::Deadline;
use nnhal_os::{SysError, eventfd, poll, sync_file};

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

    pub(super) fn new(fd: OwnedFd, kind: FdKind) -> Fence {
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
    pub(super) fn remember(&self, state: FenceState) {
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
