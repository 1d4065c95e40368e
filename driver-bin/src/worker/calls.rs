//! The calls that have not been answered yet.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nnhal::sys::eventfd;
use nnhal::wire::Failure;

use crate::scheduler::Observer;

/// Calls in progress, by id.
#[derive(Debug)]
pub(crate) struct Calls {
    open: Mutex<HashMap<u64, Option<Observer>>>,
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
                nnhal::hal::ErrorStatus::ResourceExhaustedTransient,
                format!(
                    "{} calls are in progress, as many as one client may have",
                    open.len()
                ),
            ));
        }
        if open.insert(id, None).is_some() {
            return Err(Failure::invalid_argument(format!(
                "a call with id {id} is in progress already"
            )));
        }
        Ok(OpenCall {
            calls: Arc::clone(self),
            id,
        })
    }

    /// Asks the work of a call to end, if it has begun. Whether there is such a call.
    pub(crate) fn cancel(&self, id: u64) -> bool {
        let observer = self.lock().get(&id).cloned();
        if let Some(observer) = observer.as_ref().and_then(Option::as_ref) {
            observer.cancel();
        }
        observer.is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Has the main thread woken when the last call ends.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Option<Observer>>> {
        // The map is whole between any two statements of this module.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenCall {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Says how the call's work can be ended.
    pub(crate) fn works_as(&self, observer: Observer) {
        if let Some(entry) = self.calls.lock().get_mut(&self.id) {
            *entry = Some(observer);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut open = self.calls.lock();
        open.remove(&self.id);
        let is_last = open.is_empty();
        drop(open);
        if is_last && self.calls.is_draining.load(Ordering::SeqCst) {
            // A full counter wakes as well.
            let _ = eventfd::add(&self.calls.wake, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal::hal::Priority;

    use super::*;
    use crate::device::Interruption;
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
    fn cancel_reaches_the_work_of_the_call() {
        let calls = calls();
        let ticket = Ticket::new(&Scheduler::new(1), Priority::Medium);
        let call = calls.open(1).unwrap();
        assert!(calls.cancel(1) && !calls.cancel(2));
        call.works_as(ticket.observer());
        assert_eq!(ticket.checkpoint(), Ok(()));
        assert!(calls.cancel(1));
        assert_eq!(ticket.checkpoint(), Err(Interruption::Cancelled));
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
