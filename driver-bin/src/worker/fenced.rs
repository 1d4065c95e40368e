//! Fenced executions: they begin when their fences have signalled, and signal one when they have ended.
//!
//! Waiting takes no thread and no slot. Fences from outside are polled by the main thread; the end of another execution
//! of this worker is told to those that wait for it directly, with its failure if it has one.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal::fence::{Fence, FenceError, FenceSource, FenceState};
use nnhal::wire::{ExecuteFenced, ExecutionInfo, FenceArgument, FenceStarted, Reply};
use nnhal_device::Interruption;
use nnhal_hal::{ErrorStatus, Failure, MeasureTiming, Timing};
use nnhal_os::time::{Clock, Deadline, MonotonicClock, Stopwatch, TimePoint};

use super::calls::{Cancel, OpenCall};
use super::client::Client;
use super::execute::{Job, check};
use super::run::RunLimits;
use crate::trace;

/// A fenced execution: what it waits for, what it does then, and what has come of it.
#[derive(Debug)]
pub(crate) struct Fenced {
    client: Weak<Client>,
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
        fences: Vec<Fence>,
        executions: usize,
        until: Deadline,
    },
    Running,
    Ended(ExecutionInfo),
}

/// What is to be done.
#[derive(Debug)]
struct Work {
    job: Job,
    call: OpenCall,
}

/// HAL `executeFenced`. Returns the execution if it waits for fences that the main thread must poll, or for a time
/// limit that it must keep.
pub(crate) fn execute_fenced(
    client: &Arc<Client>,
    call: OpenCall,
    arguments: ExecuteFenced,
    fds: Vec<OwnedFd>,
    fence_timeout: Option<Duration>,
) -> Option<Arc<Fenced>> {
    let id = call.id();
    match launch(client, call, arguments, fds, fence_timeout) {
        Ok((fenced, reply, fd)) => {
            client.outbox.reply_with(id, Reply::Fenced(reply), Some(fd));
            fenced.begin_if_ready();
            fenced.waits_for().is_some().then_some(fenced)
        }
        Err(failure) => {
            client.outbox.reply(id, Err(failure));
            None
        }
    }
}

fn launch(
    client: &Arc<Client>,
    call: OpenCall,
    arguments: ExecuteFenced,
    fds: Vec<OwnedFd>,
    fence_timeout: Option<Duration>,
) -> Result<(Arc<Fenced>, FenceStarted, OwnedFd), Failure> {
    let launched = Stopwatch::start();
    let ExecuteFenced {
        prepared_model,
        request,
        wait_for,
        measure,
        limits,
    } = arguments;
    let Awaited { fences, executions } = awaited(client, &wait_for, fds)?;
    let job = check(client, prepared_model, request)?;
    job.check_fenced()?;
    let run_limits = RunLimits::from_hal(limits.deadline_ns, limits.loop_timeout_ns);
    run_limits.check_not_past()?;
    let (source, fence) = Fence::create().map_err(|error| fence_failure(&error))?;
    let fd = fence.try_clone_fd().map_err(|error| fence_failure(&error))?;
    let patience = fence_timeout.map_or(Deadline::NONE, |limit| {
        Deadline::after(MonotonicClock.now(), limit)
    });
    let progress = Progress::Waiting {
        work: Box::new(Work { job, call }),
        fences,
        executions: executions.len(),
        until: run_limits.deadline.earlier(patience),
    };
    let fenced = Arc::new(Fenced {
        client: Arc::downgrade(client),
        launched,
        seen: MonotonicClock.now(),
        measure,
        limits: run_limits,
        duration: limits.duration_ns.map(Duration::from_nanos),
        state: Mutex::new(State {
            progress,
            source: Some(source),
            dependents: Vec::new(),
        }),
    });
    let handle = client.add_fenced(Arc::clone(&fenced))?;
    fenced.let_be_cancelled();
    for execution in executions {
        execution.tell_at_end(&fenced);
    }
    Ok((
        fenced,
        FenceStarted {
            execution: handle,
            has_fence: true,
        },
        fd,
    ))
}

/// What an execution waits for.
struct Awaited {
    fences: Vec<Fence>,
    executions: Vec<Arc<Fenced>>,
}

