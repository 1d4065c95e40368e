//! Executions: their arguments, their states and their results.

mod arguments;
mod job;
mod results;
mod start;

use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use nnhal_client::runtime::{self, Direction, Finished, RunBurst, RunEvent, RuntimeResult};
use nnhal_client::{Deadline, ExecuteOptions, OutputShape};
use nnhal_hal::Operand;
use nnhal_os::time::{Clock, MonotonicClock};

pub(crate) use self::arguments::NewArgument;
use self::arguments::{Argument, Arguments, Checks};
use self::job::Job;
pub(crate) use self::results::too_small;
use self::results::{DurationKind, Results, fenced_results, not_ended};
use crate::burst::Burst;
use crate::compilation::Compilation;
use crate::extension::Attributes;
use crate::ffi::caught;
use crate::result::{Failure, Outcome};

/// The longest that a loop may take, in nanoseconds.
pub(crate) const MAXIMUM_LOOP_TIMEOUT: u64 = 15_000_000_000;

/// How long a loop may take that no limit was set for, in nanoseconds.
pub(crate) const DEFAULT_LOOP_TIMEOUT: u64 = 2_000_000_000;

/// What is behind an `ANeuralNetworksExecution`.
#[derive(Debug)]
pub(crate) struct Execution {
    compilation: Arc<Compilation>,
    finished: runtime::Compilation,
    state: Mutex<State>,
    /// Whether a call computes, which holds the state until its end.
    is_computing: AtomicBool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Of the last run that has ended; of no meaning before.
    results: Results,
    inputs: Vec<Option<Argument>>,
    outputs: Vec<Option<Argument>>,
    settings: Settings,
    attributes: Attributes,
    /// All of them, from the first start on; not here while a thread or a driver behind fences computes.
    arguments: Option<Arguments>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    is_measured: bool,
    is_reusable: bool,
    is_padded: bool,
    timeout: Option<Duration>,
    loop_timeout: Option<Duration>,
}

/// How far an execution is.
#[derive(Clone, Debug)]
enum Phase {
    Preparation,
    /// A call or a thread of this process runs it.
    Computation,
    /// It goes on behind fences in its driver.
    Fenced(RunEvent),
    Completed,
}

impl Execution {
    pub(crate) fn new(compilation: Arc<Compilation>) -> Outcome<Execution> {
        let finished = compilation.finished()?;
        let state = State {
            phase: Phase::Preparation,
            results: Results::failed(not_ended()),
            inputs: finished.inputs().iter().map(|_| None).collect(),
            outputs: finished.outputs().iter().map(|_| None).collect(),
            settings: Settings::default(),
            attributes: Attributes::default(),
            arguments: None,
        };
        Ok(Execution {
            compilation,
            finished,
            state: Mutex::new(state),
            is_computing: AtomicBool::new(false),
        })
    }

    /// Sets an argument, which may come with a type.
    pub(crate) fn set(
        &self,
        direction: Direction,
        index: i32,
        declared: Option<&Operand>,
        argument: NewArgument,
    ) -> Outcome {
        let mut state = self.preparing()?;
        let state = &mut *state;
        let checks = Checks {
            compilation: &self.finished,
            direction,
            // No model has so many arguments.
            index: usize::try_from(index).unwrap_or(usize::MAX),
            may_be_padded: state.settings.is_padded,
        };
        let place = match direction {
            Direction::Input => state.inputs.get_mut(checks.index),
            Direction::Output => state.outputs.get_mut(checks.index),
        };
        if place.as_ref().is_some_and(|place| place.is_some()) {
            return Err(Failure::bad_state(format!("{direction} {index} is set already")));
        }
        let argument = checks.argument(argument, declared)?;
        if let Some(place) = place {
            *place = Some(argument);
        }
        Ok(())
    }

    pub(crate) fn set_measure_timing(&self, is_measured: bool) -> Outcome {
        let mut state = self.preparing()?;
        self.compilation.expect_one_device("measuring")?;
        state.settings.is_measured = is_measured;
        Ok(())
    }

