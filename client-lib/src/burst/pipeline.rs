//! The executions of one burst that are under way at once.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::execution::Completed;

/// The most executions that may be under way on one burst.
pub const MAX_IN_FLIGHT: u32 = 64;

/// Names an execution that [`Burst::submit`](super::Burst::submit) started. They count from 1 for each burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Submission(u64);

impl Submission {
    /// The number: how many executions had been submitted with this one.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// An execution that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Which one.
    pub submission: Submission,
    /// How it ended.
    pub result: Result<Completed>,
}

/// The executions that are under way, the oldest first, which is the order in which they end.
#[derive(Debug)]
pub(super) struct Pipeline {
    waiting: VecDeque<Entry>,
    depth: usize,
    submitted: u64,
}

/// An execution that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) submission: Submission,
    pub(super) sequence: u32,
    /// Where the ring of requests stood after it.
    pub(super) sent: u64,
}

impl Pipeline {
    /// Room for as many executions at once.
    pub(super) fn new(depth: u32) -> Pipeline {
        let depth = depth as usize;
        Pipeline {
            waiting: VecDeque::with_capacity(depth),
            depth,
            submitted: 0,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Calls that wait for their own answer would pass over those of submitted executions.
    #[inline]
    pub(super) fn expect_idle(&self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{} executions that were submitted have not been taken; take them by Burst::next_finished first",
            self.waiting.len()
        )))
    }

    #[inline]
    pub(super) fn expect_room(&self) -> Result<()> {
        if self.waiting.len() < self.depth {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{} executions of this burst are under way, as many as BurstOptions::in_flight allows; take the result of \
             one first",
            self.depth
        )))
    }

    /// Notes an execution that has been sent.
    #[inline]
    pub(super) fn add(&mut self, sequence: u32, sent: u64) -> Submission {
        self.submitted += 1;
        let submission = Submission(self.submitted);
        self.waiting.push_back(Entry {
            submission,
            sequence,
            sent,
        });
        submission
    }

    /// The one that ends next.
    #[inline]
    pub(super) fn oldest(&self) -> Option<Entry> {
        self.waiting.front().copied()
    }

    /// Notes that the oldest has ended.
    #[inline]
    pub(super) fn remove_oldest(&mut self) {
        self.waiting.pop_front();
    }
}
