//! Fenced executions that are sent on a ring, and wait for each other there.
//!
//! Those of one ring end in the order in which they were sent. Who waits for one receives the results up to
//! its own, and leaves the others to their owners. What goes on when nobody has a handle any more is the
//! completer's to receive, so that the ring and the memories are free in the end.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use nnhal::burst::Fencing;
use nnhal::diag::trace::SpanKind;
use nnhal::fmq::{Consumer, WaitSettings};
use nnhal_hal::{MeasureTiming, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::connection::Awaited;
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{ExecuteOptions, FENCED};
use crate::executors::{Counted, Started};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::trace;

/// Only what is there already.
const NOW: Deadline = Deadline::from_raw(0);

/// What has become of an execution; nothing while that is not known.
type Outcome = Arc<OnceLock<Result<Timing>>>;

/// A fenced execution that was sent on a ring. It goes on when this is dropped.
#[derive(Debug)]
pub(crate) struct RingFenced {
    line: Arc<Line>,
    outcome: Outcome,
    pub(crate) started: Started,
}

/// The executions that are under way on one ring.
#[derive(Debug)]
struct Line {
    model: PreparedModel,
    state: Mutex<State>,
    /// Told whenever a thread has done with the ring while others wait.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    /// Those whose results were not received, the oldest first.
    under_way: VecDeque<Outcome>,
    /// Threads that wait for the one that has the ring.
    waiting: usize,
}

/// Who has the ring.
#[derive(Debug)]
enum Ring {
    Here(Counted),
    /// A thread that receives results.
    Taken,
    /// Nobody of these: all results were received, or none will come.
    Gone,
}

impl PreparedModel {
    /// Sends a fenced execution on a ring, behind those of that ring that it waits for; `None` if it is to go
    /// by a message.
    pub(crate) fn start_fenced_by_ring(
        &self,
        request: &Request,
        wait_for: &[&RingFenced],
        options: &ExecuteOptions,
    ) -> Result<Option<RingFenced>> {
        let link = self.link();
        link.check_process()?;
        // What is late already is told at once, by a message.
        let is_late = !options.deadline.is_none() && options.deadline.is_past(MonotonicClock.now());
        if !link.has_fenced_bursts() || options.duration.is_some() || is_late {
            return Ok(None);
        }
        let _calls = trace::span(SpanKind::ExecuteFenced, 0);
        let mut pending = wait_for.iter().filter(|execution| execution.outcome().is_none());
        match (pending.next(), pending.next()) {
            (None, _) => self.start_line(request, options),
            (Some(before), None) => before.start_behind(self, request, options),
            (Some(_), Some(_)) => Ok(None),
        }
    }

    fn start_line(&self, request: &Request, options: &ExecuteOptions) -> Result<Option<RingFenced>> {
        let Some(mut executor) = self.take_executor(options) else {
            return Ok(None);
        };
        match executor.executor.start_fenced(Fencing::Fenced, request, options) {
            Ok(Some(started)) => {
                let outcome = Outcome::default();
                let state = State {
                    ring: Ring::Here(executor),
                    under_way: VecDeque::from([Arc::clone(&outcome)]),
                    waiting: 0,
                };
                let line = Arc::new(Line {
                    model: self.clone(),
                    state: Mutex::new(state),
                    changed: Condvar::new(),
                });
                Ok(Some(RingFenced {
                    line,
                    outcome,
                    started,
                }))
            }
            Ok(None) => {
                self.executors().keep(executor);
                Ok(None)
            }
            Err(error) => {
                let refused = Err(error);
                self.end_with(executor, &refused);
                refused.map(|_: crate::execution::Completed| None)
            }
        }
    }
}

impl RingFenced {
    /// Sends an execution behind this one, if this is the last on its ring and nobody receives there just
    /// now.
    fn start_behind(
        &self,
        model: &PreparedModel,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<RingFenced>> {
        // The driver measures from when it takes a request up, not from when it was sent.
        let is_measured = options.measure == MeasureTiming::Yes;
        if is_measured || !self.line.model.is_same(model) || !model.may_use_rings(options) {
            return Ok(None);
        }
        let mut state = self.line.lock();
        let is_last = |last: &Outcome| Arc::ptr_eq(last, &self.outcome);
        if !state.under_way.back().is_some_and(is_last) {
            return Ok(None);
        }
        let Ring::Here(executor) = &mut state.ring else {
            return Ok(None);
        };
        let executor = &mut executor.executor;
        let Some(started) = executor.start_fenced(Fencing::Behind, request, options)? else {
            return Ok(None);
        };
        let outcome = Outcome::default();
        state.under_way.push_back(Arc::clone(&outcome));
        drop(state);
        Ok(Some(RingFenced {
            line: Arc::clone(&self.line),
            outcome,
            started,
        }))
    }

    /// What has become of it, if that is known here.
    pub(crate) fn outcome(&self) -> Option<&Result<Timing>> {
        self.outcome.get()
    }

    /// Waits for the end. After [`ErrorKind::TimedOut`] it can be waited for again.
    pub(crate) fn wait(&self, deadline: Deadline) -> Result<Timing> {
        self.line.model.link().check_process()?;
        loop {
            if let Some(outcome) = self.outcome.get() {
                return outcome.clone();
            }
            self.line.receive_one(deadline)?;
        }
    }

    /// What has become of it, also if that has only just come; nothing while it runs.
    pub(crate) fn look(&self) -> Option<Result<Timing>> {
        let result = self.wait(NOW);
        let is_running = matches!(&result, Err(error) if is_timeout(error));
        (!is_running).then_some(result)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receives the next result, or waits until another thread has.
    ///
    /// # Errors
    /// Neither has happened by the deadline.
    fn receive_one(&self, deadline: Deadline) -> Result<()> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.ring, Ring::Taken) {
            Ring::Here(mut executor) => {
                drop(state);
                let received = executor.executor.finish_fenced(deadline);
                self.put_back(executor, received)
            }
            Ring::Taken => self.wait_for_others(state, deadline),
            Ring::Gone => {
                // All outcomes are known.
                state.ring = Ring::Gone;
                Ok(())
            }
        }
    }

    /// Notes what was received by the ring, and leaves that to the next thread, to the next execution if no
    /// other is under way, or to nobody if nothing will come any more.
    fn put_back(&self, executor: Counted, received: Result<Result<Timing>>) -> Result<()> {
        let mut state = self.lock();
        let mut outcome = Ok(());
        let mut idle = None;
        match received {
            Ok(ended) => {
                if let Some(oldest) = state.under_way.pop_front() {
                    // Nobody else sets it.
                    let _ = oldest.set(ended);
                }
                if state.under_way.is_empty() {
                    state.ring = Ring::Gone;
                    idle = Some(executor);
                } else {
                    state.ring = Ring::Here(executor);
                }
            }
            Err(error) if is_timeout(&error) => {
                state.ring = Ring::Here(executor);
                outcome = Err(error);
            }
            Err(error) => {
                for execution in state.under_way.drain(..) {
                    let _ = execution.set(Err(error.clone()));
                }
                state.ring = Ring::Gone;
            }
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
        if let Some(executor) = idle
            && executor.executor.is_idle()
        {
            self.model.executors().keep(executor);
        }
        outcome
    }

    /// Waits until the thread that has the ring has done with it.
    #[cold]
    fn wait_for_others(&self, mut state: MutexGuard<'_, State>, deadline: Deadline) -> Result<()> {
        let link = self.model.link();
        let deadline = link.timeouts().work_deadline(deadline);
        let Some(left) = deadline.remaining(MonotonicClock.now()) else {
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
            return Ok(());
        };
        if left.is_zero() {
            return Err(ErrorKind::TimedOut {
                call: FENCED,
                process: link.worker(),
            }
            .into());
        }
        state.waiting += 1;
        let waited = self.changed.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.model.link().check_process().is_err() {
            // In a forked child it is the parent's.
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Ring::Here(executor) = std::mem::replace(&mut state.ring, Ring::Gone) {
            let model = self.model.clone();
            let mut left = Some(Abandoned { executor, model });
            while let Some(mut abandoned) = left.take() {
                let consumer = abandoned.executor.executor.consumer_mut();
                if !consumer.is_some_and(|consumer| consumer.is_ready() && consumer.has_packet()) {
                    // Without the thread the rings end with what runs.
                    if abandoned.model.link().start_completer().is_ok() {
                        let link = Arc::clone(abandoned.model.link());
                        link.complete(Box::new(abandoned));
                    }
                    return;
                }
                left = abandoned.receive();
            }
        }
    }
}

/// A ring on which executions are under way that nobody has a handle on.
#[derive(Debug)]
struct Abandoned {
    executor: Counted,
    model: PreparedModel,
}

impl Abandoned {
    /// Receives the next result; returns what is still to be received.
    fn receive(mut self) -> Option<Abandoned> {
        match self.executor.executor.finish_fenced(NOW) {
            Ok(_) if self.executor.executor.is_idle() => {
                self.model.executors().keep(self.executor);
                None
            }
            Ok(_) => Some(self),
            Err(error) => is_timeout(&error).then_some(self),
        }
    }
}

impl Awaited for Abandoned {
    fn consumer(&self) -> Option<&Consumer> {
        self.executor.executor.consumer()
    }

    fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        self.executor.executor.consumer_mut()
    }

    fn wait_settings(&self) -> WaitSettings {
        self.model.wait_settings()
    }

    fn finish(self: Box<Self>) -> Option<Box<dyn Awaited>> {
        self.receive().map(|left| Box::new(left) as Box<dyn Awaited>)
    }
}

/// Whether it can be waited for again.
fn is_timeout(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut { .. })
}
