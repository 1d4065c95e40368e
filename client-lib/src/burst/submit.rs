//! Starting executions of a burst without waiting for their ends, and taking those.

use nnhal_os::time::Deadline;

use super::pipeline::{Completion, Submission};
use super::{Burst, RegisteredRequest};
use crate::error::{Error, Result};
use crate::execution::ExecuteOptions;

impl Burst {
    /// Starts a registered request without waiting for its end. Requests are executed in the order in which
    /// they were submitted, each on the values that its memories have when its turn comes; use a request with
    /// memory of its own for each execution that may be under way at once.
    ///
    /// # Errors
    /// The request is registered with another burst, or no ring can carry it;
    /// [`super::BurstOptions::in_flight`] executions are under way; the burst has ended.
    #[inline]
    pub fn submit(&mut self, registered: &RegisteredRequest, options: &ExecuteOptions) -> Result<Submission> {
        self.expect_own(registered)?;
        self.pipeline.expect_room()?;
        self.exchange.await_given_up(|_| options.wait_deadline())?;
        let number = registered.number();
        let Some(number) = number.filter(|_| options.loop_timeout.is_none()) else {
            return Err(Error::argument(
                "a request that is too long for the ring of a burst, or that has a time limit for loops, cannot be \
                 submitted; execute it",
            ));
        };
        let header = self.exchange.next_header(options);
        registered.encode(number, &header, &mut (), &mut self.exchange.buffer)?;
        let sent = self.exchange.send()?;
        Ok(self.pipeline.add(header.sequence, sent))
    }

    /// Waits for the oldest execution that was submitted; `None` if none is under way.
    ///
    /// The options say how long to wait: [`ExecuteOptions::wait_at_most`].
    ///
    /// # Errors
    /// The wait was over, and the execution is still under way; or the burst has ended. What became of the
    /// execution itself is in [`Completion::result`].
    #[inline]
    pub fn next_finished(&mut self, options: &ExecuteOptions) -> Result<Option<Completion>> {
        self.next_finished_by(options.wait_deadline())
    }

    /// The same by a deadline.
    #[inline]
    pub(super) fn next_finished_by(&mut self, deadline: Deadline) -> Result<Option<Completion>> {
        let Some(entry) = self.pipeline.oldest() else {
            return Ok(None);
        };
        // In a forked child the results are the parent's to take.
        self.model().link().check_process()?;
        let received = self.exchange.receive(entry.sequence, entry.sent, deadline)?;
        self.pipeline.remove_oldest();
        Ok(Some(Completion {
            submission: entry.submission,
            result: self.exchange.complete(received.header),
        }))
    }

    /// The oldest execution that was submitted, if it has ended: never waits, so that one thread can look
    /// after many bursts.
    ///
    /// # Errors
    /// As [`Burst::next_finished`].
    #[inline]
    pub fn try_next_finished(&mut self) -> Result<Option<Completion>> {
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
        self.pipeline.len()
    }
}
