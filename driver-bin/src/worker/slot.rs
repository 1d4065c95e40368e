//! The slot of a context, which may be kept from one run to the next.

use std::time::Duration;

use nnhal::diag::trace::SpanKind;
use nnhal_hal::Failure;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::scheduler::Ticket;
use crate::trace;

/// A ticket, and the slot that it has: while work runs, and after it if that kept the slot for the next.
#[derive(Debug)]
pub(crate) struct Slot {
    ticket: Ticket,
    is_held: bool,
    /// Whether it was asked for since [`Slot::rest`], and so somebody has looked for others.
    is_used: bool,
    /// How many more times it is given back at once, since others have waited for one.
    returns: u32,
}

/// How often a slot is given back at once after others were seen waiting for one. Those wait a microsecond
/// longer, which is how long it is kept without work, and are then woken, some 10 us in all. Spread over so
/// many requests that is less than the 8 ns that each of them saves.
const RETURNS_WHEN_WANTED: u32 = 4096;

/// How long to wait for a slot: longer than short tasks keep one.
const SOON: Duration = Duration::from_millis(1);

impl Slot {
    /// A ticket without a slot.
    pub(crate) fn new(ticket: Ticket) -> Slot {
        Slot {
            ticket,
            is_held: false,
            is_used: false,
            returns: 0,
        }
    }

    pub(crate) fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Takes a slot, or goes on with the one that was kept if nobody waits for it.
    #[inline]
    pub(crate) fn take(&mut self, deadline: Deadline) -> Result<(), Box<Failure>> {
        self.is_used = true;
        if self.is_held && self.ticket.stay() {
            return Ok(());
        }
        self.enter(deadline)
    }

    /// Takes a slot if that needs no long wait; says whether there is one now: the one that was kept, a free
    /// one, or one that others leave within [`SOON`].
    #[inline]
    pub(crate) fn take_soon(&mut self) -> bool {
        if !self.is_held || self.ticket.others_wait() {
            self.enter_soon();
        }
        self.is_held
    }

    #[inline(never)]
    fn enter_soon(&mut self) {
        self.leave();
        self.is_held = self.ticket.enter_if_free() || {
            let deadline = Deadline::after(MonotonicClock.now(), SOON);
            self.ticket.enter(deadline).is_ok()
        };
    }

    #[inline(never)]
    fn enter(&mut self, deadline: Deadline) -> Result<(), Box<Failure>> {
        self.leave();
        let waits = trace::span(SpanKind::QueueWait, 0, 0);
        self.ticket.enter(deadline).map_err(Failure::from)?;
        drop(waits);
        self.is_held = true;
        Ok(())
    }

    /// Gives the slot back, if there is one.
    pub(crate) fn leave(&mut self) {
        if self.is_held {
            self.is_held = false;
            if self.ticket.leave() {
                self.returns = RETURNS_WHEN_WANTED;
            }
        }
    }

    /// Leaves the slot, if there is one, to other work that the same thread does next, and how it is kept.
    #[inline]
    pub(crate) fn pass(&mut self, to: &mut Slot) {
        if self.is_held && !to.is_held {
            self.is_held = false;
            self.ticket.pass_slot(&to.ticket);
            to.is_held = true;
        }
        to.returns = to.returns.max(std::mem::take(&mut self.returns));
    }

    /// To be called where the next run may come at once, and [`Slot::leave`] is called if it does not: goes
    /// on holding the slot, as taking it is a locked instruction on that run's way. Not where others have
    /// waited for one lately, nor where it was not asked for since the last time, and so nobody has looked
    /// for others: requests that fail early may come again and again.
    #[inline]
    pub(crate) fn rest(&mut self) {
        let is_used = std::mem::take(&mut self.is_used);
        if self.returns > 0 {
            self.returns -= 1;
        } else if is_used {
            return;
        }
        self.leave();
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::Priority;

    use super::*;
    use crate::scheduler::Scheduler;

    #[test]
    fn a_slot_is_kept_for_the_next_run_unless_others_have_waited_for_one() {
        let scheduler = Scheduler::alone(1);
        let ticket = || Ticket::new(&scheduler, Priority::Medium);
        let mut slot = Slot::new(ticket());
        slot.take(Deadline::NONE).unwrap();
        slot.rest();
        assert!(!scheduler.has_free_slot());
        let other = ticket();
        let other = std::thread::spawn(move || {
            other.enter(Deadline::NONE).unwrap();
            other.leave();
        });
        while !scheduler.has_waiting() {
            std::thread::yield_now();
        }
        slot.leave();
        other.join().unwrap();
        for _ in 0..RETURNS_WHEN_WANTED {
            slot.take(Deadline::NONE).unwrap();
            slot.rest();
            assert!(scheduler.has_free_slot());
        }
        slot.take(Deadline::NONE).unwrap();
        slot.rest();
        assert!(!scheduler.has_free_slot());
        // Nobody has asked for it since.
        slot.rest();
        assert!(scheduler.has_free_slot());
    }
}
