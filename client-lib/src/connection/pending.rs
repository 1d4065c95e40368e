//! Calls that are launched first and end later.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use nnhal::wire::{Call, Event, Reply};
use nnhal_os::time::Deadline;

use super::calls::{Callback, Entry, Interest, Keep};
use super::link::Link;
use crate::error::{Error, ErrorKind, Result};
use crate::trace;

impl Link {
    /// Makes a call that is launched first and ends later. Returns once it has been launched.
    ///
    /// # Errors
    /// As [`Link::call`], the refusal to launch included.
    pub(crate) fn launch(
        self: &Arc<Self>,
        call: Call,
        fds: &[BorrowedFd<'_>],
        keep: Keep,
        deadline: Deadline,
    ) -> Result<PendingCall> {
        let name = call.name();
        let traced = trace::wait(trace::kind_of(&call));
        let deadline = self.timeouts.work_deadline(deadline);
        let id = self.begin_in_turn(call, fds, Interest::Event, deadline)?;
        // From here on dropping it gives the call up.
        let pending = PendingCall::new(Arc::clone(self), id, name, traced);
        self.wait(id, name, Interest::Reply, deadline)?;
        self.lock().keep(id, keep);
        let refusal = match self.lock().take_reply(id) {
            Some(Ok((Reply::Launched, _))) => return Ok(pending),
            Some(Ok((reply, _))) => self.misplaced(name, &reply),
            Some(Err(failure)) => self.status(name, failure, Vec::new()),
            None => self.ended_error(name),
        };
        pending.forget();
        Err(refusal)
    }
}

/// A call that was launched and has not ended yet. Dropping it gives it up: the driver is asked to end it
/// early.
#[derive(Debug)]
pub(crate) struct PendingCall {
    link: Arc<Link>,
    id: u64,
    name: &'static str,
    is_collected: bool,
    /// Ends with the call as seen from here.
    traced: Option<trace::Wait>,
}

impl PendingCall {
    fn new(link: Arc<Link>, id: u64, name: &'static str, traced: Option<trace::Wait>) -> PendingCall {
        PendingCall {
            link,
            id,
            name,
            is_collected: false,
            traced,
        }
    }

    /// Waits for the end. After [`ErrorKind::TimedOut`] it can be waited for again.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Event> {
        self.expect_uncollected()?;
        let deadline = self.link.timeouts.work_deadline(deadline);
        let waited = self.link.wait(self.id, self.name, Interest::Event, deadline);
        match waited {
            Ok(()) => self.collect(),
            Err(error) => {
                let is_over = !matches!(error.kind(), ErrorKind::TimedOut { .. });
                self.is_collected |= is_over;
                if is_over {
                    self.link.abandon(self.id);
                }
                Err(error)
            }
        }
    }

    /// As [`std::future::Future::poll`].
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Event>> {
        if let Err(error) = self.expect_uncollected() {
            return Poll::Ready(Err(error));
        }
        let mut calls = self.link.lock();
        if calls.is_ready(self.id, Interest::Event) {
            drop(calls);
            return Poll::Ready(self.collect());
        }
        if calls.has_ended {
            calls.remove(self.id);
            self.is_collected = true;
            return Poll::Ready(Err(self.link.ended_error(self.name)));
        }
        calls.set_waker(self.id, context.waker().clone());
        Poll::Pending
    }

    /// Has `callback` called with the result, on a thread of this library.
    pub(crate) fn on_end(mut self, callback: Callback) -> Result<()> {
        self.expect_uncollected()?;
        self.link.callbacks.start()?;
        let mut calls = self.link.lock();
        if calls.is_ready(self.id, Interest::Event) || calls.has_ended {
            drop(calls);
            let result = self.wait(Deadline::NONE);
            self.link.callbacks.run(Box::new(move || callback(result)));
        } else {
            let traced = self.traced.take();
            let callback: Callback = Box::new(move |result| {
                drop(traced);
                callback(result);
            });
            calls.set_callback(self.id, callback);
            drop(calls);
            // The entry is the callback's now.
            self.is_collected = true;
        }
        Ok(())
    }

    /// Asks the driver to end the call early. It ends in any case.
    pub(crate) fn cancel(&self) {
        self.link.tell(Call::Cancel { id: self.id });
    }

    /// Drops it without asking the driver to end what has not begun.
    fn forget(mut self) {
        self.is_collected = true;
        self.link.abandon(self.id);
    }

    fn expect_uncollected(&self) -> Result<()> {
        self.link.check_process()?;
        if self.is_collected {
            return Err(Error::argument(format!(
                "the result of {} has been taken before",
                self.name
            )));
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<Event> {
        self.is_collected = true;
        self.traced = None;
        let entry = self.link.lock().remove(self.id);
        entry
            .and_then(Entry::into_event)
            .ok_or_else(|| self.link.ended_error(self.name))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.is_collected && self.link.stamp.is_current() {
            self.cancel();
            self.link.abandon(self.id);
        }
    }
}
