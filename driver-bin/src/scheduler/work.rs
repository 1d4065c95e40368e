//! What is known of a piece of work, and of one that waits for a slot.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use nnhal_hal::Priority;
use nnhal_os::time::TimePoint;

use super::cancellation::Cancellation;
use super::slots::Share;

/// How long waiting raises work by one priority.
pub(crate) const AGEING: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Arc<TicketState>,
    pub(super) thread: Thread,
    pub(super) since: TimePoint,
}

impl Waiter {
    /// The priority that the work counts as by now.
    pub(super) fn rank(&self, now: TimePoint) -> u64 {
        let age = now.saturating_since(self.since).as_nanos() / AGEING.as_nanos();
        let raised = u64::from(self.ticket.rank) + u64::try_from(age).unwrap_or(u64::MAX);
        raised.min(u64::from(rank(Priority::High)))
    }
}

pub(super) fn rank(priority: Priority) -> u8 {
    priority as u8
}

#[derive(Debug)]
pub(super) struct TicketState {
    pub(super) rank: u8,
    pub(super) cancellation: Cancellation,
    /// Becomes readable when the work is cancelled; there once somebody waits for it. Set under the lock.
    pub(super) cancelled: OnceLock<OwnedFd>,
    /// Set by whoever lets this one in; the waiting thread clears it.
    pub(super) is_granted: AtomicBool,
    /// Nanoseconds; work of higher priority waits until then.
    pub(super) immune_until: AtomicU64,
    /// Odd while the work runs; moves on at every checkpoint by two.
    pub(super) progress: AtomicU64,
}

impl TicketState {
    pub(super) fn new(rank: u8) -> TicketState {
        TicketState {
            rank,
            cancellation: Cancellation::default(),
            cancelled: OnceLock::new(),
            is_granted: AtomicBool::new(false),
            immune_until: AtomicU64::new(0),
            progress: AtomicU64::new(0),
        }
    }

    /// What part of the slots the work may have.
    #[inline]
    pub(super) fn share(&self) -> Share {
        if self.rank == rank(Priority::Low) {
            Share::Left
        } else {
            Share::Own
        }
    }

    /// Shows progress. Only the thread that works under the ticket does, so this is no locked instruction,
    /// which would be felt in every operation.
    #[inline]
    pub(super) fn advance(&self, by: u64) {
        let count = self.progress.load(Ordering::Relaxed);
        self.progress.store(count.wrapping_add(by), Ordering::Relaxed);
    }
}