    /// 0 is no limit.
    pub(crate) fn set_timeout(&self, nanoseconds: u64) -> Outcome {
        let mut state = self.preparing()?;
        self.compilation.expect_one_device("a time limit")?;
        state.settings.timeout = (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds));
        Ok(())
    }

    pub(crate) fn add_attribute(&self, extension: &OsStr, within: u16) -> Outcome {
        let mut state = self.preparing()?;
        self.compilation.expect_one_device("an attribute")?;
        state.attributes.add(extension, within)
    }

    pub(crate) fn set_loop_timeout(&self, nanoseconds: u64) -> Outcome {
        let mut state = self.preparing()?;
        let timeout = Duration::from_nanos(nanoseconds.min(MAXIMUM_LOOP_TIMEOUT));
        state.settings.loop_timeout = Some(timeout);
        Ok(())
    }

    pub(crate) fn set_reusable(&self, is_reusable: bool) -> Outcome {
        self.preparing()?.settings.is_reusable = is_reusable;
        Ok(())
    }

    pub(crate) fn enable_padding(&self, is_padded: bool) -> Outcome {
        let mut state = self.preparing()?;
        if state.inputs.iter().chain(&state.outputs).any(Option::is_some) {
            return Err(Failure::bad_state(
                "padding is enabled before the first input or output is set",
            ));
        }
        state.settings.is_padded = is_padded;
        Ok(())
    }

    /// Computes it and waits for the end.
    pub(crate) fn compute(&self) -> Outcome {
        let state = self.lock()?;
        let deadline = state.deadline_from_now();
        self.compute_as(state, deadline, |arguments, options, results| {
            *results = arguments.run(options, |inputs, outputs, options| {
                self.finished.execute(inputs, outputs, options)
            });
        })
    }

    fn compute_as(
        &self,
        mut state: MutexGuard<'_, State>,
        deadline: Deadline,
        run: impl FnOnce(&mut Arguments, &ExecuteOptions, &mut Results),
    ) -> Outcome {
        let options = state.begin(None, deadline)?;
        self.is_computing.store(true, Ordering::Release);
        let State {
            arguments, results, ..
        } = &mut *state;
        match arguments {
            Some(arguments) => run(arguments, &options, results),
            None => *results = Results::failed(lost()),
        }
        self.is_computing.store(false, Ordering::Release);
        state.complete()
    }

    /// Computes it by a burst and waits for the end.
    pub(crate) fn compute_by_burst(&self, burst: &Burst) -> Outcome {
        if !Arc::ptr_eq(&burst.compilation, &self.compilation) {
            return Err(Failure::bad_data(
                "the burst belongs to another compilation than the execution",
            ));
        }
        let mut run = match burst.run.try_lock() {
            Ok(run) => run,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::bad_state("another execution uses the burst"));
            }
        };
        let state = self.lock()?;
        let deadline = state.deadline_from_now();
        let comes_again = state.comes_again();
        self.compute_as(state, deadline, |arguments, options, results| {
            arguments.run_by_burst((&mut run, comes_again), options, results);
        })
    }

    /// Whether it may be freed.
    pub(crate) fn expect_idle(&self) -> Outcome {
        let mut state = self.lock()?;
        state.harvest();
        match state.phase {
            Phase::Computation | Phase::Fenced(_) => Err(Failure::bad_state(
                "the execution is computing and is not freed; wait for its event first",
            )),
            Phase::Preparation | Phase::Completed => Ok(()),
        }
    }

    /// Waits for a run that goes on behind fences, which may be an earlier one than the present.
    pub(crate) fn await_fenced(&self, event: &RunEvent) -> Outcome {
        let results = fenced_results(event);
        // A call that computes has done that.
        if let Ok(mut state) = self.lock() {
            state.harvest();
        }
        results.outcome
    }

    pub(crate) fn duration(&self, code: i32) -> Outcome<u64> {
        let kind = DurationKind::of_code(code)?;
        let mut state = self.lock()?;
        state.harvest();
        let results = state.results().ok_or_else(not_ended)?;
        results.duration(kind, state.settings.is_measured)
    }

    /// The shape of an output, and whether its buffer was large enough.
    pub(crate) fn output_shape(&self, index: i32) -> Outcome<OutputShape> {
        let mut state = self.lock()?;
        state.harvest();
        let results = state.results().ok_or_else(not_ended)?;
        results.output_shape(index, self.finished.outputs().len())
    }

    /// Starts it, to be ended by [`Execution::end`].
    fn begin(&self, duration: Option<Duration>) -> Outcome<Job> {
        let mut state = self.lock()?;
        let deadline = state.deadline_from_now();
        let options = state.begin(duration, deadline)?;
        Ok(Job {
            arguments: state.arguments.take().ok_or_else(lost)?,
            options,
        })
    }

    /// Keeps the results of a run, and its arguments for the next.
    fn end(&self, results: Results, job: Job) -> Outcome {
        let mut state = self.wait_for_state();
        state.arguments = Some(job.arguments);
        state.results = results;
        state.complete()
    }

    fn preparing(&self) -> Outcome<MutexGuard<'_, State>> {
        let state = self.lock()?;
        match state.phase {
            Phase::Preparation => Ok(state),
            _ => Err(Failure::bad_state(
                "the computation of the execution has started, after which nothing of it can be set",
            )),
        }
    }

    /// The state, unless a call computes.
    fn lock(&self) -> Outcome<MutexGuard<'_, State>> {
        loop {
            match self.state.try_lock() {
                Ok(state) => return Ok(state),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if self.is_computing.load(Ordering::Acquire) => {
                    return Err(Failure::bad_state("the execution is computing"));
                }
                // Who holds it is about to let go or to compute.
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    fn wait_for_state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Checks that the execution can start, and starts it. `duration` is a limit from when its dependencies
    /// are done.
    fn begin(&mut self, duration: Option<Duration>, deadline: Deadline) -> Outcome<ExecuteOptions> {
        self.harvest();
        match &self.phase {
            Phase::Preparation => self.arguments = Some(self.collect_arguments()?),
            Phase::Completed if self.settings.is_reusable => {}
            Phase::Completed => {
                return Err(Failure::bad_state(
                    "the execution was computed already and is not reusable; see ANeuralNetworksExecution_setReusable",
                ));
            }
            Phase::Computation | Phase::Fenced(_) => {
                return Err(Failure::bad_state("the execution is computing"));
            }
        }
        self.phase = Phase::Computation;
        let options = self.settings.options().deadline(deadline);
        Ok(match duration {
            Some(duration) => options.duration_after_fences(duration),
            None => options,
        })
    }

    /// When an execution that starts now has taken too long.
    #[inline]
    fn deadline_from_now(&self) -> Deadline {
        match self.settings.timeout {
            Some(timeout) => Deadline::after(MonotonicClock.now(), timeout),
            None => Deadline::NONE,
        }
    }

    /// Whether a burst is worth registering it with: it has ended well and may be computed again. What has a
    /// limit for loops goes by no ring.
    #[inline]
    fn comes_again(&self) -> bool {
        let has_ended_well = self.results().is_some_and(|results| results.outcome.is_ok());
        self.settings.is_reusable && self.settings.loop_timeout.is_none() && has_ended_well
    }

    /// All arguments, which must have been set.
    fn collect_arguments(&mut self) -> Outcome<Arguments> {
        let lists = [
            (&self.inputs, Direction::Input),
            (&self.outputs, Direction::Output),
        ];
        for (list, direction) in lists {
            if let Some(index) = list.iter().position(Option::is_none) {
                return Err(Failure::bad_data(format!("{direction} {index} is not set")));
            }
        }
        let all = |list: &mut Vec<Option<Argument>>| std::mem::take(list).into_iter().flatten().collect();
        Ok(Arguments::new(all(&mut self.inputs), all(&mut self.outputs)))
    }

    /// The first output of which some dimension is not known.
    fn open_output(&self) -> Option<usize> {
        let is_open = |output: &Argument| !output.is_fully_specified;
        match &self.arguments {
            Some(arguments) => arguments.outputs.iter().position(is_open),
            None => {
                let mut outputs = self.outputs.iter();
                outputs.position(|output| output.as_ref().is_some_and(is_open))
            }
        }
    }

    /// Takes the results of an execution behind fences that has ended meanwhile.
    fn harvest(&mut self) {
        if let Phase::Fenced(event) = &self.phase
            && event.is_finished()
        {
            self.results = fenced_results(event);
            self.phase = Phase::Completed;
        }
    }

    /// Ends a run, whose results are there.
    fn complete(&mut self) -> Outcome {
        self.phase = Phase::Completed;
        self.results.outcome.clone()
    }

    fn results(&self) -> Option<&Results> {
        matches!(self.phase, Phase::Completed).then_some(&self.results)
    }
}

impl Settings {
    fn options(&self) -> ExecuteOptions {
        let mut options = ExecuteOptions::new();
        if self.is_measured {
            options = options.measure_timing();
        }
        if let Some(timeout) = self.loop_timeout {
            options = options.loop_timeout(timeout);
        }
        options
    }
}

fn lost() -> Failure {
    Failure::op_failed("the arguments of the execution were lost")
}

impl Arguments {
    /// Runs it by a burst. One that `comes_again` is registered and costs little more than the computing from
    /// then on. `results` are those of a run before, and then of this one, whether it ended well or not.
    #[inline]
    fn run_by_burst(
        &mut self,
        (burst, comes_again): (&mut RunBurst, bool),
        options: &ExecuteOptions,
        results: &mut Results,
    ) {
        match caught(|| Ok(self.fire((burst, comes_again), options, &mut results.finished))) {
            Ok(Some(Ok(()))) => (results.outcome, results.fenced) = (Ok(()), None),
            Ok(Some(Err(error))) => *results = Results::of(Err(error)),
            Ok(None) => {
                *results = self.run(options, |inputs, outputs, options| {
                    burst.execute(inputs, outputs, options)
                });
            }
            Err(failure) => *results = Results::failed(failure),
        }
    }

    /// Runs it as it is registered; `None` if it is not, or the burst cannot run it so.
    #[inline]
    fn fire(
        &mut self,
        (burst, comes_again): (&mut RunBurst, bool),
        options: &ExecuteOptions,
        finished: &mut Finished,
    ) -> Option<RuntimeResult<()>> {
        let registered = match self.registered.take() {
            Some(registered) => registered,
            None if comes_again => self.register(burst)?,
            None => return None,
        };
        let result = burst.fire(&registered, self, options, finished);
        if result.is_some() {
            self.registered = Some(registered);
        }
        result
    }
}