fn awaited(client: &Client, arguments: &[FenceArgument], fds: Vec<OwnedFd>) -> Result<Awaited, Failure> {
    let mut fds = fds.into_iter();
    let mut awaited = Awaited {
        fences: Vec::new(),
        executions: Vec::new(),
    };
    for (index, argument) in arguments.iter().enumerate() {
        let invalid = |reason: String| Failure::invalid_argument(format!("fence {index}: {reason}"));
        let fence = match *argument {
            FenceArgument::Attached { fds: 1 } => {
                Fence::from_handle(fds.next()).map_err(|error| invalid(error.to_string()))?
            }
            FenceArgument::Attached { fds } => {
                return Err(invalid(format!(
                    "its handle has {fds} descriptors instead of one"
                )));
            }
            FenceArgument::Registered(handle) => client.fence(handle)?,
            FenceArgument::Execution(handle) => {
                awaited.executions.push(client.fenced(handle)?);
                continue;
            }
        };
        match fence.state().map_err(|error| invalid(error.to_string()))? {
            FenceState::Failed => return Err(invalid("it has failed already".to_owned())),
            FenceState::Signalled => {}
            FenceState::Pending => awaited.fences.push(fence),
        }
    }
    Ok(awaited)
}

fn fence_failure(error: &FenceError) -> Failure {
    Failure::new(ErrorStatus::ResourceExhaustedTransient, error.to_string())
}

impl Fenced {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fences from outside that have not signalled, and when to give up on them; none once it has begun.
    pub(crate) fn waits_for(&self) -> Option<(Vec<Fence>, Deadline)> {
        match &self.lock().progress {
            Progress::Waiting { fences, until, .. } => Some((fences.clone(), *until)),
            _ => None,
        }
    }

    /// Looks at the fences from outside and at the time: begins or ends what is due.
    pub(crate) fn look(self: &Arc<Self>, now: TimePoint) {
        let failure = match &mut self.lock().progress {
            Progress::Waiting { fences, until, .. } => {
                let mut failure = until.is_past(now).then(|| self.too_late(*until));
                fences.retain(|fence| match fence.state() {
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
    fn tell_at_end(&self, dependent: &Arc<Fenced>) {
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
        let Some(work) = self.take_work(|_, _| true) else {
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
    fn begin_if_ready(self: &Arc<Self>) {
        let Some(work) = self.take_work(|fences, executions| fences.is_empty() && executions == 0) else {
            return;
        };
        let Some(client) = self.client.upgrade() else {
            return;
        };
        let signalled = (MonotonicClock.now(), Stopwatch::start());
        if let Some(tracer) = trace::tracer() {
            tracer.record_wait(self.seen, SpanKind::FenceWait);
        }
        let Work { job, call } = *work;
        let fenced = Arc::clone(self);
        let priority = job.prepared().priority();
        let submitted = super::try_submit(&client, priority, call, move |call| {
            fenced.run(&job, call, signalled)
        });
        if submitted.is_err() {
            self.end(ExecutionInfo {
                result: Err(super::no_thread()),
                timing_launched: Timing::NONE,
                timing_fenced: Timing::NONE,
            });
        }
    }

    /// The work, if it waits and `condition` on what it waits for holds. Whoever gets it must see to its end.
    fn take_work(&self, condition: impl FnOnce(&[Fence], usize) -> bool) -> Option<Box<Work>> {
        let mut state = self.lock();
        match &state.progress {
            Progress::Waiting {
                fences, executions, ..
            } if condition(fences, *executions) => {}
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

    fn let_be_cancelled(self: &Arc<Self>) {
        if let Progress::Waiting { work, .. } = &self.lock().progress {
            // The call has only just been opened, nobody can have cancelled it.
            let _ = work.call.works_as(Waiting(Arc::downgrade(self)));
        }
    }
}

/// An execution, and the outcome of one that it waits for.
type Told = (Arc<Fenced>, Result<(), Failure>);

/// Tells executions the outcome of those that they wait for, and those that wait for them in their turn: by a list, since
/// a client decides how long such a chain is.
fn tell(mut told: Vec<Told>) {
    while let Some((fenced, outcome)) = told.pop() {
        if let Progress::Waiting { executions, .. } = &mut fenced.lock().progress {
            *executions = executions.saturating_sub(1);
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
