//! Fenced executions from their launch on: they begin when their fences have signalled, and signal one when
//! they have ended.
//!
//! Waiting takes no thread and no slot. Fences from outside are polled by the main thread; the end of another
//! execution of this worker is told to those that wait for it directly, with its failure if it has one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::fence::{Fence, FenceSource, FenceState};
use nnhal::wire::ExecutionInfo;
use nnhal_device::Interruption;
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch, TimePoint};

use super::calls::{Cancel, OpenCall, no_thread};
use super::job::Job;
use super::limits::RunLimits;
use super::pool::Pool;
use crate::trace;

/// A fenced execution: what it waits for, what it does then, and what has come of it.
#[derive(Debug)]
pub(crate) struct Fenced {
    pool: Pool,
    /// Since the client asked for it.
    launched: Stopwatch,
    /// The same by the clock of traces.
    seen: TimePoint,
    measure: MeasureTiming,
    limits: RunLimits,
    /// The longest that it may take once it may begin.
    duration: Option<Duration>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    progress: Progress,
    /// Told the end; none once that has been done.
    source: Option<FenceSource>,
    /// Executions that wait for this one.
    dependents: Vec<Arc<Fenced>>,
}

#[derive(Debug)]
enum Progress {
    /// Not all fences have signalled.
    Waiting {
        work: Box<Work>,
        waits_for: WaitsFor,
    },
    Running,
    Ended(ExecutionInfo),
}

/// What an execution waits for before it begins.
#[derive(Debug)]
pub(crate) struct WaitsFor {
    /// Fences from outside.
    pub(crate) fences: Vec<Fence>,
    /// So many executions of this worker, which tell it their end.
    pub(crate) executions: usize,
    /// When to give up.
    pub(crate) until: Deadline,
}

impl WaitsFor {
    /// Whether nothing is left to wait for.
    fn is_over(&self) -> bool {
        self.fences.is_empty() && self.executions == 0
    }
}

/// What is to be done.
#[derive(Debug)]
struct Work {
    job: Job,
    call: OpenCall,
}

