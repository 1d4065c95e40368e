//! An execution that was sent on a ring, and whose end is taken later.
//!
//! Who waits for it in a call receives the result itself. For a future that is not ready, a callback, and an
//! execution that is given up, the completer of the connection does, and has the executor meanwhile.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use nnhal::diag::trace::SpanKind;
use nnhal::fmq::{Consumer, WaitSettings};
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::connection::Awaited;
use crate::error::{Error, ErrorKind, Result};
use crate::execution::{Completed, ExecuteOptions};
use crate::executors::{Counted, Started};
use crate::prepared_model::PreparedModel;
use crate::request::Request;
use crate::trace;

/// The name of the call in messages.
const CALL: &str = "Execute";

/// Only what is there already.
const NOW: Deadline = Deadline::from_raw(0);

/// An execution that was sent on a ring. Dropping it gives it up: the driver is asked to end it early.
#[derive(Debug)]
pub(crate) struct RingExecution {
    state: State,
    started: Started,
    // Keeps the connection.
    model: PreparedModel,
    /// Ends with the execution as seen from here.
    traced: Option<trace::Wait>,
}

#[derive(Debug)]
enum State {
    /// Whoever waits receives the result.
    Held(Counted),
    /// The completer does.
    HandedOver(Arc<Outcome>),
    /// The result was taken, or is a callback's.
    Over,
}

impl PreparedModel {
    /// Sends a request on a ring; `None` if it is to go by a message.
    pub(crate) fn start_by_ring(
        &self,
        request: &Request,
        options: &ExecuteOptions,
    ) -> Result<Option<RingExecution>> {
        if !self.link().can_cancel_bursts() {
            return Ok(None);
        }
        let Some(mut executor) = self.take_executor(options) else {
            return Ok(None);
        };
        let traced = trace::wait(SpanKind::Execute);
        match executor.executor.start(request, options) {
            Ok(Some(started)) => Ok(Some(RingExecution {
                state: State::Held(executor),
                started,
                model: self.clone(),
                traced,
            })),
            Ok(None) => {
                self.executors().keep(executor);
                Ok(None)
            }
            Err(error) => {
                let refused = Err(error);
                self.end_with(executor, &refused);
                refused.map(|_: Completed| None)
            }
        }
    }
}

impl RingExecution {
    /// Waits for the end. After [`ErrorKind::TimedOut`] it can be waited for again.
    pub(crate) fn wait(&mut self, deadline: Deadline) -> Result<Completed> {
        self.model.link().check_process()?;
        let result = match &mut self.state {
            State::Held(executor) => executor.executor.finish(deadline),
            State::HandedOver(outcome) => {
                let deadline = self.model.link().timeouts().work_deadline(deadline);
                outcome.wait(deadline).unwrap_or_else(|| {
                    Err(ErrorKind::TimedOut {
                        call: CALL,
                        process: self.model.link().worker(),
                    }
                    .into())
                })
            }
            State::Over => return Err(taken_before()),
        };
        if is_still_running(&result) {
            return result;
        }
        self.end(result)
    }

    /// As [`std::future::Future::poll`]. The first time it polls the ring for a moment: an execution that is
    /// short needs no other thread then. What an end without a result means takes a call to learn, which the
    /// completer makes.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Completed>> {
        if let Err(error) = self.model.link().check_process() {
            return Poll::Ready(Err(error));
        }
        match &mut self.state {
            State::Held(executor) => {
                if has_result(executor, Consumer::is_ready_soon) {
                    let result = executor.executor.finish(NOW);
                    if !is_still_running(&result) {
                        return Poll::Ready(self.end(result));
                    }
                }
                if let Err(error) = self.model.link().start_completer() {
                    return Poll::Ready(Err(error));
                }
                let outcome = Arc::new(Outcome::default());
                outcome.lock().waker = Some(context.waker().clone());
                let told = Arc::clone(&outcome);
                self.hand_over(State::HandedOver(outcome), Then::Tell(told));
                Poll::Pending
            }
            State::HandedOver(outcome) => match outcome.poll(context) {
                Poll::Ready(result) => Poll::Ready(self.end(result)),
                Poll::Pending => Poll::Pending,
            },
            State::Over => Poll::Ready(Err(taken_before())),
        }
    }

    /// Has `callback` called with the outcome, on the thread for callbacks.
    pub(crate) fn on_end(mut self, callback: Callback) -> Result<()> {
        let link = Arc::clone(self.model.link());
        link.check_process()?;
        link.start_callbacks()?;
        link.start_completer()?;
        let traced = self.traced.take();
        let callback: Callback = Box::new(move |result| {
            drop(traced);
            callback(result);
        });
        match &self.state {
            State::Held(_) => {
                self.hand_over(State::Over, Then::Call(callback));
                Ok(())
            }
            State::HandedOver(outcome) => {
                if let Some((callback, result)) = outcome.call_at_end(callback) {
                    link.run_callback(Box::new(move || callback(result)));
                }
                self.state = State::Over;
                Ok(())
            }
            State::Over => Err(taken_before()),
        }
    }

    /// Asks the driver to end it early, if it has not ended. It ends in any case.
    pub(crate) fn cancel(&self) {
        if !matches!(self.state, State::Over) {
            let Started { burst, sequence } = self.started;
            self.model.link().cancel_burst(burst, sequence);
        }
    }

    /// Gives the executor to the completer, which was started.
    fn hand_over(&mut self, state: State, then: Then) {
        if let State::Held(executor) = std::mem::replace(&mut self.state, state) {
            let model = self.model.clone();
            self.model.link().complete(Box::new(Handed {
                executor,
                model,
                then,
            }));
        }
    }

    /// Its result was taken.
    fn end(&mut self, result: Result<Completed>) -> Result<Completed> {
        self.traced = None;
        if let State::Held(executor) = std::mem::replace(&mut self.state, State::Over) {
            self.model.end_with(executor, &result);
        }
        result
    }
}

