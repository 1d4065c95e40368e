//! Slots, priorities, and work that is asked to end.

use std::sync::mpsc;

use nnhal_os::time::ManualClock;

use super::work::AGEING;
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
    let (first, second) = (bench.ticket(Priority::Medium), bench.ticket(Priority::High));
    let past = Deadline::at(TimePoint::EPOCH);
    first.enter(past).unwrap();
    assert_eq!(second.enter(past), Err(Interruption::DeadlineMissed));
    first.leave();
    second.enter(past).unwrap();
    second.leave();
    assert!(!bench.scheduler.slots.are_taken());
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
fn work_that_waited_long_goes_before_high_priority_that_came_later() {
    let bench = Bench::new();
    let runner = bench.ticket(Priority::High);
    runner.enter(Deadline::NONE).unwrap();
    let medium = bench.queue("medium", Priority::Medium);
    bench.clock.advance(AGEING);
    let high = bench.queue("high", Priority::High);
    runner.leave();
    assert_eq!(bench.order(2), ["medium", "high"]);
    medium.join().unwrap();
    high.join().unwrap();
}

#[test]
fn running_work_lets_higher_priority_go_first_and_goes_on() {
    let bench = Bench::new();
    let runner = bench.ticket(Priority::Medium);
    runner.enter(Deadline::NONE).unwrap();
    runner.checkpoint(Deadline::NONE).unwrap();
    let high = bench.queue("high", Priority::High);
    runner.checkpoint(Deadline::NONE).unwrap();
    assert_eq!(bench.order(1), ["high"]);
    high.join().unwrap();
    runner.leave();
    assert!(!bench.scheduler.slots.are_taken());
}

#[test]
fn work_of_low_priority_is_no_reason_for_others_to_wait() {
    let bench = Bench::new();
    let (low, other_low) = (bench.ticket(Priority::Low), bench.ticket(Priority::Low));
    let medium = bench.ticket(Priority::Medium);
    let past = Deadline::at(TimePoint::EPOCH);
    low.enter(past).unwrap();
    assert_eq!(other_low.enter(past), Err(Interruption::DeadlineMissed));
    medium.enter(past).unwrap();
    low.checkpoint(past).unwrap();
    low.leave();
    assert_eq!(other_low.enter(past), Err(Interruption::DeadlineMissed));
    medium.leave();
    assert!(!bench.scheduler.slots.are_taken());
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
    let aged = bench.ticket(Priority::Medium);
    aged.state.immune_until.store(u64::MAX, Ordering::Relaxed);
    let high = {
        assert!(bench.scheduler.slots.take(Share::Own));
        bench.queue("high", Priority::High)
    };
    aged.checkpoint(Deadline::NONE).unwrap();
    assert!(bench.entered.1.try_recv().is_err());
    aged.state.immune_until.store(0, Ordering::Relaxed);
    aged.checkpoint(Deadline::NONE).unwrap();
    assert_eq!(bench.order(1), ["high"]);
    high.join().unwrap();
    aged.leave();
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
    assert!(!bench.scheduler.slots.are_taken());
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
    // A late wish for an earlier one is not instead of that for a later one.
    observer.cancel_run(9);
    observer.cancel_run(5);
    observer.cancel_run(u32::MAX);
    assert_eq!(outcome(8), Ok(()));
    assert_eq!(outcome(9), Err(Interruption::Cancelled));
    observer.cancel_run(8);
    assert_eq!(ticket.checkpoint(Deadline::NONE), Err(Interruption::Cancelled));
    assert_eq!(outcome(10), Ok(()));
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
    let runner = bench.ticket(Priority::Medium);
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
    assert!(!bench.scheduler.slots.are_taken());
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

#[test]
fn work_of_low_priority_yields_its_processor_at_checkpoints() {
    let scheduler = Scheduler::alone(1);
    let yields = |priority| {
        let ticket = Ticket::new(&scheduler, priority);
        ticket.enter(Deadline::NONE).unwrap();
        let started = MonotonicClock.now();
        ticket.checkpoint(Deadline::NONE).unwrap();
        let would_yield = sched::yield_in_time();
        let took = MonotonicClock.now().saturating_since(started);
        ticket.leave();
        // Unless others took the processor between the two.
        (took < sched::YIELD_PERIOD).then_some(!would_yield)
    };
    for (priority, expected) in [
        (Priority::Low, true),
        (Priority::Medium, false),
        (Priority::High, false),
    ] {
        let seen = std::iter::repeat_with(|| {
            std::thread::scope(|scope| scope.spawn(|| yields(priority)).join().unwrap())
        });
        assert_eq!(seen.take(1000).flatten().next(), Some(expected), "{priority:?}");
    }
}
