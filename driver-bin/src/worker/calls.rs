//! The calls that have not been answered yet.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::diag::trace::SpanKind;
use nnhal_device::Interruption;
use nnhal_hal::{ErrorStatus, Failure, Priority};
use nnhal_os::eventfd;
use nnhal_os::time::{Clock, MonotonicClock};

use super::pool::Pool;
use crate::scheduler::Observer;
use crate::trace;

/// Something that a client can ask to end early.
pub(crate) trait Cancel: std::fmt::Debug + Send + Sync {
    /// Asks it to end. It may have ended already.
    fn cancel(&self);
}

impl Cancel for Observer {
    fn cancel(&self) {
        Observer::cancel(self);
    }
}

/// A call that has not been answered yet.
#[derive(Debug, Default)]
struct Entry {
    is_cancelled: bool,
    /// What is being done for it now.
    work: Option<Arc<dyn Cancel>>,
}

/// Calls in progress, by id.
#[derive(Debug)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, Entry>>,
    limit: usize,
    /// Whether somebody wants to know when there are none left.
    is_draining: AtomicBool,
    /// Wakes the main thread.
    wake: OwnedFd,
}

/// A call in progress, until dropped.
#[derive(Debug)]
pub(crate) struct OpenCall {
    calls: Arc<Calls>,
    id: u64,
}

impl Calls {
    pub(crate) fn new(limit: u32, wake: OwnedFd) -> Calls {
        Calls {
            open: Mutex::default(),
            limit: limit as usize,
            is_draining: AtomicBool::new(false),
            wake,
        }
    }

    /// Begins a call that other threads will answer.
    pub(crate) fn open(self: &Arc<Self>, id: u64) -> Result<OpenCall, Failure> {
        let mut open = self.lock();
        if open.len() >= self.limit {
            return Err(Failure::new(
                ErrorStatus::ResourceExhaustedTransient,
                format!(
                    "{} calls are in progress, as many as one client may have (the driver's setting limits.calls)",
                    open.len()
                ),
            ));
        }
        if open.contains_key(&id) {
            return Err(Failure::invalid_argument(format!(
                "a call with id {id} is in progress already"
            )));
        }
        open.insert(id, Entry::default());
        Ok(OpenCall {
            calls: Arc::clone(self),
            id,
        })
    }

    /// Asks the work of a call to end. Whether there is such a call.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let work = match self.lock().get_mut(&id) {
            Some(entry) => {
                entry.is_cancelled = true;
                entry.work.clone()
            }
            None => return false,
        };
        // Without the lock: the end of the work may be the end of the call.
        if let Some(work) = work {
            work.cancel();
        }
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Has the main thread woken when the last call ends.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        // The map is whole between any two statements of this module.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCall {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Says how what is done now for the call can be ended.
    ///
    /// # Errors
    ///
    /// [`Interruption::Cancelled`] if the client has asked for the end already.
    pub(crate) fn works_as(&self, work: impl Cancel + 'static) -> Result<(), Interruption> {
        match self.calls.lock().get_mut(&self.id) {
            Some(entry) if !entry.is_cancelled => {
                entry.work = Some(Arc::new(work));
                Ok(())
            }
            _ => Err(Interruption::Cancelled),
        }
    }

    /// Has a thread of the pool run the rest of the call; gives the call back if there is none.
    pub(crate) fn run_on(
        self,
        pool: &Pool,
        priority: Priority,
        work: impl FnOnce(&OpenCall) + Send + 'static,
    ) -> Result<(), OpenCall> {
        let shared = Arc::new(Mutex::new(Some(self)));
        let kept = Arc::clone(&shared);
        let take =
            |slot: &Mutex<Option<OpenCall>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let seen = trace::tracer().map(|tracer| (tracer, MonotonicClock.now()));
        let submitted = pool.submit(priority, move || {
            if let Some(call) = take(&shared) {
                if let Some((tracer, seen)) = seen {
                    tracer.record_wait(seen, SpanKind::ThreadWait);
                }
                work(&call);
            }
        });
        if submitted {
            return Ok(());
        }
        // The work has been dropped without having run, so the call is still there.
        take(&kept).map_or(Ok(()), Err)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = self.calls.lock();
        let entry = open.remove(&self.id);
        let is_last = open.is_empty();
        drop(open);
        drop(entry);
        if is_last && self.calls.is_draining.load(Ordering::SeqCst) {
            eventfd::wake(&self.calls.wake);
        }
    }
}

/// What is said to a call that no thread can be had for.
pub(crate) fn no_thread() -> Failure {
    Failure::new(
        ErrorStatus::ResourceExhaustedTransient,
        "the driver cannot start a thread for the call",
    )
}

#[cfg(test)]
mod tests {
    use nnhal_os::time::Deadline;

    use super::*;
    use crate::scheduler::{Scheduler, Ticket};

    fn calls() -> Arc<Calls> {
        Arc::new(Calls::new(2, eventfd::create().unwrap()))
    }

    #[test]
    fn ids_are_unique_among_open_calls_and_their_number_is_bounded() {
        let calls = calls();
        let first = calls.open(1).unwrap();
        assert!(calls.open(1).is_err());
        let _second = calls.open(2).unwrap();
        assert!(calls.open(3).is_err());
        drop(first);
        calls.open(1).unwrap();
    }

    #[test]
    fn refused_duplicate_leaves_the_first_call_open() {
        let calls = calls();
        let first = calls.open(1).unwrap();
        drop(calls.open(1));
        assert!(!calls.is_empty());
        drop(first);
        assert!(calls.is_empty());
    }

    #[test]
    fn call_that_was_cancelled_before_its_work_begins_does_not_begin_it() {
        let calls = calls();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        let call = calls.open(1).unwrap();
        assert!(calls.cancel(1));
        assert_eq!(call.works_as(ticket.observer()), Err(Interruption::Cancelled));
        assert_eq!(ticket.checkpoint(Deadline::NONE), Ok(()));
    }

    #[test]
    fn cancel_reaches_the_work_of_the_call() {
        let calls = calls();
        let ticket = Ticket::new(&Scheduler::alone(1), Priority::Medium);
        let call = calls.open(1).unwrap();
        assert!(!calls.cancel(2));
        call.works_as(ticket.observer()).unwrap();
        assert_eq!(ticket.checkpoint(Deadline::NONE), Ok(()));
        assert!(calls.cancel(1));
        assert_eq!(ticket.checkpoint(Deadline::NONE), Err(Interruption::Cancelled));
    }

    #[test]
    fn end_of_the_last_call_wakes_whoever_drains() {
        let calls = calls();
        let (first, second) = (calls.open(1).unwrap(), calls.open(2).unwrap());
        calls.drain();
        drop(first);
        assert_eq!(eventfd::drain(&calls.wake).unwrap(), 0);
        drop(second);
        assert_eq!(eventfd::drain(&calls.wake).unwrap(), 1);
    }
}
