//! Notices work that hangs.
//!
//! Work that runs makes progress at its checkpoints. The main thread looks in from time to time, but only
//! while there is work: when nothing has run between two looks it sleeps without an end, and whoever starts
//! work then wakes it. Executions of bursts start without a system call, so they look at a flag first
//! ([`Watchdog::work_starts`]).

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nnhal_os::eventfd;
use nnhal_os::time::TimePoint;

use crate::scheduler::Observer;

/// How often the main thread looks in, as a part of the limit.
const LOOKS_PER_LIMIT: u32 = 4;

/// Watches all work of a worker.
#[derive(Debug)]
pub(crate) struct Watchdog {
    watched: Mutex<Vec<Watched>>,
    /// Nanoseconds; 0 for no limit.
    limit: AtomicU64,
    /// Whether the main thread will look in by itself.
    is_awake: AtomicBool,
    /// Wakes the main thread.
    wake: OwnedFd,
}

#[derive(Debug)]
struct Watched {
    observer: Observer,
    /// The progress that was seen last.
    seen: u64,
    /// When it was first seen.
    since: TimePoint,
}

/// What a look has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing has run since the last look: no need to look again until work starts.
    Idle,
    /// Look again after this time.
    Again(Duration),
    /// Work has made no progress for this long.
    Hung(Duration),
}

impl Watchdog {
    pub(crate) fn new(limit: Option<Duration>, wake: OwnedFd) -> Watchdog {
        let watchdog = Watchdog {
            watched: Mutex::default(),
            limit: AtomicU64::new(0),
            is_awake: AtomicBool::new(false),
            wake,
        };
        watchdog.set_limit(limit);
        watchdog
    }

    pub(crate) fn set_limit(&self, limit: Option<Duration>) {
        let nanos = limit.map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.limit.store(nanos, Ordering::Relaxed);
    }

    /// Watches one more piece of work, until its ticket is gone.
    pub(crate) fn watch(&self, observer: Observer) {
        self.lock().push(Watched {
            observer,
            seen: 0,
            since: TimePoint::EPOCH,
        });
    }

    /// To be called when work has started. Wakes the main thread if it sleeps without an end.
    #[inline]
    pub(crate) fn work_starts(&self) {
        // The work's slot was taken before: either this sees the flag down, or the main thread, which takes
        // the flag down before it looks for the last time, sees the slot.
        if !self.is_awake.load(Ordering::SeqCst) && self.limit.load(Ordering::Relaxed) != 0 {
            self.is_awake.store(true, Ordering::SeqCst);
            eventfd::wake(&self.wake);
        }
    }

    /// Looks at all work.
    pub(crate) fn look(&self, now: TimePoint) -> Look {
        let limit = Duration::from_nanos(self.limit.load(Ordering::Relaxed));
        if limit.is_zero() {
            return Look::Idle;
        }
        let look = self.look_within(limit, now);
        if look != Look::Idle {
            return look;
        }
        self.is_awake.store(false, Ordering::SeqCst);
        let look = match self.look_within(limit, now) {
            Look::Idle if self.is_slot_taken() => Look::Again(limit / LOOKS_PER_LIMIT),
            look => look,
        };
        if look != Look::Idle {
            self.is_awake.store(true, Ordering::SeqCst);
        }
        look
    }

    /// Whether there is work in a slot, though its progress may not be seen yet.
    fn is_slot_taken(&self) -> bool {
        let watched = self.lock();
        watched.iter().any(|watched| watched.observer.is_slot_taken())
    }

