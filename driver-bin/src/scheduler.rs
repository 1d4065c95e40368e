//! Who runs now: a bounded number of slots, three priorities, and the way from one to the other.
//!
//! Contract: at most as many pieces of work run at once as there are slots. A piece of work holds a
//! [`Ticket`]; it takes a slot with [`Scheduler::enter`] and gives it back with [`Scheduler::leave`]. Work
//! that waits is let in by priority, then by age; work that runs lets work of higher priority go first at its
//! next checkpoint, keeping its thread and its memory, and goes on later. Work that has waited counts as one
//! priority higher for each [`AGEING`]; once let in because of that, it may keep its slot for at least
//! [`QUANTUM`], so that low priority makes progress however much else there is. Work that ends may stay in
//! its slot for its next piece ([`Ticket::stay`]) as long as nobody is seen waiting.
//!
//! While nobody waits, entering, leaving and checkpoints are a few atomic operations: no lock, no clock, no
//! system call.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;

use nnhal_device::{Interruption, Work};
use nnhal_hal::{OperationType, Priority};
use nnhal_os::cores::Cores;
use nnhal_os::time::{Clock, Deadline, MonotonicClock, TimePoint};
use nnhal_os::{SysError, eventfd};

use crate::cores::WorkerCores;
use crate::trace;
use nnhal::diag::trace::SpanKind;

/// How long waiting raises work by one priority.
pub(crate) const AGEING: Duration = Duration::from_millis(100);

/// How long work that was let in because of its age keeps its slot.
pub(crate) const QUANTUM: Duration = Duration::from_millis(2);

/// The slots of a worker.
#[derive(Debug)]
pub(crate) struct Scheduler {
    slots: u32,
    running: AtomicU32,
    /// 0 if nobody waits, else one more than the highest priority that waits. Changed under the lock.
    waiting: AtomicU8,
    queue: Mutex<Vec<Waiter>>,
    clock: Arc<dyn Clock>,
    /// For the threads of what runs.
    cores: Arc<WorkerCores>,
}

#[derive(Debug)]
struct Waiter {
    ticket: Arc<TicketState>,
    thread: Thread,
    since: TimePoint,
}

impl Waiter {
    /// The priority that the work counts as by now.
    fn rank(&self, now: TimePoint) -> u64 {
        let age = now.saturating_since(self.since).as_nanos() / AGEING.as_nanos();
        let raised = u64::from(self.ticket.rank) + u64::try_from(age).unwrap_or(u64::MAX);
        raised.min(u64::from(rank(Priority::High)))
    }
}

fn rank(priority: Priority) -> u8 {
    priority as u8
}

/// What one piece of work has to do with the scheduler. One for each execution context, used again and again.
#[derive(Debug)]
pub(crate) struct Ticket {
    scheduler: Arc<Scheduler>,
    state: Arc<TicketState>,
}

