//! Executions that go on after the call.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use nnhal::fence::Fence;
use nnhal_hal::ErrorStatus;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use super::arguments::{BoundArguments, OutputBuffer, RunInput};
use super::compilation::Compilation;
use super::computed::Finished;
use super::execution::settle;
use super::fenced_end::{expect_ended, wait_for_fences};
use super::result::{ResultCode, RuntimeError, RuntimeResult};
use super::started::Started;
use crate::error::ErrorKind;
use crate::execution::ExecuteOptions;
use crate::fenced::{FencedExecution, FencedTiming};
use crate::memory::Memory;

/// The end of an execution that goes on. The role of the NDK's `ANeuralNetworksEvent`. Clones are the same
/// event; the execution goes on without them.
#[derive(Clone, Debug)]
pub struct RunEvent {
    inner: Arc<Inner>,
}

/// What an execution that goes on is at when the call returns.
#[derive(Debug, Default)]
pub(super) struct Going {
    pub(super) fences: Vec<Fence>,
    pub(super) launched: Vec<FencedExecution>,
    /// Its only step, if a driver has begun it.
    pub(super) started: Option<Started>,
    /// Its end, if that has come.
    pub(super) outcome: Option<RuntimeResult<Finished>>,
}

#[derive(Debug)]
struct Inner {
    compilation: Compilation,
    placed: BoundArguments,
    options: ExecuteOptions,
    /// What it waits for.
    fences: Vec<Fence>,
    /// The steps that drivers run behind fences, if they do; the last ends with the execution.
    launched: Vec<FencedExecution>,
    timing: OnceLock<FencedTiming>,
    end: Mutex<End>,
    has_ended: Condvar,
}

/// How far an execution is that goes on.
#[derive(Debug)]
enum End {
    /// It goes on.
    Open,
    /// It goes on in a driver. A thread that waits takes this out, and waits for all.
    Started(Started),
    /// One thread is ending it for all; it may be doing it once more.
    Ending,
    Ended(RuntimeResult<Finished>),
}

impl Drop for Inner {
    fn drop(&mut self) {
        let end = self.end.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let End::Started(started) = std::mem::replace(end, End::Ending) {
            // It goes on with nobody who waits. Without the thread for callbacks it is given up.
            let _ = started.pending.on_end(drop);
        }
    }
}

/// Ends an execution, whatever becomes of the thread that is to.
struct Ending(RunEvent);

impl Ending {
    fn end(self, result: RuntimeResult<Finished>) {
        self.0.end(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !matches!(*self.0.state(), End::Ended(_)) {
            self.0.end(Err(RuntimeError::failed(
                "an error in this library ended the execution early",
            )));
        }
    }
}

impl Compilation {
    /// Starts an execution, which goes on in its driver if it is of a single step, and on a thread of its own
    /// otherwise. The role of the NDK's `ANeuralNetworksExecution_startCompute`. Inputs in this process's own
    /// memory are copied before it returns. A driver's failure is looked after by who waits.
    ///
    /// # Errors
    /// What is wrong with the arguments; the thread cannot be started. Other errors are the outcome.
    pub fn start(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[OutputBuffer],
        options: &ExecuteOptions,
    ) -> RuntimeResult<RunEvent> {
        let placed = self.place(inputs, outputs)?;
        let started = self.start_step(&placed, options);
        let needs_thread = started.is_none();
        let going = Going {
            started,
            ..Going::default()
        };
        let event = RunEvent::new(self, placed, *options, going);
        if needs_thread {
            event.end_by_thread(|inner| inner.compilation.run(&inner.placed, &inner.options, true))?;
        }
        Ok(event)
    }

