//! A queue that computes by itself: a thread that stands for hardware, and a fence for each execution.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal_device::hal::{ErrorStatus, Failure};
use nnhal_device::os::time::{Clock, MonotonicClock};
use nnhal_device::os::{SysError, eventfd};

use crate::program::Program;
use crate::value::Value;

/// A device's queue. Its thread ends when the queue is gone and what was in it has been computed.
#[derive(Debug)]
pub(crate) struct Queue(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// How long the hardware takes for an operation, beside computing it.
    latency: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Arc<Job>>,
    is_running: bool,
    is_closed: bool,
}

/// One execution's place in the queue, used again and again.
#[derive(Debug)]
pub(crate) struct Job {
    program: Arc<Program>,
    queue: Arc<Shared>,
    /// Signalled when the job is done.
    fence: OwnedFd,
    work: Mutex<Work>,
    cancelled: Condvar,
}

/// What is to be done, or what has come of it.
#[derive(Debug)]
struct Work {
    /// By operand; lent by the execution.
    values: Vec<Value>,
    is_cancelled: bool,
    /// How long the hardware was busy.
    outcome: Result<Duration, Failure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What the mutexes of this module protect is whole between any two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// A queue without a thread yet: a device may start none while it is made.
    pub(crate) fn new(latency: Duration) -> Queue {
        Queue(Arc::new(Shared {
            latency,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// Starts the thread, if that was not done before.
    pub(crate) fn start(&self) -> Result<(), Failure> {
        let mut state = lock(&self.0.state);
        if !state.is_running {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("hardware".to_owned());
            let started = thread.spawn(move || shared.compute());
            started.map_err(|error| {
                Failure::new(
                    ErrorStatus::ResourceExhaustedTransient,
                    format!("the queue has no thread: {error}"),
                )
            })?;
            state.is_running = true;
        }
        Ok(())
    }

    /// A place in the queue for an execution of the program.
    pub(crate) fn job(&self, program: &Arc<Program>) -> Result<Arc<Job>, Failure> {
        Ok(Arc::new(Job {
            program: Arc::clone(program),
            queue: Arc::clone(&self.0),
            fence: eventfd::create().map_err(|error| no_fence(&error))?,
            work: Mutex::new(Work {
                values: Vec::new(),
                is_cancelled: false,
                outcome: Ok(Duration::ZERO),
            }),
            cancelled: Condvar::new(),
        }))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// The thread's life: one job after the other.
    fn compute(&self) {
        let mut state = lock(&self.state);
        loop {
            match state.jobs.pop_front() {
                Some(job) => {
                    drop(state);
                    job.compute(self.latency);
                    state = lock(&self.state);
                }
                None if state.is_closed => return,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Job {
    /// Queues the job with these values, which it has until [`Job::collect`]. Returns its fence.
    pub(crate) fn submit(self: &Arc<Self>, values: &mut Vec<Value>) -> Result<OwnedFd, Failure> {
        // The fence of the run before has been waited for, and the driver has closed its descriptor.
        eventfd::drain(&self.fence).map_err(|error| no_fence(&error))?;
        let fence = self.fence.try_clone().map_err(|error| {
            Failure::new(
                ErrorStatus::ResourceExhaustedTransient,
                format!("the fence has no descriptor for the driver: {error}"),
            )
        })?;
        *lock(&self.work) = Work {
            values: std::mem::take(values),
            is_cancelled: false,
            outcome: Ok(Duration::ZERO),
        };
        lock(&self.queue.state).jobs.push_back(Arc::clone(self));
        self.queue.changed.notify_all();
        Ok(fence)
    }

    /// Takes the job out of the queue, or has the hardware stop before the next operation.
    pub(crate) fn cancel(self: &Arc<Self>) {
        let mut state = lock(&self.queue.state);
        let waits = state.jobs.iter().position(|job| Arc::ptr_eq(job, self));
        if waits.and_then(|at| state.jobs.remove(at)).is_some() {
            drop(state);
            lock(&self.work).outcome = Err(stopped());
            return self.signal();
        }
        drop(state);
        lock(&self.work).is_cancelled = true;
        self.cancelled.notify_all();
    }

    /// Gives the values back, and says how long the hardware was busy.
    pub(crate) fn collect(&self, values: &mut Vec<Value>) -> Result<Duration, Failure> {
        let mut work = lock(&self.work);
        *values = std::mem::take(&mut work.values);
        work.outcome.clone()
    }

    fn compute(&self, latency: Duration) {
        let started = MonotonicClock.now();
        let mut values = std::mem::take(&mut lock(&self.work).values);
        let mut steps = 0..self.program.steps.len();
        let outcome = steps.try_for_each(|index| {
            if self.is_cancelled_within(latency) {
                return Err(stopped());
            }
            self.program.compute(index, &mut values)
        });
        let mut work = lock(&self.work);
        work.values = values;
        work.outcome = outcome.map(|()| MonotonicClock.now().saturating_since(started));
        drop(work);
        self.signal();
    }

    fn signal(&self) {
        // It was drained before: there is room for one.
        let _ = eventfd::add(&self.fence, 1);
    }

    /// Lets the time pass that the hardware takes, unless it is told to stop.
    fn is_cancelled_within(&self, latency: Duration) -> bool {
        let work = lock(&self.work);
        let goes_on = |work: &mut Work| !work.is_cancelled;
        let (work, _) = self
            .cancelled
            .wait_timeout_while(work, latency, goes_on)
            .unwrap_or_else(PoisonError::into_inner);
        work.is_cancelled
    }
}

fn stopped() -> Failure {
    Failure::general("the hardware was told to stop")
}

fn no_fence(error: &SysError) -> Failure {
    Failure::new(
        ErrorStatus::ResourceExhaustedTransient,
        format!("the execution has no fence: {error}"),
    )
}