#[derive(Debug)]
struct TicketState {
    rank: u8,
    /// Which piece of work runs, or is about to.
    run: AtomicU64,
    /// Which one was cancelled; 0 for none.
    cancelled: AtomicU64,
    /// Becomes readable when the work is cancelled; there once somebody waits for it. Set under the lock.
    cancellation: OnceLock<OwnedFd>,
    /// Set by whoever lets this one in; the waiting thread clears it.
    is_granted: AtomicBool,
    /// Nanoseconds; work of higher priority waits until then.
    immune_until: AtomicU64,
    /// Odd while the work runs; moves on at every checkpoint by two.
    progress: AtomicU64,
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
            slots: slots.max(1),
            running: AtomicU32::new(0),
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
        !self.has_waiting() && self.running.load(Ordering::SeqCst) < self.slots
    }

    /// The processors for the threads of what runs.
    pub(crate) fn cores(&self) -> &WorkerCores {
        &self.cores
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiter>> {
        // The queue is whole between any two statements of this module.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_slot(&self) -> bool {
        let more = |running| (running < self.slots).then_some(running + 1);
        self.running
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            .is_ok()
    }

    /// Says whether anybody waited for it.
    fn give_slot(&self) -> bool {
        self.running.fetch_sub(1, Ordering::SeqCst);
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
        while !queue.is_empty() && self.take_slot() {
            let now = self.clock.now();
            let best = (0..queue.len()).max_by_key(|&at| {
                queue
                    .get(at)
                    .map(|waiter| (waiter.rank(now), std::cmp::Reverse(waiter.since)))
            });
            let Some(best) = best else { break };
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
            let interruption = if ticket.is_cancelled() {
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
            self.give_slot();
        }
        Err(interruption)
    }
}

/// The number of work that has none, as that of calls.
const UNNUMBERED: u64 = 1;

/// Numbers are told from [`UNNUMBERED`] and from none.
fn run_of(number: u32) -> u64 {
    1 << u32::BITS | u64::from(number)
}

impl TicketState {
    /// Whether what runs was cancelled. What was cancelled before or after it does not count.
    #[inline]
    fn is_cancelled(&self) -> bool {
        let cancelled = self.cancelled.load(Ordering::Acquire);
        cancelled != 0 && cancelled == self.run.load(Ordering::Relaxed)
    }

    /// Shows progress. Only the thread that works under the ticket does, so this is no locked instruction,
    /// which would be felt in every operation.
    #[inline]
    fn advance(&self, by: u64) {
        let count = self.progress.load(Ordering::Relaxed);
        self.progress.store(count.wrapping_add(by), Ordering::Relaxed);
    }
}

impl Ticket {
    /// A ticket for work of this priority.
    #[must_use]
    pub(crate) fn new(scheduler: &Arc<Scheduler>, priority: Priority) -> Ticket {
        Ticket {
            scheduler: Arc::clone(scheduler),
            state: Arc::new(TicketState {
                rank: rank(priority),
                run: AtomicU64::new(UNNUMBERED),
                cancelled: AtomicU64::new(0),
                cancellation: OnceLock::new(),
                is_granted: AtomicBool::new(false),
                immune_until: AtomicU64::new(0),
                progress: AtomicU64::new(0),
            }),
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
        if self.state.is_cancelled() {
            return Err(Interruption::Cancelled);
        }
        let is_open = self.scheduler.waiting.load(Ordering::SeqCst) == 0 && self.scheduler.take_slot();
        if is_open {
            self.state.immune_until.store(0, Ordering::Relaxed);
        } else {
            self.scheduler
                .wait(self.scheduler.lock(), &self.state, deadline)?;
        }
        // Taking the slot is what others look for: see `Observer::is_slot_taken`.
        self.state.advance(1);
        Ok(())
    }

    /// Goes on with the next piece of work in the slot that it has, as if it had left and entered; `false`,
    /// and nothing done, if somebody is seen waiting or the work was cancelled. This looks without a fence,
    /// so who stays must leave before long all the same.
    #[inline]
    pub(crate) fn stay(&self) -> bool {
        let may_stay = self.scheduler.waiting.load(Ordering::Relaxed) == 0 && !self.state.is_cancelled();
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
        self.scheduler.give_slot()
    }

    /// A descriptor that is readable once the work is cancelled, for who waits outside of the scheduler. It
    /// may be readable after [`Ticket::reset`] too: [`Ticket::is_cancelled`] counts.
    ///
    /// # Errors
    ///
    /// There is none yet, and none can be made.
    pub(crate) fn cancellation(&self) -> Result<&OwnedFd, SysError> {
        if let Some(event) = self.state.cancellation.get() {
            return Ok(event);
        }
        let event = eventfd::create()?;
        // Whoever cancels without seeing the event had the lock before.
        let _queue = self.scheduler.lock();
        Ok(self.state.cancellation.get_or_init(|| event))
    }

    /// Whether the work was asked to end.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.state.is_cancelled()
    }

    /// Forgets an earlier cancellation, before the ticket is used for other work.
    pub(crate) fn reset(&self) {
        self.state.cancelled.store(0, Ordering::Release);
    }

    /// The next piece of work has this number, by which [`Observer::cancel_run`] names it. Numbers count up,
    /// and begin again behind the last.
    #[inline]
    pub(crate) fn begin(&self, number: u32) {
        self.state.run.store(run_of(number), Ordering::Relaxed);
        if self.state.cancelled.load(Ordering::Relaxed) != 0 {
            self.forget_earlier(number);
        }
    }

    /// Forgets what was cancelled after its end, before its number comes again.
    #[cold]
    fn forget_earlier(&self, number: u32) {
        let cancelled = self.state.cancelled.load(Ordering::Relaxed);
        // The upper half only says that there is a number.
        let is_earlier = (cancelled as u32).wrapping_sub(number).cast_signed() < 0;
        if is_earlier {
            // Unless it was another just now.
            let _ = self
                .state
                .cancelled
                .compare_exchange(cancelled, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Goes on with the work of another ticket, of which some may have been cancelled.
    pub(crate) fn take_over(&self, other: &Ticket) {
        let cancelled = other.state.cancelled.load(Ordering::Relaxed);
        self.state.cancelled.store(cancelled, Ordering::Release);
    }

    /// See [`nnhal_device::Control::checkpoint`].
    #[inline]
    pub(crate) fn checkpoint(&self, deadline: Deadline) -> Result<(), Interruption> {
        self.state.advance(2);
        if self.state.is_cancelled() {
            return Err(Interruption::Cancelled);
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
        self.scheduler.running.fetch_sub(1, Ordering::SeqCst);
        let outcome = self.scheduler.wait(queue, &self.state, deadline);
        self.state.progress.fetch_add(1, Ordering::Relaxed);
        if outcome.is_err() {
            // Whoever runs with a ticket gives its slot back when it ends; it needs one to give.
            self.scheduler.running.fetch_add(1, Ordering::SeqCst);
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
        self.cancel_as(UNNUMBERED);
    }

    /// The same for the piece of work of this number alone, whether it has begun or not. Nothing happens if
    /// it has ended.
    pub(crate) fn cancel_run(&self, number: u32) {
        self.cancel_as(run_of(number));
    }

    fn cancel_as(&self, run: u64) {
        let Some(state) = self.state.upgrade() else { return };
        state.cancelled.store(run, Ordering::Release);
        let queue = self.scheduler.lock();
        for waiter in queue.iter().filter(|waiter| Arc::ptr_eq(&waiter.ticket, &state)) {
            waiter.thread.unpark();
        }
        if let Some(event) = state.cancellation.get() {
            // A full counter wakes as well.
            let _ = eventfd::add(event, 1);
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
        self.scheduler.running.load(Ordering::SeqCst) > 0
    }

    /// Whether there can be any more work: false once the ticket is gone.
    #[must_use]
    pub(crate) fn is_alive(&self) -> bool {
        self.state.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use nnhal_os::time::ManualClock;

    use super::*;

    struct Bench {
        clock: Arc<ManualClock>,
        scheduler: Arc<Scheduler>,
        entered: (mpsc::Sender<&'static str>, mpsc::Receiver<&'static str>),
    }

    impl Bench {
        fn new() -> Bench {
            let clock = Arc::new(ManualClock::new(TimePoint::from_nanos(1_000_000_000)));
            Bench {
                scheduler: Scheduler::with_clock(1, Arc::new(WorkerCores::alone()), clock.clone()),
                clock,
                entered: mpsc::channel(),
            }
        }

        fn ticket(&self, priority: Priority) -> Ticket {
            Ticket::new(&self.scheduler, priority)
        }

        /// Starts a thread that enters, says so, and leaves; returns once it waits.
        fn queue(&self, name: &'static str, priority: Priority) -> std::thread::JoinHandle<()> {
            let ticket = self.ticket(priority);
            let said = self.entered.0.clone();
            let before = self.scheduler.lock().len();
            let thread = std::thread::spawn(move || {
                ticket.enter(Deadline::NONE).unwrap();
                said.send(name).unwrap();
                ticket.leave();
            });
            while self.scheduler.lock().len() == before {
                std::thread::yield_now();
            }
            self.clock.advance(Duration::from_nanos(1));
            thread
        }

        fn order(&self, count: usize) -> Vec<&'static str> {
            (0..count)
                .map(|_| self.entered.1.recv_timeout(Duration::from_secs(20)).unwrap())
                .collect()
        }
    }

    #[test]
    fn slots_are_bounded_and_given_back() {
        let bench = Bench::new();
        let (first, second) = (bench.ticket(Priority::Low), bench.ticket(Priority::High));
        let past = Deadline::at(TimePoint::EPOCH);
        first.enter(past).unwrap();
        assert_eq!(second.enter(past), Err(Interruption::DeadlineMissed));
        first.leave();
        second.enter(past).unwrap();
        second.leave();
        assert_eq!(bench.scheduler.running.load(Ordering::SeqCst), 0);
        assert_eq!(bench.scheduler.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn waiting_work_is_let_in_by_priority_and_then_by_age() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::High);
        runner.enter(Deadline::NONE).unwrap();
        let threads = [
            bench.queue("low", Priority::Low),
            bench.queue("medium 1", Priority::Medium),
            bench.queue("medium 2", Priority::Medium),
            bench.queue("high", Priority::High),
        ];
        runner.leave();
        assert_eq!(bench.order(4), ["high", "medium 1", "medium 2", "low"]);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn low_priority_that_waited_long_goes_before_high_priority_that_came_later() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::High);
        runner.enter(Deadline::NONE).unwrap();
        let low = bench.queue("low", Priority::Low);
        bench.clock.advance(AGEING * 2);
        let high = bench.queue("high", Priority::High);
        runner.leave();
        assert_eq!(bench.order(2), ["low", "high"]);
        low.join().unwrap();
        high.join().unwrap();
    }

    #[test]
    fn running_work_lets_higher_priority_go_first_and_goes_on() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::Low);
        runner.enter(Deadline::NONE).unwrap();
        runner.checkpoint(Deadline::NONE).unwrap();
        let high = bench.queue("high", Priority::High);
        runner.checkpoint(Deadline::NONE).unwrap();
        assert_eq!(bench.order(1), ["high"]);
        high.join().unwrap();
        runner.leave();
        assert_eq!(bench.scheduler.running.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn running_work_does_not_yield_to_its_own_priority() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::Medium);
        runner.enter(Deadline::NONE).unwrap();
        let other = bench.queue("other", Priority::Medium);
        runner.checkpoint(Deadline::NONE).unwrap();
        assert!(bench.entered.1.try_recv().is_err());
        runner.leave();
        other.join().unwrap();
    }

    #[test]
    fn work_stays_in_its_slot_unless_somebody_waits_or_it_was_cancelled() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::High);
        runner.enter(Deadline::NONE).unwrap();
        let before = runner.observer().progress().unwrap();
        assert!(runner.stay());
        // Pieces of work that follow each other are not one that hangs.
        let after = runner.observer().progress().unwrap();
        assert!(after.is_running && after.count > before.count);
        let other = bench.queue("other", Priority::Low);
        assert!(!runner.stay());
        runner.leave();
        assert_eq!(bench.order(1), ["other"]);
        other.join().unwrap();
        runner.enter(Deadline::NONE).unwrap();
        runner.observer().cancel();
        assert!(!runner.stay());
        runner.leave();
    }

    #[test]
    fn aged_work_keeps_its_slot_for_a_quantum() {
        let bench = Bench::new();
        let low = bench.ticket(Priority::Low);
        low.state.immune_until.store(u64::MAX, Ordering::Relaxed);
        let high = {
            assert!(bench.scheduler.take_slot());
            bench.queue("high", Priority::High)
        };
        low.checkpoint(Deadline::NONE).unwrap();
        assert!(bench.entered.1.try_recv().is_err());
        low.state.immune_until.store(0, Ordering::Relaxed);
        low.checkpoint(Deadline::NONE).unwrap();
        assert_eq!(bench.order(1), ["high"]);
        high.join().unwrap();
        low.leave();
    }

    #[test]
    fn cancelled_work_ends_whether_it_waits_or_runs() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::Medium);
        runner.enter(Deadline::NONE).unwrap();
        let waiting = bench.ticket(Priority::Medium);
        let observer = waiting.observer();
        let thread = std::thread::spawn(move || waiting.enter(Deadline::NONE));
        while bench.scheduler.lock().is_empty() {
            std::thread::yield_now();
        }
        observer.cancel();
        assert_eq!(thread.join().unwrap(), Err(Interruption::Cancelled));
        runner.observer().cancel();
        assert_eq!(runner.checkpoint(Deadline::NONE), Err(Interruption::Cancelled));
        runner.leave();
        runner.reset();
        runner.enter(Deadline::NONE).unwrap();
        runner.leave();
        assert_eq!(bench.scheduler.running.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn only_the_piece_of_work_that_was_meant_is_cancelled() {
        let bench = Bench::new();
        let ticket = bench.ticket(Priority::Medium);
        let observer = ticket.observer();
        ticket.enter(Deadline::NONE).unwrap();
        let outcome = |number| {
            ticket.begin(number);
            ticket.checkpoint(Deadline::NONE)
        };
        assert_eq!(outcome(u32::MAX), Ok(()));
        // One that has not begun, and by whose number others are not taken for it.
        observer.cancel_run(2);
        assert_eq!(ticket.checkpoint(Deadline::NONE), Ok(()));
        assert_eq!(outcome(0), Ok(()));
        assert_eq!(outcome(1), Ok(()));
        assert_eq!(outcome(2), Err(Interruption::Cancelled));
        assert_eq!(outcome(3), Ok(()));
        // One that has ended: forgotten before its number comes again.
        observer.cancel_run(2);
        assert_eq!(outcome(4), Ok(()));
        assert_eq!(outcome(2), Ok(()));
        // One that runs, on another ticket too.
        observer.cancel_run(2);
        assert_eq!(ticket.checkpoint(Deadline::NONE), Err(Interruption::Cancelled));
        let next = bench.ticket(Priority::Medium);
        next.begin(2);
        next.take_over(&ticket);
        assert_eq!(next.checkpoint(Deadline::NONE), Err(Interruption::Cancelled));
        ticket.leave();
    }

    #[test]
    fn suspended_work_ends_at_its_deadline() {
        let bench = Bench::new();
        let runner = bench.ticket(Priority::Low);
        runner.enter(Deadline::NONE).unwrap();
        let (release, released) = mpsc::channel::<()>();
        let high = bench.ticket(Priority::High);
        let thread = std::thread::spawn(move || {
            high.enter(Deadline::NONE).unwrap();
            released.recv_timeout(Duration::from_secs(20)).unwrap();
            high.leave();
        });
        while bench.scheduler.lock().is_empty() {
            std::thread::yield_now();
        }
        // The bench's clock stands still, past this deadline.
        let past = Deadline::at(TimePoint::EPOCH);
        assert_eq!(runner.checkpoint(past), Err(Interruption::DeadlineMissed));
        runner.leave();
        release.send(()).unwrap();
        thread.join().unwrap();
        assert_eq!(bench.scheduler.running.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn progress_moves_on_while_work_runs() {
        let bench = Bench::new();
        let ticket = bench.ticket(Priority::Low);
        let observer = ticket.observer();
        let progress = || observer.progress().unwrap();
        assert_eq!((progress().count, progress().is_running), (0, false));
        ticket.enter(Deadline::NONE).unwrap();
        let before = progress();
        assert!(before.is_running);
        ticket.checkpoint(Deadline::NONE).unwrap();
        assert!(progress().is_running && progress().count > before.count);
        ticket.leave();
        assert!(!progress().is_running);
        drop(ticket);
        assert_eq!(observer.progress(), None);
    }
}
