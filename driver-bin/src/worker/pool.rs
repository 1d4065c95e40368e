//! Threads that run calls, made when they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nnhal::diag::tags;
use nnhal_hal::Priority;

use super::nice;
use crate::usage::{Permit, Quotas};

type Work = Box<dyn FnOnce() + Send>;

/// Stack of a thread. An execution nests as deeply as its model's subgraphs, which validation bounds.
const STACK: usize = 2 * 1024 * 1024;

/// A bounded number of threads. Work that finds none free waits, the highest priority and then the oldest
/// first.
///
/// Work that is suspended for the sake of other work keeps its thread, so the bound is well above the number
/// of slots of the scheduler.
///
/// Work of low priority has threads of its own, as many at most, to which the system prefers others. Where
/// there can be none, other threads do it.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    normal: Arc<Shared>,
    nice: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Tells a free thread of work.
    work: Condvar,
    limit: usize,
    quotas: Quotas,
    /// Whether the system prefers others to the threads.
    is_nice: bool,
}

#[derive(Default)]
struct State {
    waiting: Vec<(Priority, Work)>,
    threads: usize,
    free: usize,
    /// Of the threads, but for the first that is not nice, which every worker has.
    permits: Vec<Permit>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("waiting", &self.waiting.len())
            .field("threads", &self.threads)
            .field("free", &self.free)
            .finish()
    }
}

impl Pool {
    /// At most so many threads, and no more than the user's workers may have together.
    pub(crate) fn new(limit: u32, quotas: Quotas) -> Pool {
        let shared = |is_nice| {
            Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                limit: limit.max(1) as usize,
                quotas: quotas.clone(),
                is_nice,
            })
        };
        Pool {
            normal: shared(false),
            nice: shared(true),
        }
    }

    /// Has a thread do the work. Returns false if there is no thread and none can be made.
    pub(crate) fn submit(&self, priority: Priority, work: impl FnOnce() + Send + 'static) -> bool {
        let work: Work = Box::new(work);
        let refused = match priority {
            Priority::Low => self.nice.submit(priority, work),
            Priority::Medium | Priority::High => Err(work),
        };
        let Err(work) = refused else { return true };
        let is_done = self.normal.submit(priority, work).is_ok();
        if !is_done {
            tracing::error!(target: tags::DRIVER, "no thread can be made");
        }
        is_done
    }
}

impl State {
    fn next(&mut self) -> Option<Work> {
        let highest = self.waiting.iter().map(|(priority, _)| *priority).max()?;
        let at = self
            .waiting
            .iter()
            .position(|(priority, _)| *priority == highest)?;
        Some(self.waiting.remove(at).1)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Work runs outside the lock; the state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do the work; gives it back if there is no thread and none can be made.
    fn submit(self: &Arc<Shared>, priority: Priority, work: Work) -> Result<(), Work> {
        let mut state = self.lock();
        if state.waiting.len() >= state.free
            && state.threads < self.limit
            && self.may_have_one_more(&mut state)
        {
            let shared = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("executor".to_owned())
                .stack_size(STACK)
                .spawn(move || shared.work());
            match spawned {
                Ok(_) => {
                    state.threads += 1;
                    state.free += 1;
                }
                // The work waits for a thread that there is.
                Err(error) => tracing::warn!(target: tags::DRIVER, %error, "no further thread can be made"),
            }
        }
        if state.threads == 0 {
            return Err(work);
        }
        state.waiting.push((priority, work));
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// Whether there may be one more thread. Without one the work waits for a thread that there is.
    fn may_have_one_more(&self, state: &mut State) -> bool {
        let without_permit = usize::from(!self.is_nice);
        if state.threads < state.permits.len() + without_permit {
            return true;
        }
        match self.quotas.thread() {
            Ok(permit) => {
                state.permits.push(permit);
                true
            }
            Err(failure) => {
                tracing::debug!(target: tags::DRIVER, %failure, "no further thread");
                false
            }
        }
    }

    /// A thread's life. It ends with the process.
    fn work(&self) {
        if self.is_nice {
            nice::become_nice();
        }
        let mut state = self.lock();
        loop {
            match state.next() {
                Some(work) => {
                    state.free -= 1;
                    drop(state);
                    // A worker's panic hook ends the process; elsewhere the thread must survive.
                    let _ = catch_unwind(AssertUnwindSafe(work));
                    state = self.lock();
                    state.free += 1;
                }
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn work_waits_by_priority_when_no_thread_is_free() {
        let pool = Pool::new(1, Quotas::alone());
        let (release, released) = mpsc::channel::<()>();
        let (started, has_started) = mpsc::channel();
        let (said, heard) = mpsc::channel();
        assert!(pool.submit(Priority::Medium, move || {
            started.send(()).unwrap();
            released.recv_timeout(LONG).unwrap();
        }));
        has_started.recv_timeout(LONG).unwrap();
        let order = [
            ("medium", Priority::Medium),
            ("high 1", Priority::High),
            ("high 2", Priority::High),
        ];
        for (name, priority) in order {
            let said = said.clone();
            pool.submit(priority, move || said.send(name).unwrap());
        }
        release.send(()).unwrap();
        let heard: Vec<_> = (0..3).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(heard, ["high 1", "high 2", "medium"]);
    }

    #[test]
    fn threads_are_made_as_long_as_none_is_free() {
        let pool = Pool::new(4, Quotas::alone());
        let barrier = Arc::new(std::sync::Barrier::new(5));
        for _ in 0..4 {
            let barrier = Arc::clone(&barrier);
            pool.submit(Priority::Medium, move || {
                barrier.wait();
            });
        }
        barrier.wait();
        assert_eq!(pool.normal.lock().threads, 4);
    }

    #[test]
    fn low_work_has_threads_of_its_own_that_others_do_not_wait_for() {
        let pool = Pool::new(1, Quotas::alone());
        let (release, released) = mpsc::channel::<()>();
        let (said, heard) = mpsc::channel();
        pool.submit(Priority::Low, move || {
            released.recv_timeout(LONG).unwrap();
        });
        let also = said.clone();
        pool.submit(Priority::Low, move || also.send("low").unwrap());
        pool.submit(Priority::Medium, move || said.send("medium").unwrap());
        assert_eq!(heard.recv_timeout(LONG).unwrap(), "medium");
        release.send(()).unwrap();
        assert_eq!(heard.recv_timeout(LONG).unwrap(), "low");
    }

    #[test]
    fn work_that_panics_does_not_take_its_thread_along() {
        let pool = Pool::new(1, Quotas::alone());
        let (said, heard) = mpsc::channel();
        pool.submit(Priority::Medium, || panic!("on purpose"));
        pool.submit(Priority::Medium, move || said.send(()).unwrap());
        heard.recv_timeout(LONG).unwrap();
    }
}