impl Drop for RingExecution {
    fn drop(&mut self) {
        if self.model.link().check_process().is_err() {
            // In a forked child it is the parent's.
            return;
        }
        match &mut self.state {
            State::Over => {}
            State::Held(executor) => {
                if has_result(executor, Consumer::is_ready) {
                    let result = executor.executor.finish(NOW);
                    if !is_still_running(&result) {
                        // Nobody wants to know.
                        let _ = self.end(result);
                        return;
                    }
                }
                self.cancel();
                // What it uses is kept until its end. Without the thread the worker alone keeps it.
                if self.model.link().start_completer().is_ok() {
                    self.hand_over(State::Over, Then::Nothing);
                }
            }
            State::HandedOver(outcome) => {
                let has_ended = outcome.give_up();
                if !has_ended {
                    self.cancel();
                }
            }
        }
    }
}

/// Whether a result is there by what a look at the ring says, and not its end alone.
fn has_result(executor: &mut Counted, look: fn(&mut Consumer) -> bool) -> bool {
    let consumer = executor.executor.consumer_mut();
    consumer.is_some_and(|consumer| look(consumer) && consumer.has_packet())
}

/// Whether it can be waited for again.
fn is_still_running(result: &Result<Completed>) -> bool {
    matches!(result, Err(error) if matches!(error.kind(), ErrorKind::TimedOut { .. }))
}

fn taken_before() -> Error {
    Error::argument(format!("the result of {CALL} has been taken before"))
}

/// Gets the outcome.
pub(crate) type Callback = Box<dyn FnOnce(Result<Completed>) + Send>;

/// Where the completer leaves an outcome.
#[derive(Debug, Default)]
struct Outcome {
    state: Mutex<OutcomeState>,
    ended: Condvar,
}

#[derive(Default)]
struct OutcomeState {
    result: Option<Result<Completed>>,
    waker: Option<Waker>,
    callback: Option<Callback>,
}

impl std::fmt::Debug for OutcomeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutcomeState")
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}

impl Outcome {
    fn lock(&self) -> MutexGuard<'_, OutcomeState> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the result once it is there; `None` if the deadline came first.
    fn wait(&self, deadline: Deadline) -> Option<Result<Completed>> {
        let mut state = self.lock();
        loop {
            if let Some(result) = state.result.take() {
                return Some(result);
            }
            state = match deadline.remaining(MonotonicClock.now()) {
                Some(left) if left.is_zero() => return None,
                Some(left) => {
                    let waited = self.ended.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<Completed>> {
        // Wakers are the program's: neither made nor dropped under the lock.
        let waker = context.waker().clone();
        let mut state = self.lock();
        match state.result.take() {
            Some(result) => {
                drop(state);
                Poll::Ready(result)
            }
            None => {
                let earlier = state.waker.replace(waker);
                drop(state);
                drop(earlier);
                Poll::Pending
            }
        }
    }

    /// Has the callback called at the end; gives it back with the result if that is there.
    fn call_at_end(&self, callback: Callback) -> Option<(Callback, Result<Completed>)> {
        let mut state = self.lock();
        match state.result.take() {
            Some(result) => Some((callback, result)),
            None => {
                let waker = state.waker.take();
                state.callback = Some(callback);
                drop(state);
                drop(waker);
                None
            }
        }
    }

    /// Nobody waits any more; whether it has ended.
    fn give_up(&self) -> bool {
        let mut state = self.lock();
        let waker = state.waker.take();
        let has_ended = state.result.is_some();
        drop(state);
        drop(waker);
        has_ended
    }

    /// Leaves the result to who waits. A callback is given back with it.
    fn tell(&self, result: Result<Completed>) -> Option<(Callback, Result<Completed>)> {
        let mut state = self.lock();
        if let Some(callback) = state.callback.take() {
            return Some((callback, result));
        }
        state.result = Some(result);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
        None
    }
}

/// What is done with the outcome.
enum Then {
    Tell(Arc<Outcome>),
    Call(Callback),
    Nothing,
}

/// An execution that the completer has.
struct Handed {
    executor: Counted,
    model: PreparedModel,
    then: Then,
}

impl std::fmt::Debug for Handed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handed")
            .field("executor", &self.executor)
            .finish_non_exhaustive()
    }
}

impl Awaited for Handed {
    fn consumer(&self) -> Option<&Consumer> {
        self.executor.executor.consumer()
    }

    fn consumer_mut(&mut self) -> Option<&mut Consumer> {
        self.executor.executor.consumer_mut()
    }

    fn wait_settings(&self) -> WaitSettings {
        self.model.wait_settings()
    }

    fn finish(mut self: Box<Self>) -> Option<Box<dyn Awaited>> {
        let result = self.executor.executor.finish(NOW);
        if is_still_running(&result) {
            return Some(self);
        }
        let Handed {
            executor,
            model,
            then,
        } = *self;
        model.end_with(executor, &result);
        let called = match then {
            Then::Tell(outcome) => outcome.tell(result),
            Then::Call(callback) => Some((callback, result)),
            Then::Nothing => None,
        };
        if let Some((callback, result)) = called {
            model.link().run_callback(Box::new(move || callback(result)));
        }
        None
    }
}
