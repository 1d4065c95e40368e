//! Executions that are started and go on: on a thread of this process, or behind fences in their driver.

use std::sync::Arc;
use std::time::Duration;

use nnhal::fence::{FenceSource, WaitOutcome, wait_all};
use nnhal_client::runtime::Compilation;
use nnhal_client::{Deadline, Fence};
use nnhal_os::time::{Clock, MonotonicClock};

use super::job::Job;
use super::results::Results;
use super::{Execution, Phase};
use crate::codes::ResultCode;
use crate::event::{Event, Run};
use crate::ffi::caught;
use crate::result::{Failure, Outcome};

/// Ends a run whose thread is gone, whatever became of it.
struct Ending {
    execution: Arc<Execution>,
    run: Arc<Run>,
    source: Option<FenceSource>,
    /// What is run, until the end.
    job: Option<Job>,
    results: Option<Results>,
}

impl Ending {
    /// Ends the run with these results.
    fn give(mut self, results: Results) {
        self.results = Some(results);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let results = self.results.take().unwrap_or_else(|| {
            Results::failed(Failure::op_failed("the thread of the execution ended early"))
        });
        let outcome = match self.job.take() {
            Some(job) => self.execution.end(results, job),
            None => results.outcome,
        };
        let is_done = outcome.is_ok();
        self.run.end(outcome);
        // A source that is dropped signals failure. Nobody is left to hear of an error in signalling.
        if let Some(source) = self.source.take().filter(|_| is_done) {
            let _ = source.signal();
        }
    }
}

impl Execution {
    /// Starts it on a thread of this process.
    pub(crate) fn start(self: &Arc<Self>) -> Outcome<Event> {
        let job = self.begin(None)?;
        self.spawn(job, Vec::new(), None, (Arc::default(), None))
    }

    /// Starts it when all dependencies are done. `duration` is a limit from then on, 0 for none.
    pub(crate) fn start_with_dependencies(
        self: &Arc<Self>,
        dependencies: &[Arc<Event>],
        duration: u64,
    ) -> Outcome<Event> {
        let duration = (duration > 0).then(|| Duration::from_nanos(duration));
        if duration.is_some() {
            self.compilation.expect_one_device("a duration limit")?;
        }
        self.expect_known_outputs()?;
        // What is wrong with this execution is told before it waits for others.
        let job = self.begin(duration)?;
        let fences = match caught(|| fences_of(dependencies)) {
            Ok(fences) => fences,
            Err(failure) => return self.end_early(failure, job),
        };
        let Some(outputs) = job.shared_outputs() else {
            return self.start_behind_fences(job, fences, duration);
        };
        // Whatever happens in there, the execution ends.
        let started = caught(|| {
            let references: Vec<&Fence> = fences.iter().collect();
            let inputs = job.inputs();
            let event = self
                .finished
                .execute_fenced(&inputs, &outputs, &references, &job.options)?;
            Ok(event)
        });
        match started {
            Ok(event) => {
                let mut state = self.wait_for_state();
                state.arguments = Some(job.arguments);
                state.phase = Phase::Fenced(event.clone());
                Ok(Event::Fenced {
                    execution: Arc::clone(self),
                    event,
                })
            }
            Err(failure) => self.end_early(failure, job),
        }
    }

    /// Ends an execution that has begun and cannot go on.
    fn end_early(&self, failure: Failure, job: Job) -> Outcome<Event> {
        self.end(Results::failed(failure.clone()), job)?;
        Err(failure)
    }

    /// Outputs in the caller's own memory are written by this process: a thread of it waits for the fences,
    /// computes, and signals a fence of its own.
    fn start_behind_fences(
        self: &Arc<Self>,
        job: Job,
        fences: Vec<Fence>,
        duration: Option<Duration>,
    ) -> Outcome<Event> {
        let (source, fence) = match Fence::create() {
            Ok(pair) => pair,
            Err(error) => {
                let failure = Failure::op_failed(format!("a fence cannot be made: {error}"));
                return self.end_early(failure, job);
            }
        };
        let run = Arc::new(Run::with_fence(fence));
        self.spawn(job, fences, duration, (run, Some(source)))
    }

    fn spawn(
        self: &Arc<Self>,
        job: Job,
        fences: Vec<Fence>,
        duration: Option<Duration>,
        (run, source): (Arc<Run>, Option<FenceSource>),
    ) -> Outcome<Event> {
        let ending = Ending {
            execution: Arc::clone(self),
            run: Arc::clone(&run),
            source,
            job: Some(job),
            results: None,
        };
        let body = move || {
            let mut ending = ending;
            if let Some(job) = &mut ending.job {
                let results = match await_all(&fences, job.options.due()) {
                    Ok(()) => compute(&ending.execution.finished, job, duration),
                    Err(failure) => Results::failed(failure),
                };
                ending.give(results);
            }
        };
        let spawned = std::thread::Builder::new()
            .name("nnapi-execution".to_owned())
            .spawn(body);
        spawned.map_err(|error| {
            // The body was dropped, and with it the run has ended.
            Failure::new(
                ResultCode::ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT,
                format!("a thread for the execution cannot be started: {error}"),
            )
        })?;
        Ok(Event::Run(run))
    }

    /// Refuses an execution behind fences whose outputs have dimensions that only it will tell.
    fn expect_known_outputs(&self) -> Outcome {
        match self.lock()?.open_output() {
            Some(index) => Err(Failure::bad_data(format!(
                "output {index} has dimensions that are not known; an execution with dependencies needs all of them"
            ))),
            None => Ok(()),
        }
    }
}

fn compute(compilation: &Compilation, job: &mut Job, duration: Option<Duration>) -> Results {
    if let Some(duration) = duration {
        let limit = Deadline::after(MonotonicClock.now(), duration);
        job.options = job.options.deadline(job.options.due().earlier(limit));
    }
    job.arguments.run(&job.options, |inputs, outputs, options| {
        compilation.execute(inputs, outputs, options)
    })
}

/// The fences of what is to be waited for; what has none is waited for at once.
fn fences_of(dependencies: &[Arc<Event>]) -> Outcome<Vec<Fence>> {
    let mut fences = Vec::new();
    for dependency in dependencies {
        match dependency.fence()? {
            Some(fence) => fences.push(fence.clone()),
            None => dependency.wait().map_err(|failure| {
                Failure::op_failed(format!("a dependency has failed: {}", failure.text))
            })?,
        }
    }
    Ok(fences)
}

/// Waits for fences, one of which may fail, for as long as the execution may take.
fn await_all(fences: &[Fence], deadline: Deadline) -> Outcome {
    match wait_all(fences, deadline) {
        Ok(WaitOutcome::AllSignalled) => Ok(()),
        Ok(WaitOutcome::TimedOut(index)) => Err(Failure::new(
            ResultCode::ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT,
            format!("the fence of dependency {index} was not signalled before the execution's timeout"),
        )),
        Ok(WaitOutcome::Failed(index)) => Err(Failure::op_failed(format!(
            "the fence of dependency {index} was signalled with an error"
        ))),
        Err(error) => Err(Failure::op_failed(format!(
            "a dependency cannot be waited for: {error}"
        ))),
    }
}
