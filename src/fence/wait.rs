//! Waiting for several fences.

use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags};

use super::{Fence, FenceError, FenceState};
use nnhal_os::poll;
use nnhal_os::time::Deadline;

/// How a wait for several fences ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// All are signalled.
    AllSignalled,
    /// The fence with this index failed; others may be pending still.
    Failed(usize),
    /// The deadline passed while the fence with this index, the first of those, was pending.
    TimedOut(usize),
}

/// Waits until all fences are signalled, one has failed, or the deadline passes. A fence that fails ends the
/// wait at once, also while fences before it are pending. No fences are all signalled.
///
/// # Errors
/// The kernel refused to poll a descriptor.
pub fn wait_all(fences: &[Fence], deadline: Deadline) -> Result<WaitOutcome, FenceError> {
    let mut pending: Vec<usize> = (0..fences.len()).collect();
    loop {
        let mut still_pending = Vec::with_capacity(pending.len());
        for index in pending {
            match fences[index].state()? {
                FenceState::Pending => still_pending.push(index),
                FenceState::Signalled => {}
                FenceState::Failed => return Ok(WaitOutcome::Failed(index)),
            }
        }
        let Some(&first) = still_pending.first() else {
            return Ok(WaitOutcome::AllSignalled);
        };
        let mut fds: Vec<PollFd> = still_pending
            .iter()
            .map(|&index| PollFd::new(fences[index].as_fd(), PollFlags::POLLIN))
            .collect();
        if poll::wait(&mut fds, deadline)? == 0 {
            return Ok(WaitOutcome::TimedOut(first));
        }
        pending = still_pending;
    }
}