impl Fenced {
    /// An execution whose job a thread of `pool` does when there is nothing left to wait for; `launched` is
    /// when the client asked for it, `duration` how long it may take once it may begin, and `source` is told
    /// the end.
    pub(crate) fn new(
        pool: &Pool,
        (launched, measure): (Stopwatch, MeasureTiming),
        (limits, duration): (RunLimits, Option<Duration>),
        (job, call): (Job, OpenCall),
        waits_for: WaitsFor,
        source: FenceSource,
    ) -> Arc<Fenced> {
        let progress = Progress::Waiting {
            work: Box::new(Work { job, call }),
            waits_for,
        };
        Arc::new(Fenced {
            pool: pool.clone(),
            launched,
            seen: MonotonicClock.now(),
            measure,
            limits,
            duration,
            state: Mutex::new(State {
                progress,
                source: Some(source),
                dependents: Vec::new(),
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fences from outside that have not signalled, and when to give up on them; none once it has begun.
    pub(crate) fn waits_for(&self) -> Option<(Vec<Fence>, Deadline)> {
        match &self.lock().progress {
            Progress::Waiting { waits_for, .. } => Some((waits_for.fences.clone(), waits_for.until)),
            _ => None,
        }
    }

    /// Looks at the fences from outside and at the time: begins or ends what is due.
    pub(crate) fn look(self: &Arc<Self>, now: TimePoint) {
        let failure = match &mut self.lock().progress {
            Progress::Waiting { waits_for, .. } => {
                let until = waits_for.until;
                let mut failure = until.is_past(now).then(|| self.too_late(until));
                waits_for.fences.retain(|fence| match fence.state() {
                    Ok(FenceState::Pending) => true,
                    Ok(FenceState::Signalled) => false,
                    Ok(FenceState::Failed) | Err(_) => {
                        failure = Some(Failure::general(
                            "a fence that the execution waited for has failed",
                        ));
                        false
                    }
                });
                failure
            }
            _ => None,
        };
        match failure {
            Some(failure) => self.give_up(failure),
            None => self.begin_if_ready(),
        }
    }

    fn too_late(&self, until: Deadline) -> Failure {
        if until == self.limits.deadline {
            Failure::new(
                ErrorStatus::MissedDeadlineTransient,
                "the deadline passed before all fences had signalled",
            )
        } else {
            Failure::general("the fences did not signal in the time that the driver waits for them")
        }
    }

    /// Has `dependent` told when this execution ends, or at once if it has.
    pub(crate) fn tell_at_end(&self, dependent: &Arc<Fenced>) {
        let mut state = self.lock();
        let outcome = match &state.progress {
            Progress::Ended(info) => info.result.clone(),
            Progress::Waiting { .. } | Progress::Running => {
                state.dependents.push(Arc::clone(dependent));
                return;
            }
        };
        drop(state);
        tell(vec![(Arc::clone(dependent), outcome)]);
    }

    /// Ends an execution that has not begun.
    fn give_up(&self, failure: Failure) {
        tell(self.give_up_alone(failure));
    }

    /// The same, but for those that wait for it: they are returned.
    fn give_up_alone(&self, failure: Failure) -> Vec<Told> {
        let Some(work) = self.take_work(|_| true) else {
            return Vec::new();
        };
        work.job.give_up();
        self.end_alone(ExecutionInfo {
            result: Err(failure),
            timing_launched: Timing::NONE,
            timing_fenced: Timing::NONE,
        })
    }

    /// Begins if nothing is left to wait for.
    pub(crate) fn begin_if_ready(self: &Arc<Self>) {
        let Some(work) = self.take_work(WaitsFor::is_over) else {
            return;
        };
        let signalled = (MonotonicClock.now(), Stopwatch::start());
        if let Some(tracer) = trace::tracer() {
            tracer.record_wait(self.seen, SpanKind::FenceWait);
        }
        let Work { job, call } = *work;
        let fenced = Arc::clone(self);
        let priority = job.prepared().priority();
        let submitted = call.run_on(&self.pool, priority, move |call| {
            fenced.run(&job, call, signalled)
        });
        if submitted.is_err() {
            self.end(ExecutionInfo {
                result: Err(no_thread()),
                timing_launched: Timing::NONE,
                timing_fenced: Timing::NONE,
            });
        }
    }

    /// The work, if it waits and `condition` on what it waits for holds. Whoever gets it must see to its end.
    fn take_work(&self, condition: impl FnOnce(&WaitsFor) -> bool) -> Option<Box<Work>> {
        let mut state = self.lock();
        match &state.progress {
            Progress::Waiting { waits_for, .. } if condition(waits_for) => {}
            _ => return None,
        }
        match std::mem::replace(&mut state.progress, Progress::Running) {
            Progress::Waiting { work, .. } => Some(work),
            _ => None,
        }
    }

    /// Runs it; all fences had signalled at that time, by the clock of deadlines and by that of durations.
    fn run(
        self: &Arc<Self>,
        job: &Job,
        call: &OpenCall,
        (signalled, since_signalled): (TimePoint, Stopwatch),
    ) {
        let own = self
            .duration
            .map_or(Deadline::NONE, |duration| Deadline::after(signalled, duration));
        let limits = RunLimits {
            deadline: self.limits.deadline.earlier(own),
            arrival: signalled,
            ..self.limits
        };
        let since = (self.measure == MeasureTiming::Yes).then_some(self.launched);
        let result = job.run(call, limits, since);
        let timing_launched = result.timing;
        let waited = self.launched.until(since_signalled).as_micros();
        let waited = u64::try_from(waited).unwrap_or(u64::MAX);
        let timing_fenced = match timing_launched {
            Timing::NONE => Timing::NONE,
            launched => Timing {
                time_in_driver_us: launched
                    .time_in_driver_us
                    .saturating_sub(waited)
                    .max(launched.time_on_device_us),
                ..launched
            },
        };
        self.end(ExecutionInfo {
            result: result.outcome,
            timing_launched,
            timing_fenced,
        });
    }

    /// Keeps what has come of it, and tells everyone who waits.
    fn end(&self, info: ExecutionInfo) {
        tell(self.end_alone(info));
    }

    /// The same, but for those in this worker: they are returned.
    fn end_alone(&self, info: ExecutionInfo) -> Vec<Told> {
        let outcome = info.result.clone();
        let mut state = self.lock();
        state.progress = Progress::Ended(info);
        let source = state.source.take();
        let dependents = std::mem::take(&mut state.dependents);
        drop(state);
        let told = source.map(|source| {
            if outcome.is_ok() {
                source.signal()
            } else {
                source.fail()
            }
        });
        if let Some(Err(error)) = told {
            tracing::warn!(target: tags::DRIVER, %error, "a fence could not be signalled");
        }
        dependents
            .into_iter()
            .map(|dependent| (dependent, outcome.clone()))
            .collect()
    }

    /// HAL `getExecutionInfo`.
    pub(crate) fn info(&self) -> Result<ExecutionInfo, Failure> {
        match &self.lock().progress {
            Progress::Ended(info) => Ok(info.clone()),
            _ => Err(Failure::general(
                "the execution has not ended; wait for its fence first",
            )),
        }
    }

    /// Has the cancelling of its call end it.
    pub(crate) fn let_be_cancelled(self: &Arc<Self>) {
        if let Progress::Waiting { work, .. } = &self.lock().progress {
            // The call has only just been opened, nobody can have cancelled it.
            let _ = work.call.works_as(Waiting(Arc::downgrade(self)));
        }
    }
}

/// An execution, and the outcome of one that it waits for.
type Told = (Arc<Fenced>, Result<(), Failure>);

/// Tells executions the outcome of those that they wait for, and those that wait for them in their turn: by a
/// list, since a client decides how long such a chain is.
fn tell(mut told: Vec<Told>) {
    while let Some((fenced, outcome)) = told.pop() {
        if let Progress::Waiting { waits_for, .. } = &mut fenced.lock().progress {
            waits_for.executions = waits_for.executions.saturating_sub(1);
        }
        match outcome {
            Ok(()) => fenced.begin_if_ready(),
            Err(failure) => {
                let detail = format!(
                    "an execution that this one waited for has failed: {}",
                    failure.detail
                );
                told.extend(fenced.give_up_alone(Failure::new(failure.status, detail)));
            }
        }
    }
}

/// A fenced execution that has not begun, for its client to cancel.
#[derive(Debug)]
struct Waiting(Weak<Fenced>);

impl Cancel for Waiting {
    fn cancel(&self) {
        if let Some(fenced) = self.0.upgrade() {
            fenced.give_up(Interruption::Cancelled.into());
        }
    }
}
