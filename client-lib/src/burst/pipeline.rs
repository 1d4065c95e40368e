//! Several executions of one burst under way at once.

use std::collections::VecDeque;

use super::exchange::Exchange;
use super::{Burst, RegisteredRequest};
use crate::error::{Error, Result};
use crate::execution::{Completed, ExecuteOptions};

/// The most executions that may be under way on one burst.
pub const MAX_IN_FLIGHT: u32 = 64;

/// Names an execution that [`Burst::submit`] started. They count from 1 for each burst.
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
pub struct Finished {
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
struct Entry {
    submission: Submission,
    sequence: u32,
    /// Where the ring of requests stood after it.
    sent: u64,
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

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    fn expect_room(&self) -> Result<()> {
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
    fn add(&mut self, sequence: u32, sent: u64) -> Submission {
        self.submitted += 1;
        let submission = Submission(self.submitted);
        self.waiting.push_back(Entry {
            submission,
            sequence,
            sent,
        });
        submission
    }
}

impl Burst {
    /// Starts a registered request without waiting for its end. Requests are executed in the order in which they were
    /// submitted, each on the values that its memories have when its turn comes; use a request with memory of its own
    /// for each execution that may be under way at once.
    ///
    /// # Errors
    /// The request is registered with another burst, or no ring can carry it; [`super::BurstOptions::in_flight`]
    /// executions are under way; the burst has ended.
    #[inline]
    pub fn submit(&mut self, registered: &RegisteredRequest, options: &ExecuteOptions) -> Result<Submission> {
        self.expect_own(registered)?;
        self.pipeline.expect_room()?;
        let Some(number) = registered
            .number
            .as_ref()
            .filter(|_| options.loop_timeout.is_none())
        else {
            return Err(Error::argument(
                "a request that is too long for the ring of a burst, or that has a time limit for loops, cannot be \
                 submitted; execute it",
            ));
        };
        let header = self.exchange.encode_fire(number.value(), options);
        let sent = self.exchange.send()?;
        Ok(self.pipeline.add(header.sequence, sent))
    }

    /// Waits for the oldest execution that was submitted; `None` if none is under way.
    ///
    /// The options say how long to wait: [`ExecuteOptions::wait_at_most`].
    ///
    /// # Errors
    /// The wait was over, and the execution is still under way; or the burst has ended. What became of the execution
    /// itself is in [`Finished::result`].
    #[inline]
    pub fn next_finished(&mut self, options: &ExecuteOptions) -> Result<Option<Finished>> {
        let Some(entry) = self.pipeline.waiting.front().copied() else {
            return Ok(None);
        };
        // In a forked child the results are the parent's to take.
        self.model().link().check_process()?;
        let received = self
            .exchange
            .receive(entry.sequence, entry.sent, options.wait_deadline())?;
        self.pipeline.waiting.pop_front();
        Ok(Some(Finished {
            submission: entry.submission,
            result: self.exchange.complete(received.header),
        }))
    }

    /// The oldest execution that was submitted, if it has ended: never waits, so that one thread can look after many
    /// bursts.
    ///
    /// # Errors
    /// As [`Burst::next_finished`].
    #[inline]
    pub fn try_next_finished(&mut self) -> Result<Option<Finished>> {
        if self.pipeline.is_empty() {
            return Ok(None);
        }
        self.model().link().check_process()?;
        if !self.exchange.is_ready() {
            return Ok(None);
        }
        self.next_finished(&ExecuteOptions::new())
    }

    /// How many executions that were submitted have not been taken.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pipeline.waiting.len()
    }

    /// Calls that wait for their own answer would pass over those of submitted executions.
    #[inline]
    pub(super) fn expect_idle(&self) -> Result<()> {
        if self.pipeline.is_empty() {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{} executions that were submitted have not been taken; take them by Burst::next_finished first",
            self.pipeline.waiting.len()
        )))
    }
}

impl Exchange {
    /// Whether a result can be received without waiting.
    #[inline]
    fn is_ready(&mut self) -> bool {
        self.rings.as_mut().is_none_or(|rings| rings.consumer.is_ready())
    }
}
