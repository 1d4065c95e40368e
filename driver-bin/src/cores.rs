//! How many threads compute, over all workers of a user, so that together they are no more than the user's
//! share of the processors.
//!
//! Every worker notes in its row of the user's table ([`crate::usage`]) how many of its threads compute now.
//! It takes processors for helper threads only as long as all workers of the user together then have no more
//! threads than the user has processors. The threads that run executions are counted but never refused. Users
//! who have clients have the processors in equal parts, however many clients each has. What is not counted:
//! executions that have not come to a large operation yet, devices that do not ask, threads that look for the
//! next request of a burst, and whatever else runs on the machine.
//!
//! A worker that has been taken over can keep others of its user from having helpers, and have them take more
//! than there are processors for. Both change how fast they are and nothing else, as threads that it started
//! would.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nnhal_os::cores::{Cores, ThreadPermit};

use crate::processors::processors;
use crate::settings::UserLimits;
use crate::usage::{Quotas, Resource, Usage};

/// The processors of a worker.
#[derive(Debug)]
pub(crate) struct WorkerCores {
    /// That the process may use.
    processors: usize,
    /// What one execution may use of them.
    most: AtomicUsize,
    usage: Arc<Usage>,
    quotas: Quotas,
}

impl WorkerCores {
    /// Those that this process may use, shared with the other workers of its client's user.
    pub(crate) fn new(usage: Arc<Usage>, limits: UserLimits) -> WorkerCores {
        let processors = processors();
        WorkerCores {
            processors,
            most: AtomicUsize::new(processors),
            quotas: Quotas::new(Arc::clone(&usage), limits),
            usage,
        }
    }

    /// The processors of a worker that knows of no others, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn alone() -> WorkerCores {
        WorkerCores::new(Arc::new(Usage::alone()), UserLimits::default())
    }

    /// What the worker may use beside others of its user.
    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Sets how many threads one execution may use; 0 for as many as there are processors.
    pub(crate) fn set_most(&self, most: u32) {
        let most = match most {
            0 => self.processors,
            most => most as usize,
        };
        self.most.store(most.min(self.processors), Ordering::Relaxed);
    }

    /// How many processors the user's threads may compute on.
    fn share(&self) -> usize {
        self.processors.min(self.usage.processors())
    }

    /// How many threads compute, of all workers of the user.
    fn busy(&self) -> usize {
        usize::try_from(self.usage.sum(Resource::RunningThreads)).unwrap_or(usize::MAX)
    }
}

impl Cores for WorkerCores {
    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    fn enter(&self) {
        self.usage.add(Resource::RunningThreads, 1);
    }

    fn leave(&self) {
        self.usage.give_back(Resource::RunningThreads, 1);
    }

    fn take(&self, wanted: usize) -> usize {
        let share = self.share();
        let count = wanted.min(share.saturating_sub(self.busy()));
        if count == 0 {
            return 0;
        }
        // No more than there are processors.
        let taken = self
            .usage
            .take(Resource::RunningThreads, count as u32, share as u64);
        taken.map_or(0, |()| count)
    }

    fn give_back(&self, count: usize) {
        self.usage.give_back(Resource::RunningThreads, count as u32);
    }

