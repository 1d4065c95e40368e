//! Who runs now: a bounded number of slots, three priorities, and the way from one to the other.
//!
//! Contract: at most as many pieces of work run at once as there are slots, those of low priority not
//! counted; with them counted, no more of low priority start. A piece of work holds a [`Ticket`]; it takes
//! a slot with [`Ticket::enter`] and gives it back with [`Ticket::leave`]. Work that waits is let in by
//! priority, then by age; work that runs lets work of higher priority go first at its next checkpoint,
//! keeping its thread and its memory, and goes on later. Work that has waited counts as one priority higher
//! for each [`work::AGEING`]; once let in because of that, it may keep its slot for at least [`QUANTUM`],
//! so that low priority makes progress however much else there is. Work that ends may stay in its slot for
//! its next piece ([`Ticket::stay`]) as long as nobody is seen waiting.
//!
//! Work of low priority takes no slot from other work, which enters at once: the system has other threads go
//! before those of low priority, in the middle of an operation, too. Since it does not always do so by
//! itself, work of low priority yields its processor at checkpoints ([`sched::yield_in_time`]): p99 of urgent
//! calls beside a long model is 0.6 ms with that, 2.1 ms without (`cargo bench --bench priorities`).
//!
//! While nobody waits, entering, leaving and checkpoints are a few atomic operations: no lock, no clock, no
//! system call. Checkpoints of low priority read the clock.

mod cancellation;
mod slots;
#[cfg(test)]
mod tests;
mod work;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use nnhal_device::{Interruption, Work};
use nnhal_hal::{OperationType, Priority};
use nnhal_os::cores::Cores;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{SysError, eventfd, sched};

use crate::cores::WorkerCores;
use crate::trace;
use nnhal::diag::trace::SpanKind;

use slots::{Share, Slots};
use work::{TicketState, Waiter, rank};

/// How long work that was let in because of its age keeps its slot.
pub(crate) const QUANTUM: Duration = Duration::from_millis(2);

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Scheduler {
    slots: Slots,
    /// 0 if nobody waits, else one more than the highest priority that waits. Changed under the lock.
    waiting: AtomicU8,
    queue: Mutex<Vec<Waiter>>,
    clock: Arc<dyn Clock>,
    /// For the threads of what runs.
    cores: Arc<WorkerCores>,
}

/// What one piece of work has to do with the scheduler. One for each execution context, used again and again.
#[derive(Debug)]
pub(crate) struct Ticket {
    scheduler: Arc<Scheduler>,
    state: Arc<TicketState>,
}

/// Looks at work from outside: whether it gets on, and a way to end it.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    scheduler: Arc<Scheduler>,
    state: Weak<TicketState>,
}

/// How far a piece of work has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Moves on while the work does; 0 before it has ever run.
    pub(crate) count: u64,
    /// Whether it has a slot.
    pub(crate) is_running: bool,
}

impl Scheduler {
    /// A scheduler with this many slots, at least one.
    #[must_use]
    pub(crate) fn new(slots: u32, cores: Arc<WorkerCores>) -> Arc<Scheduler> {
        Scheduler::with_clock(slots, cores, Arc::new(MonotonicClock))
    }

    /// The same with a clock of its own, for tests.
    #[must_use]
    pub(crate) fn with_clock(slots: u32, cores: Arc<WorkerCores>, clock: Arc<dyn Clock>) -> Arc<Scheduler> {
        Arc::new(Scheduler {
            slots: Slots::new(slots),
            waiting: AtomicU8::new(0),
            queue: Mutex::new(Vec::new()),
            clock,
            cores,
        })
    }

