//! The right to signal a fence.

use std::os::fd::AsFd;

use nix::poll::PollFlags;

use super::error::FenceError;
use super::event::{Fence, FenceState};
use super::fd_kind::FdKind;
use nnhal_os::{eventfd, poll};

/// Signals one fence, once. Dropped without having signalled, it fails the fence, so that nobody waits for
/// work that nobody does any more.
#[derive(Debug)]
pub struct FenceSource {
    fence: Option<Fence>,
}

impl Fence {
    /// Creates a pending fence and the one right to signal it.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn create() -> Result<(FenceSource, Fence), FenceError> {
        let fence = Fence::new(eventfd::create()?, FdKind::Event);
        Ok((FenceSource::new(fence.clone()), fence))
    }
}

impl FenceSource {
    pub(super) fn new(fence: Fence) -> Self {
        Self { fence: Some(fence) }
    }

    /// Tells every waiter that the work is done.
    ///
    /// # Errors
    /// The write failed; waiters in this process have been told all the same.
    pub fn signal(mut self) -> Result<(), FenceError> {
        self.finish(FenceState::Signalled, 1)
    }

    /// Tells every waiter that the work will not be done.
    ///
    /// # Errors
    /// As [`FenceSource::signal`].
    pub fn fail(mut self) -> Result<(), FenceError> {
        self.finish(FenceState::Failed, eventfd::MAX_COUNT)
    }

    fn finish(&mut self, state: FenceState, count: u64) -> Result<(), FenceError> {
        let Some(fence) = self.fence.take() else {
            return Ok(());
        };
        fence.remember(state);
        let ready = poll::ready_now(fence.as_fd(), PollFlags::POLLIN)?;
        if ready.is_empty() {
            // A counter too full for this count is one that a peer has made ready meanwhile.
            eventfd::add(&fence, count)?;
        }
        Ok(())
    }
}

impl Drop for FenceSource {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; waiters elsewhere still have their deadlines.
        let _ = self.finish(FenceState::Failed, eventfd::MAX_COUNT);
    }
}
