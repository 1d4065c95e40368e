//! Cancelling requests of a burst from other threads.

use std::sync::{Mutex, PoisonError};

use crate::scheduler::{Observer, Ticket};

/// Cancels requests of one burst by their sequence. The thread that carries them out never waits for it.
#[derive(Debug)]
pub(super) struct Canceller {
    work: Mutex<Observer>,
}

impl Canceller {
    /// Of the work under this ticket.
    pub(super) fn new(ticket: &Ticket) -> Canceller {
        Canceller {
            work: Mutex::new(ticket.observer()),
        }
    }

    /// From now on the work is under another ticket.
    pub(super) fn go_on_with(&self, ticket: &Ticket, before: &Ticket) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        ticket.take_over(before);
        *work = ticket.observer();
    }

    /// Asks the request of this sequence to end, if it has not.
    pub(super) fn cancel(&self, sequence: u32) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.cancel_run(sequence);
    }
}