    /// A scheduler that knows of no other worker, for tests.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn alone(slots: u32) -> Arc<Scheduler> {
        Scheduler::new(slots, Arc::new(WorkerCores::alone()))
    }

    /// Whether any work waits for a slot, for tests.
    #[cfg(test)]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) != 0
    }

    /// Whether work that comes now gets a slot at once, for tests.
    #[cfg(test)]
    pub(crate) fn has_free_slot(&self) -> bool {
        !self.has_waiting() && self.slots.are_free_for(Share::Own)
    }

    /// The processors for the threads of what runs.
    pub(crate) fn cores(&self) -> &WorkerCores {
        &self.cores
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiter>> {
        // The queue is whole between any two statements of this module.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether anybody waited for it.
    fn give_slot(&self, share: Share) -> bool {
        self.slots.give(share);
        // Whoever enters the queue marks it before it looks for a slot: either it sees the slot given here,
        // or this sees the mark.
        let is_wanted = self.waiting.load(Ordering::SeqCst) != 0;
        if is_wanted {
            let mut queue = self.lock();
            self.let_in(&mut queue);
        }
        is_wanted
    }

    /// Lets in as many as there are slots, and writes down who still waits.
    fn let_in(&self, queue: &mut Vec<Waiter>) {
        while !queue.is_empty() {
            let now = self.clock.now();
            let best = queue
                .iter()
                .enumerate()
                .filter(|(_, waiter)| self.slots.are_free_for(waiter.ticket.share()))
                .max_by_key(|(_, waiter)| (waiter.rank(now), std::cmp::Reverse(waiter.since)));
            let Some((best, waiter)) = best else { break };
            if !self.slots.take(waiter.ticket.share()) {
                // Somebody else was first.
                continue;
            }
            let waiter = queue.remove(best);
            let is_aged = waiter.rank(now) > u64::from(waiter.ticket.rank);
            let immune_until = if is_aged {
                now.saturating_add(QUANTUM)
            } else {
                TimePoint::EPOCH
            };
            waiter
                .ticket
                .immune_until
                .store(immune_until.as_nanos(), Ordering::Relaxed);
            waiter.ticket.is_granted.store(true, Ordering::Release);
            waiter.thread.unpark();
        }
        self.mark(queue);
    }

    fn mark(&self, queue: &[Waiter]) {
        let highest = queue
            .iter()
            .map(|waiter| waiter.ticket.rank + 1)
            .max()
            .unwrap_or(0);
        self.waiting.store(highest, Ordering::SeqCst);
    }

    /// Waits in the queue until let in.
    fn wait(
        &self,
        mut queue: MutexGuard<'_, Vec<Waiter>>,
        ticket: &Arc<TicketState>,
        deadline: Deadline,
    ) -> Result<(), Interruption> {
        ticket.is_granted.store(false, Ordering::Relaxed);
        let waiter = Waiter {
            ticket: Arc::clone(ticket),
            thread: std::thread::current(),
            since: self.clock.now(),
        };
        queue.push(waiter);
        self.mark(&queue);
        self.let_in(&mut queue);
        drop(queue);
        loop {
            if ticket.is_granted.load(Ordering::Acquire) {
                return Ok(());
            }
            let interruption = if ticket.cancellation.is_wanted() {
                Some(Interruption::Cancelled)
            } else {
                deadline
                    .is_past(self.clock.now())
                    .then_some(Interruption::DeadlineMissed)
            };
            if let Some(interruption) = interruption {
                return self.give_up(ticket, interruption);
            }
            match deadline.remaining(self.clock.now()) {
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Leaves the queue, and the slot if it came in the meantime.
    fn give_up(&self, ticket: &Arc<TicketState>, interruption: Interruption) -> Result<(), Interruption> {
        let mut queue = self.lock();
        queue.retain(|waiter| !Arc::ptr_eq(&waiter.ticket, ticket));
        self.mark(&queue);
        drop(queue);
        if ticket.is_granted.load(Ordering::Acquire) {
            self.give_slot(ticket.share());
        }
        Err(interruption)
    }
}

impl Ticket {
    /// A ticket for work of this priority.
    #[must_use]
    pub(crate) fn new(scheduler: &Arc<Scheduler>, priority: Priority) -> Ticket {
        Ticket {
            scheduler: Arc::clone(scheduler),
            state: Arc::new(TicketState::new(rank(priority))),
        }
    }

    /// A way to look at the work and to end it.
    #[must_use]
    pub(crate) fn observer(&self) -> Observer {
        Observer {
            scheduler: Arc::clone(&self.scheduler),
            state: Arc::downgrade(&self.state),
        }
    }

    /// Takes a slot, as soon as there is one.
    ///
    /// # Errors
    ///
    /// [`Interruption`] if the deadline passes or the work is cancelled while it waits; then it holds no
    /// slot.
    pub(crate) fn enter(&self, deadline: Deadline) -> Result<(), Interruption> {
        if self.state.cancellation.is_wanted() {
            return Err(Interruption::Cancelled);
        }
        if self.enter_if_free() {
            return Ok(());
        }
        self.scheduler
            .wait(self.scheduler.lock(), &self.state, deadline)?;
        self.state.advance(1);
        Ok(())
    }

    /// Takes a slot if there is one and nobody waits for it; says whether it has.
    #[inline]
    pub(crate) fn enter_if_free(&self) -> bool {
        let nobody_waits = self.scheduler.waiting.load(Ordering::SeqCst) == 0;
        let is_taken = nobody_waits && self.scheduler.slots.take(self.state.share());
        if is_taken {
            self.state.immune_until.store(0, Ordering::Relaxed);
            // Taking the slot is what others look for: see `Observer::is_slot_taken`.
            self.state.advance(1);
        }
        is_taken
    }

    /// Whether others are seen waiting for a slot. This looks without a fence.
    #[inline]
    pub(crate) fn others_wait(&self) -> bool {
        self.scheduler.waiting.load(Ordering::Relaxed) != 0
    }

    /// Goes on with the next piece of work in the slot that it has, as if it had left and entered; `false`,
    /// and nothing done, if somebody is seen waiting or the work was cancelled. This looks without a fence,
    /// so who stays must leave before long all the same.
    #[inline]
    pub(crate) fn stay(&self) -> bool {
        let may_stay = !self.others_wait() && !self.state.cancellation.is_wanted();
        if may_stay {
            self.state.advance(2);
        }
        may_stay
    }

    /// Gives the slot to other work of the same scheduler, which must have none. Nobody is looked for who
    /// waits: that work must [`Ticket::stay`] or leave, before long.
    #[inline]
    pub(crate) fn pass_slot(&self, to: &Ticket) {
        self.state.advance(1);
        to.state.immune_until.store(0, Ordering::Relaxed);
        to.state.advance(1);
    }

    /// Gives the slot back; says whether anybody waited for one.
    pub(crate) fn leave(&self) -> bool {
        self.state.advance(1);
        self.scheduler.give_slot(self.state.share())
    }

    /// A descriptor that is readable once the work is cancelled, for who waits outside of the scheduler. It
    /// may be readable after [`Ticket::reset`] too: [`Ticket::is_cancelled`] counts.
    ///
    /// # Errors
    ///
    /// There is none yet, and none can be made.
    pub(crate) fn cancellation(&self) -> Result<&OwnedFd, SysError> {
        if let Some(event) = self.state.cancelled.get() {
            return Ok(event);
        }
        let event = eventfd::create()?;
        // Whoever cancels without seeing the event had the lock before.
        let _queue = self.scheduler.lock();
        Ok(self.state.cancelled.get_or_init(|| event))
    }

    /// Whether the work was asked to end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.cancellation.is_wanted()
    }

    /// Forgets an earlier cancellation, before the ticket is used for other work.
    pub(crate) fn reset(&self) {
        self.state.cancellation.reset();
    }

    /// The next piece of work has this number, by which [`Observer::cancel_run`] names it. Numbers count up,
    /// and begin again behind the last.
    #[inline]
    pub(crate) fn begin(&self, number: u32) {
        self.state.cancellation.begin(number);
    }

    /// Goes on with the work of another ticket, of which some may have been cancelled.
    pub(crate) fn take_over(&self, other: &Ticket) {
        self.state.cancellation.take_over(&other.state.cancellation);
    }

    /// See [`nnhal_device::Control::checkpoint`].
    #[inline]
    pub(crate) fn checkpoint(&self, deadline: Deadline) -> Result<(), Interruption> {
        self.state.advance(2);
        if self.state.cancellation.is_wanted() {
            return Err(Interruption::Cancelled);
        }
        if self.state.rank == rank(Priority::Low) {
            sched::yield_in_time();
        }
        if self.scheduler.waiting.load(Ordering::Relaxed) > self.state.rank + 1 {
            self.let_others_go_first(deadline)?;
        }
        Ok(())
    }

    #[cold]
    fn let_others_go_first(&self, deadline: Deadline) -> Result<(), Interruption> {
        let now = self.scheduler.clock.now();
        if now.as_nanos() < self.state.immune_until.load(Ordering::Relaxed) {
            return Ok(());
        }
        let queue = self.scheduler.lock();
        if !queue.iter().any(|waiter| waiter.ticket.rank > self.state.rank) {
            return Ok(());
        }
        // While suspended the work does not count as running for the watchdog.
        self.state.progress.fetch_add(1, Ordering::Relaxed);
        self.scheduler.slots.give(self.state.share());
        let outcome = self.scheduler.wait(queue, &self.state, deadline);
        self.state.progress.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            // Whoever runs with a ticket gives its slot back when it ends; it needs one to give.
            self.scheduler.slots.take_beyond(self.state.share());
        }
        outcome
    }
}

/// What a device sees of the work.
impl Work for Ticket {
    #[inline]
    fn checkpoint(&self, deadline: Deadline) -> Result<(), Interruption> {
        Ticket::checkpoint(self, deadline)
    }

    fn cores(&self) -> &dyn Cores {
        &*self.scheduler.cores
    }

    fn is_traced(&self) -> bool {
        trace::tracer().is_some()
    }

    fn record_operation(&self, index: usize, operation: OperationType, from_to: (TimePoint, TimePoint)) {
        if let Some(tracer) = trace::tracer() {
            tracer.record_from_to(from_to, SpanKind::Operation, index as u64, operation.0.into());
        }
    }
}

impl Observer {
    /// Asks the work, which has no number, to end at its next checkpoint, or at once if it waits for a slot.
    pub(crate) fn cancel(&self) {
        let Some(state) = self.state.upgrade() else { return };
        state.cancellation.want();
        self.call(&state);
    }

    /// The same for the piece of work of this number alone, whether it has begun or not. Nothing happens if
    /// it has ended.
    pub(crate) fn cancel_run(&self, number: u32) {
        let Some(state) = self.state.upgrade() else { return };
        state.cancellation.want_run(number);
        self.call(&state);
    }

    /// Has the work look whether it is to end, wherever it waits.
    fn call(&self, state: &Arc<TicketState>) {
        let queue = self.scheduler.lock();
        for waiter in queue.iter().filter(|waiter| Arc::ptr_eq(&waiter.ticket, state)) {
            waiter.thread.unpark();
        }
        if let Some(event) = state.cancelled.get() {
            eventfd::wake(event);
        }
    }

    /// How far the work has got; `None` once the ticket is gone.
    #[must_use]
    pub(crate) fn progress(&self) -> Option<Progress> {
        let count = self.state.upgrade()?.progress.load(Ordering::SeqCst);
        Some(Progress {
            count,
            is_running: count % 2 == 1,
        })
    }

    /// Whether any work of this scheduler has a slot. If work that has taken its slot does not see what the
    /// caller has stored before this call, the caller sees the slot: all four are sequentially consistent.
    #[must_use]
    pub(crate) fn is_slot_taken(&self) -> bool {
        self.scheduler.slots.are_taken()
    }

    /// Whether there can be any more work: false once the ticket is gone.
    #[must_use]
    pub(crate) fn is_alive(&self) -> bool {
        self.state.strong_count() > 0
    }
}
