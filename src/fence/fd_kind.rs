//! What a foreign descriptor is, as far as waiting for it goes.

use std::os::fd::BorrowedFd;

use nix::poll::PollFlags;
use nix::sys::stat::SFlag;

use super::error::FenceError;
use nnhal_os::{eventfd, file_status, poll, sync_file};

/// How the state of a descriptor shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FdKind {
    /// An eventfd: ready for writing as well, unless it has failed.
    Event,
    /// A kernel `sync_file`, which is asked for its error.
    SyncFile,
    /// Readable means signalled; nothing more is known.
    Other,
}

impl FdKind {
    /// Finds out the kind of `fd`, changing nothing about it.
    pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Self, FenceError> {
        let file_type = file_status::type_of(fd)?;
        // Before it is polled: whoever serves a file, such as a daemon of FUSE, may take for ever to answer.
        let kind = match file_type {
            SFlag::S_IFREG => Some("a file"),
            SFlag::S_IFDIR => Some("a directory"),
            SFlag::S_IFBLK => Some("a block device"),
            _ => None,
        };
        if let Some(kind) = kind {
            return Err(FenceError::NotPollable { kind });
        }
        let normal = PollFlags::POLLRDNORM | PollFlags::POLLWRNORM;
        let ready = poll::ready_now(fd, PollFlags::POLLIN | PollFlags::POLLOUT | normal)?;
        // The kernel reports a descriptor that has no notion of readiness as ready for everything, always.
        let always_ready = ready.contains(PollFlags::POLLIN | PollFlags::POLLOUT | normal);
        match file_type {
            SFlag::S_IFCHR if always_ready => return Err(FenceError::NotPollable { kind: "a device" }),
            SFlag::S_IFIFO | SFlag::S_IFSOCK | SFlag::S_IFCHR => return Ok(Self::Other),
            _ if always_ready => {
                return Err(FenceError::NotPollable {
                    kind: "a kernel object without events",
                });
            }
            _ => {}
        }
        if sync_file::status(fd)?.is_some() {
            return Ok(Self::SyncFile);
        }
        Self::of_anonymous(fd, ready)
    }

    /// Among the anonymous kernel objects only an eventfd and a dma-buf report readiness for writing without
    /// the "normal data" flags, and both report it together with reading when they are signalled.
    fn of_anonymous(fd: BorrowedFd<'_>, ready: PollFlags) -> Result<Self, FenceError> {
        if ready.intersects(PollFlags::POLLRDNORM | PollFlags::POLLWRNORM) {
            return Ok(Self::Other);
        }
        if ready.contains(PollFlags::POLLOUT) {
            return Ok(Self::Event);
        }
        // Readable only: an eventfd that has failed, or say a timer that has expired.
        if ready.contains(PollFlags::POLLIN) && eventfd::is_eventfd(fd)? {
            return Ok(Self::Event);
        }
        Ok(Self::Other)
    }
}
