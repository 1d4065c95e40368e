//! Threads that run calls, made when they are needed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nnhal::diag::tags;
use nnhal_hal::Priority;

use crate::usage::{Permit, Quotas};

type Work = Box<dyn FnOnce() + Send>;

/// Stack of a thread. An execution nests as deeply as its model's subgraphs, which validation bounds.
const STACK: usize = 2 * 1024 * 1024;

/// A bounded number of threads. Work that finds none free waits, the highest priority and then the oldest
/// first.
///
/// Work that is suspended for the sake of other work keeps its thread, so the bound is well above the number
/// of slots of the scheduler.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Tells a free thread of work.
    work: Condvar,
    limit: usize,
    quotas: Quotas,
}

#[derive(Default)]
struct State {
    waiting: Vec<(Priority, Work)>,
    threads: usize,
    free: usize,
    /// Of the threads, but for the first, which every worker has.
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
        Pool {
            shared: Arc::new(Shared {
                state: Mutex::default(),
                work: Condvar::new(),
                limit: limit.max(1) as usize,
                quotas,
            }),
        }
    }

    /// Has a thread do the work. Returns false if there is no thread and none can be made.
    pub(crate) fn submit(&self, priority: Priority, work: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.shared.lock();
        if state.waiting.len() >= state.free
            && state.threads < self.shared.limit
            && self.shared.may_have_one_more(&mut state)
        {
            let shared = Arc::clone(&self.shared);
            let spawned = std::thread::Builder::new()
                .name("executor".to_owned())
                .stack_size(STACK)
                .spawn(move || shared.work());
            match spawned {
                Ok(_) => {
                    state.threads += 1;
                    state.free += 1;
                }
                Err(error) if state.threads == 0 => {
                    tracing::error!(target: tags::DRIVER, %error, "no thread can be made");
                    return false;
                }
                // The work waits for a thread that there is.
                Err(error) => tracing::warn!(target: tags::DRIVER, %error, "no further thread can be made"),
            }
        }
        state.waiting.push((priority, Box::new(work)));
        drop(state);
        self.shared.work.notify_one();
        true
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

    /// Whether there may be one more thread. Without one the work waits for a thread that there is.
    fn may_have_one_more(&self, state: &mut State) -> bool {
        if state.threads <= state.permits.len() {
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
        assert!(pool.submit(Priority::Low, move || {
            started.send(()).unwrap();
            released.recv_timeout(LONG).unwrap();
        }));
        has_started.recv_timeout(LONG).unwrap();
        let order = [
            ("low", Priority::Low),
            ("high 1", Priority::High),
            ("medium", Priority::Medium),
            ("high 2", Priority::High),
        ];
        for (name, priority) in order {
            let said = said.clone();
            pool.submit(priority, move || said.send(name).unwrap());
        }
        release.send(()).unwrap();
        let heard: Vec<_> = (0..4).map(|_| heard.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(heard, ["high 1", "high 2", "medium", "low"]);
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
        assert_eq!(pool.shared.lock().threads, 4);
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