    /// Arguments that outlive the call, in memory that is theirs.
    pub(super) fn place(
        &self,
        inputs: &[RunInput<'_>],
        outputs: &[OutputBuffer],
    ) -> RuntimeResult<BoundArguments> {
        BoundArguments::new(self, inputs, outputs, |size| Ok(Memory::new(size)?))
    }
}

impl RunEvent {
    pub(super) fn new(
        compilation: &Compilation,
        placed: BoundArguments,
        options: ExecuteOptions,
        going: Going,
    ) -> RunEvent {
        let Going {
            fences,
            launched,
            started,
            outcome,
        } = going;
        let end = outcome.map_or_else(|| started.map_or(End::Open, End::Started), End::Ended);
        RunEvent {
            inner: Arc::new(Inner {
                compilation: compilation.clone(),
                placed,
                options,
                fences,
                launched,
                timing: OnceLock::new(),
                end: Mutex::new(end),
                has_ended: Condvar::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, End> {
        self.inner.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, result: RuntimeResult<Finished>) {
        *self.state() = End::Ended(result);
        self.inner.has_ended.notify_all();
    }

    /// Has a thread of its own end it.
    fn end_by_thread(
        &self,
        run: impl FnOnce(&Inner) -> RuntimeResult<Finished> + Send + 'static,
    ) -> RuntimeResult<()> {
        let event = self.clone();
        let body = move || {
            // Not before there is a thread: without one the caller ends it.
            let ending = Ending(event);
            let result = run(&ending.0.inner);
            ending.end(result);
        };
        let spawned = std::thread::Builder::new()
            .name("nnhal-run".to_owned())
            .spawn(body);
        spawned.map(drop).map_err(|error| {
            RuntimeError::with_status(
                ErrorStatus::ResourceExhaustedTransient,
                format!("failed to start a thread for the execution: {error}"),
            )
        })
    }

    /// Waits for the end and tells the outcome, each time the same. Without an outcome by the deadline it can
    /// be waited for again.
    ///
    /// # Errors
    /// As [`Compilation::execute`]; [`ResultCode::MissedDeadlineTransient`] if it has not ended by
    /// `deadline`.
    pub fn wait(&self, deadline: Deadline) -> RuntimeResult<Finished> {
        match self.inner.launched.last() {
            Some(last) => self.wait_for(last, deadline),
            None => self.wait_for_end(deadline),
        }
    }

    /// Waits for the driver that executes it, unless another thread does, or for the thread that ends it.
    fn wait_for_end(&self, deadline: Deadline) -> RuntimeResult<Finished> {
        let mut state = self.state();
        loop {
            match std::mem::replace(&mut *state, End::Ending) {
                End::Started(started) => {
                    drop(state);
                    self.wait_for_step(started, deadline)?;
                    state = self.state();
                    continue;
                }
                End::Ended(result) => {
                    *state = End::Ended(result.clone());
                    return result;
                }
                goes_on => *state = goes_on,
            }
            state = match deadline.remaining(MonotonicClock.now()) {
                None => {
                    let waited = self.inner.has_ended.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
                Some(remaining) if remaining.is_zero() => {
                    return Err(RuntimeError::new(
                        ResultCode::MissedDeadlineTransient,
                        "the execution has not ended in the time that was allowed",
                    ));
                }
                Some(remaining) => {
                    let waited = self.inner.has_ended.wait_timeout(state, remaining);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits for the driver that executes it, and ends it: by a thread if it failed, for that may take more.
    ///
    /// # Errors
    /// The driver has not ended it by `deadline`. The next one to wait waits for it again.
    fn wait_for_step(&self, mut started: Started, deadline: Deadline) -> RuntimeResult<()> {
        let outcome = match started.pending.wait(deadline) {
            Err(error)
                if matches!(error.kind(), ErrorKind::TimedOut { .. })
                    && deadline.is_past(MonotonicClock.now()) =>
            {
                *self.state() = End::Started(started);
                // Another may wait for longer.
                self.inner.has_ended.notify_all();
                return Err(error.into());
            }
            outcome => outcome,
        };
        let Inner {
            compilation,
            placed,
            options,
            ..
        } = &*self.inner;
        match compilation.end_of_step((placed, options), &started, outcome) {
            Ok(finished) => self.end(Ok(finished)),
            Err(error) => {
                let unrepeated = error.clone();
                let after = self.end_by_thread(move |inner| {
                    inner.compilation.run_after(&inner.placed, &inner.options, error)
                });
                if after.is_err() {
                    self.end(Err(unrepeated));
                }
            }
        }
        Ok(())
    }

    fn wait_for(&self, last: &FencedExecution, deadline: Deadline) -> RuntimeResult<Finished> {
        if !matches!(*self.state(), End::Open) {
            return self.wait_for_end(deadline);
        }
        let ended = match last.wait(deadline) {
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut { .. }) => {
                return Err(error.into());
            }
            Err(error) => Err(RuntimeError::from(error)),
            Ok(timing) => Ok(timing),
        };
        if ended.is_err() {
            // The last one fails at once if its worker dies; those before it may be running.
            expect_ended(&self.inner.launched, deadline)?;
        }
        let compilation = &self.inner.compilation;
        if let Err(error) = &ended
            && compilation.is_repeatable(error)
        {
            // What was to be waited for has still to be.
            wait_for_fences(&self.inner.fences, deadline)?;
        }
        // Whoever comes first ends it for all, and holds no lock while it does.
        {
            let mut state = self.state();
            if !matches!(*state, End::Open) {
                drop(state);
                return self.wait_for_end(deadline);
            }
            *state = End::Ending;
        }
        self.settle_end(ended);
        self.wait_for_end(deadline)
    }

    /// Ends it, now that its last step has: by a thread if it is done once more.
    fn settle_end(&self, ended: RuntimeResult<FencedTiming>) {
        let Inner {
            compilation, placed, ..
        } = &*self.inner;
        match ended {
            Ok(timing) => {
                // The cell is empty, for it had not ended.
                let _ = self.inner.timing.set(timing);
                self.end(Ok(compilation.fenced_end(placed, timing)));
            }
            Err(error) if compilation.is_repeatable(&error) => {
                let repeated = self.end_by_thread(move |inner| {
                    let Inner {
                        compilation,
                        placed,
                        options,
                        ..
                    } = inner;
                    let result = compilation.after_death(placed, options, error);
                    settle(placed, &result);
                    result
                });
                if let Err(error) = repeated {
                    let result = Err(error);
                    settle(placed, &result);
                    self.end(result);
                }
            }
            Err(error) => {
                let result = Err(error);
                settle(placed, &result);
                self.end(result);
            }
        }
    }

    /// Whether it has ended. Does not wait: not for an execution either that is done once more because its
    /// worker died.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        // What it ends with is told by those who wait.
        let _ = self.wait(Deadline::at(MonotonicClock.now()));
        matches!(*self.state(), End::Ended(_))
    }

    /// Copies the value of output `index`, whose room is [`OutputBuffer::Bytes`], after a success: as many
    /// bytes as were written and fit.
    ///
    /// # Errors
    /// It has not ended, or not with success; the output is elsewhere.
    pub fn output(&self, index: usize, bytes: &mut [u8]) -> RuntimeResult<()> {
        let shapes = match &*self.state() {
            End::Ended(Ok(finished)) => Arc::clone(&finished.output_shapes),
            End::Ended(Err(error)) => return Err(error.clone()),
            End::Open | End::Started(_) | End::Ending => {
                return Err(RuntimeError::new(
                    ResultCode::BadState,
                    "the outputs of an execution are asked for before its end",
                ));
            }
        };
        let compilation = &self.inner.compilation;
        let types = (compilation.outputs(), compilation.layouts());
        self.inner.placed.read_output(index, types, &shapes, bytes)
    }

    /// The fence that is signalled at the end, for fenced executions whose last step a driver runs and has
    /// not done before the call returned.
    ///
    /// # Errors
    /// As [`FencedExecution::fence`].
    pub fn fence(&self) -> RuntimeResult<Option<&Fence>> {
        match self.inner.launched.last() {
            Some(last) => Ok(last.fence()?),
            None => Ok(None),
        }
    }

    /// How long a fenced execution took, after it was waited for.
    #[must_use]
    pub fn fenced_timing(&self) -> Option<FencedTiming> {
        self.inner.timing.get().copied()
    }
}