    /// Work that is between two runs counts as running: only where nothing has run since the last look does
    /// it say [`Look::Idle`]. Otherwise every run of a busy burst that follows such a look would have to wake
    /// the main thread.
    fn look_within(&self, limit: Duration, now: TimePoint) -> Look {
        let mut watched = self.lock();
        watched.retain(|watched| watched.observer.is_alive());
        let mut has_run = false;
        for watched in watched.iter_mut() {
            let Some(progress) = watched.observer.progress() else {
                continue;
            };
            if progress.count != watched.seen {
                has_run = true;
                (watched.seen, watched.since) = (progress.count, now);
            } else if progress.is_running {
                has_run = true;
                let stuck = now.saturating_since(watched.since);
                if stuck >= limit {
                    return Look::Hung(stuck);
                }
            }
        }
        if has_run {
            Look::Again(limit / LOOKS_PER_LIMIT)
        } else {
            Look::Idle
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watched>> {
        // The list is whole between any two statements of this module.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::Priority;
    use nnhal_os::time::Deadline;

    use super::*;
    use crate::scheduler::{Scheduler, Ticket};

    const LIMIT: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> TimePoint {
        TimePoint::from_nanos(millis * 1_000_000)
    }

    fn watchdog() -> Watchdog {
        Watchdog::new(Some(LIMIT), eventfd::create().unwrap())
    }

    #[test]
    fn work_without_progress_is_hung_after_the_limit() {
        let watchdog = watchdog();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        watchdog.watch(ticket.observer());
        assert_eq!(watchdog.look(at(0)), Look::Idle);
        ticket.enter(Deadline::NONE).unwrap();
        assert_eq!(watchdog.look(at(10)), Look::Again(LIMIT / 4));
        ticket.checkpoint(Deadline::NONE).unwrap();
        assert_eq!(watchdog.look(at(1500)), Look::Again(LIMIT / 4));
        assert_eq!(watchdog.look(at(2400)), Look::Again(LIMIT / 4));
        assert_eq!(watchdog.look(at(2600)), Look::Hung(Duration::from_millis(1100)));
    }

    #[test]
    fn runs_that_follow_each_other_are_not_taken_for_one() {
        let watchdog = watchdog();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        watchdog.watch(ticket.observer());
        for second in 0..5 {
            ticket.enter(Deadline::NONE).unwrap();
            assert_eq!(watchdog.look(at(second * 1000)), Look::Again(LIMIT / 4));
            ticket.leave();
        }
        assert_eq!(watchdog.look(at(9000)), Look::Again(LIMIT / 4));
        assert_eq!(watchdog.look(at(9250)), Look::Idle);
    }

    #[test]
    fn work_between_two_runs_need_not_wake_the_main_thread() {
        let watchdog = watchdog();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        watchdog.watch(ticket.observer());
        let run = || {
            ticket.enter(Deadline::NONE).unwrap();
            watchdog.work_starts();
            ticket.leave();
        };
        run();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 1);
        for second in 0..5 {
            assert_eq!(watchdog.look(at(second * 1000)), Look::Again(LIMIT / 4));
            run();
            assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 0, "second {second}");
        }
    }

    #[test]
    fn main_thread_is_woken_only_when_it_sleeps() {
        let watchdog = watchdog();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        watchdog.watch(ticket.observer());
        ticket.enter(Deadline::NONE).unwrap();
        watchdog.work_starts();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 1);
        assert!(matches!(watchdog.look(at(0)), Look::Again(_)));
        watchdog.work_starts();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 0);
        ticket.leave();
        assert!(matches!(watchdog.look(at(1)), Look::Again(_)));
        assert_eq!(watchdog.look(at(2)), Look::Idle);
        watchdog.work_starts();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 1);
    }

    #[test]
    fn main_thread_stays_awake_while_there_is_work_whose_progress_is_not_seen() {
        let watchdog = watchdog();
        let scheduler = Scheduler::alone(2);
        let (watched, other) = [(); 2].map(|()| Ticket::new(&scheduler, Priority::Medium)).into();
        watchdog.watch(watched.observer());
        other.enter(Deadline::NONE).unwrap();
        assert_eq!(watchdog.look(at(0)), Look::Again(LIMIT / 4));
        watchdog.work_starts();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 0);
        other.leave();
        assert_eq!(watchdog.look(at(250)), Look::Idle);
    }

    #[test]
    fn work_whose_ticket_is_gone_is_forgotten() {
        let watchdog = watchdog();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        watchdog.watch(ticket.observer());
        drop(ticket);
        assert_eq!(watchdog.look(at(0)), Look::Idle);
        assert!(watchdog.lock().is_empty());
    }

    #[test]
    fn without_a_limit_nothing_is_looked_at() {
        let watchdog = Watchdog::new(None, eventfd::create().unwrap());
        watchdog.work_starts();
        assert_eq!(eventfd::drain(&watchdog.wake).unwrap(), 0);
        assert_eq!(watchdog.look(at(0)), Look::Idle);
    }
}
