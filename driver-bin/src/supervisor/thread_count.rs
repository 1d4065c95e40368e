//! How many threads workers have, as the kernel says.
//!
//! Workers count the threads that they make ([`crate::usage`]). What devices of vendors start they do not
//! see, nor what a worker starts that was taken over. So the supervisor asks the kernel now and then. Where a
//! user's workers have more than they may, the one with the most ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nnhal::diag::tags;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};

use super::state::Supervisor;
use super::workers::Workers;

/// How often threads are counted while there are clients.
const PERIOD: Duration = Duration::from_secs(5);

/// Threads of a user that are beside those that workers count: those that are about to end.
const UNCOUNTED: u64 = 64;

/// A worker with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    pid: i32,
    uid: u32,
    threads: u64,
}

/// A worker that is to end, and how many threads its user's workers have and may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beyond {
    worker: Counted,
    sum: u64,
    may_have: u64,
}

/// Of each user who has more than it may and those that are not counted, the worker with the most.
fn beyond(workers: &[Counted], may_have: impl Fn(u32) -> u32) -> Vec<Beyond> {
    let mut by_user: HashMap<u32, Beyond> = HashMap::new();
    for &worker in workers {
        let user = by_user.entry(worker.uid).or_insert_with(|| Beyond {
            worker,
            sum: 0,
            may_have: may_have(worker.uid).into(),
        });
        user.sum = user.sum.saturating_add(worker.threads);
        if worker.threads > user.worker.threads {
            user.worker = worker;
        }
    }
    let users = by_user.into_values();
    users
        .filter(|user| user.sum > user.may_have.saturating_add(UNCOUNTED))
        .collect()
}

/// Whether somebody was told that threads cannot be counted.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The threads of a process; 0 of one that has ended, or that is not to be seen.
fn threads_of(pid: i32) -> u64 {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        // A worker is not reaped before its number is forgotten.
        if pid > 0 && !IS_TOLD.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: tags::DRIVER, %error, path, "threads that devices start are not counted");
        }
        String::new()
    });
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    threads.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

fn count(workers: &Workers) -> Vec<Counted> {
    let serving = workers.serving().filter(|(_, service)| !service.is_killed());
    serving
        .map(|(pid, service)| Counted {
            pid,
            uid: service.uid,
            threads: threads_of(pid),
        })
        .collect()
}

impl Supervisor {
    /// When threads are to be counted again, if there is anybody who has some.
    pub(super) fn next_count(&self) -> Option<Deadline> {
        let is_serving = self.workers.serving().next().is_some();
        is_serving.then(|| match self.threads_counted {
            Some(last) => Deadline::after(last, PERIOD),
            None => Deadline::after(MonotonicClock.now(), PERIOD),
        })
    }

    /// Ends workers of users who have more threads than they may, if it is time to look.
    pub(super) fn bound_threads(&mut self, now: TimePoint) {
        let last = *self.threads_counted.get_or_insert(now);
        if !Deadline::after(last, PERIOD).is_past(now) {
            return;
        }
        self.threads_counted = Some(now);
        let may_have = |uid| self.workers.may_have_threads(uid);
        for Beyond {
            worker,
            sum,
            may_have,
        } in beyond(&count(&self.workers), may_have)
        {
            let reason = format!(
                "the driver ended it: it has {} threads, and all workers of the user {sum}, which may have {may_have} \
                 (the driver's setting user_limits.threads)",
                worker.threads
            );
            tracing::warn!(target: tags::DRIVER, uid = worker.uid, pid = worker.pid, "{reason}");
            self.workers.end(worker.pid, &reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_with_the_most_threads_of_a_user_beyond_the_limit_ends() {
        let worker = |pid, uid, threads| Counted { pid, uid, threads };
        let workers = [
            worker(1, 7, 30),
            worker(2, 7, 50),
            worker(3, 7, 31),
            worker(4, 8, 110),
        ];
        assert_eq!(beyond(&workers, |_| 47), []);
        let ends = Beyond {
            worker: workers[1],
            sum: 111,
            may_have: 46,
        };
        assert_eq!(beyond(&workers, |_| 46), [ends]);
        assert_eq!(beyond(&workers, |_| 45).len(), 2);
        assert_eq!(beyond(&workers, |uid| if uid == 7 { 47 } else { 45 }).len(), 1);
        assert_eq!(beyond(&[], |_| 0), []);
    }

    #[test]
    fn kernel_says_how_many_threads_there_are() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || stopped.recv());
        assert!(threads_of(std::process::id().cast_signed()) >= 2);
        drop(stop);
        let _ = thread.join();
        assert_eq!(threads_of(-1), 0);
    }
}