    fn permit_helper(&self) -> Option<ThreadPermit> {
        let permit = self.quotas.helper_thread()?;
        Some(Box::new(permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{THREADS_OF_WORKER, UsageTables};

    /// Of a machine with so many processors, where a user may have the threads of four workers.
    fn tables(processors: u32) -> UsageTables {
        UsageTables::of_machine(processors, 4 * THREADS_OF_WORKER)
    }

    /// A further worker of this user on a machine with so many processors, and its row.
    fn worker(tables: &mut UsageTables, uid: u32, processors: usize) -> (u32, WorkerCores) {
        let (row, fd) = tables.enter(uid).unwrap().unwrap();
        let usage = Usage::open(fd.try_clone_to_owned().unwrap(), row).unwrap();
        let cores = WorkerCores {
            processors,
            most: AtomicUsize::new(processors),
            ..WorkerCores::new(Arc::new(usage), UserLimits::default())
        };
        (row, cores)
    }

    #[test]
    fn helpers_of_all_workers_of_a_user_share_the_processors() {
        let mut tables = tables(4);
        let [one, other] = [7, 7].map(|uid| worker(&mut tables, uid, 4).1);
        one.enter();
        assert_eq!(one.take(2), 2);
        other.enter();
        assert_eq!(other.take(3), 0, "all four are busy");
        one.give_back(2);
        assert_eq!(other.take(3), 2);
        assert_eq!(one.take(1), 0);
        // Whoever runs an execution is not refused.
        one.enter();
        assert_eq!(one.busy(), 5);
        other.give_back(2);
        assert_eq!(one.take(9), 1);
    }

    #[test]
    fn user_has_its_share_of_the_processors_however_many_workers_another_has() {
        let mut tables = tables(4);
        let many: Vec<_> = (0..10).map(|_| worker(&mut tables, 7, 4)).collect();
        for (_, busy) in &many {
            busy.enter();
        }
        assert_eq!(many[0].1.take(3), 0);
        let (row, other) = worker(&mut tables, 8, 4);
        other.enter();
        assert_eq!(other.take(3), 1, "of the user's two");
        other.give_back(1);
        other.leave();
        many.iter().for_each(|(_, busy)| busy.leave());
        assert_eq!(many[0].1.take(9), 2, "the other's two are kept for it");
        many[0].1.give_back(2);
        tables.leave(8, row);
        assert_eq!(many[0].1.take(9), 4);
    }

    #[test]
    fn what_a_dead_worker_had_is_free_again() {
        let mut tables = tables(2);
        let (row, dead) = worker(&mut tables, 7, 2);
        let (_, other) = worker(&mut tables, 7, 2);
        dead.enter();
        assert_eq!(dead.take(1), 1);
        other.enter();
        assert_eq!(other.take(1), 0);
        tables.leave(7, row);
        assert_eq!(other.take(1), 1);
    }

    #[test]
    fn workers_at_once_never_have_more_than_there_is() {
        let mut tables = tables(6);
        let workers: Vec<_> = (0..4).map(|_| worker(&mut tables, 7, 6).1).collect();
        std::thread::scope(|scope| {
            for cores in &workers {
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let taken = cores.take(4);
                        let own = cores.usage.own(Resource::RunningThreads);
                        // Those that are only being tried for are counted for a moment.
                        assert!(own.load(Ordering::SeqCst) as usize == taken);
                        cores.give_back(taken);
                    }
                });
            }
        });
        assert_eq!(workers[0].busy(), 0);
        assert_eq!(workers[0].take(9), 6);
    }

    #[test]
    fn helper_threads_count_among_those_of_the_user_and_leave_half_for_others() {
        let mut tables = tables(4);
        let [one, other] = [7, 7].map(|uid| worker(&mut tables, uid, 4).1);
        assert!(one.permit_helper().is_none(), "half of all threads are there");
        let (row, stranger) = worker(&mut tables, 8, 4);
        let permits: Vec<_> = std::iter::from_fn(|| stranger.permit_helper()).collect();
        assert_eq!(permits.len(), THREADS_OF_WORKER as usize);
        let call = stranger.quotas().thread().unwrap();
        drop((call, permits));
        assert!(stranger.permit_helper().is_some());
        tables.leave(8, row);
        drop(other);
    }

    #[test]
    fn most_threads_are_a_setting() {
        let cores = WorkerCores {
            processors: 4,
            ..WorkerCores::alone()
        };
        for (setting, most) in [(0, 4), (1, 1), (3, 3), (64, 4)] {
            cores.set_most(setting);
            assert_eq!(cores.most(), most);
        }
    }
}
