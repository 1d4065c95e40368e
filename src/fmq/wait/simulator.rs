//! A simulator of threads that wait for each other's packets by the waiting policy, on few processors.
//!
//! Clients think, send a request and wait; workers wait, work and answer. Each side has a policy of its own.
//! The simulator does what it says, with an operating system whose system calls and wake-ups take as long as
//! a scenario says, and which shares its processors as `scheduler.rs` does. `scenarios.rs` has the scenarios.

use super::rules::{Rule, Rules};
use super::scheduler::Scheduler;
use super::*;

/// Nanoseconds of a poll as it is done at first, and of one with a pause.
const FIRST_POLL: u64 = 1;
const PAUSED_POLL: u64 = 40;

/// Requests of a client that count for nothing: its policies learn.
pub(super) const LEARNING: usize = 200;

/// What threads run on.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    pub(super) processors: usize,
    /// From the call that wakes a thread until it runs on a processor that was idle, in nanoseconds.
    pub(super) wake: u64,
    /// A system call.
    pub(super) call: u64,
    /// By how much a timer is late, and by how much more as long as nothing counts.
    pub(super) timer: u64,
    pub(super) timer_at_first: u64,
}

/// A client and its worker.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) thinks: Vec<u64>,
    pub(super) works: Vec<u64>,
}

/// Who waits for whom, on what.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) system: System,
    /// Those of each of several runs, which are alike but for chance.
    pub(super) runs: Vec<Vec<Pair>>,
    /// Threads that compute all the time.
    pub(super) computers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Work,
    Ring,
    FirstPolls(u32),
    Polls(u32),
    Yield { since: u64, was_switched: bool },
    FallAsleep { until: Option<u64> },
    Sleep,
    Nothing,
}

struct Side {
    /// What it does before each packet that it sends, for so many.
    works: Vec<u64>,
    done: usize,
    peer: usize,
    is_client: bool,
    policy: WaitPolicy,
    wait: Wait,
    doing: Doing,
    /// When its sleep is over, if that is known.
    wakes_at: Option<u64>,
    /// How much of the processor's time what it does still takes.
    left: u64,
    has_packet: bool,
    rung_at: u64,
    rung_before: u64,
    slept_since: u64,
    has_rung: bool,
    sent_at: u64,
    /// What counts: round trips, processor time and system calls of waiting.
    trips: u64,
    trip_nanos: u64,
    waiting: u64,
    calls: u64,
}

impl Side {
    fn counts(&self) -> bool {
        self.done > LEARNING
    }

    fn is_asleep(&self) -> bool {
        matches!(self.doing, Doing::FallAsleep { .. } | Doing::Sleep)
    }

    fn sees_packet(&self) -> bool {
        self.has_packet && matches!(self.doing, Doing::FirstPolls(_) | Doing::Polls(_))
    }
}

struct World {
    system: System,
    rules: Rules,
    now: u64,
    sides: Vec<Side>,
    scheduler: Scheduler,
}

impl World {
    fn new(scenario: &Scenario, pairs: &[Pair], without: Option<Rule>) -> World {
        let mut world = World {
            system: scenario.system,
            rules: Rules { without },
            now: 1_000_000_000,
            sides: Vec::new(),
            scheduler: Scheduler::new(scenario.system.processors),
        };
        for pair in pairs {
            let at = world.sides.len();
            world.add(pair.thinks.clone(), at + 1, true);
            world.add(pair.works.clone(), at, false);
        }
        for _ in 0..scenario.computers {
            let at = world.sides.len();
            world.add(vec![u64::MAX / 2], at, false);
            let side = &mut world.sides[at];
            (side.doing, side.left) = (Doing::Work, u64::MAX / 2);
            world.scheduler.wake(at, world.now);
        }
        world
    }

    fn add(&mut self, works: Vec<u64>, peer: usize, is_client: bool) {
        let max_window = Duration::from_micros(if is_client { 100 } else { 50 });
        // Sides are processes of their own, whose permits to poll do not concern the others.
        let processors = if self.system.processors > 1 { u32::MAX } else { 1 };
        let rates = PollRates::of(FIRST_POLL, PAUSED_POLL, processors);
        let settings = WaitSettings::Adaptive { max_window };
        let mut policy = WaitPolicy::with_rules(settings, rates, self.rules);
        let wait = policy.begin();
        let side = Side {
            left: if is_client { works[0] } else { 0 },
            works,
            done: 0,
            peer,
            is_client,
            policy,
            wait,
            doing: if is_client { Doing::Work } else { Doing::Sleep },
            wakes_at: None,
            has_packet: false,
            rung_at: 0,
            rung_before: 0,
            slept_since: self.now,
            has_rung: false,
            sent_at: 0,
            trips: 0,
            trip_nanos: 0,
            waiting: 0,
            calls: 0,
        };
        self.scheduler.add();
        if is_client {
            self.scheduler.wake(self.sides.len(), self.now);
        }
        self.sides.push(side);
    }

    fn run(&mut self) {
        while self
            .sides
            .iter()
            .any(|side| side.is_client && side.done < side.works.len())
        {
            self.scheduler.fill_processors(self.now);
            let next = (0..self.sides.len()).map(|at| self.next_event(at)).min().unwrap();
            let passed = next - self.now;
            self.now = next;
            for (at, side) in self.sides.iter_mut().enumerate() {
                if self.scheduler.is_on(at) {
                    side.left -= passed;
                    if side.counts() && side.doing != Doing::Work {
                        side.waiting += passed;
                    }
                }
            }
            self.scheduler.pass(passed);
            (0..self.sides.len()).for_each(|at| self.happens(at));
        }
    }

    fn next_event(&self, at: usize) -> u64 {
        let side = &self.sides[at];
        let next = if self.scheduler.is_off(at) {
            side.wakes_at.unwrap_or(u64::MAX)
        } else if !self.scheduler.is_on(at) {
            u64::MAX
        } else if side.sees_packet() {
            self.now
        } else {
            (self.now + side.left).min(self.scheduler.turn_ends(at))
        };
        next.max(self.now)
    }

    fn happens(&mut self, at: usize) {
        let side = &mut self.sides[at];
        if self.scheduler.is_off(at) {
            if side.wakes_at.is_some_and(|wakes_at| wakes_at <= self.now) {
                side.wakes_at = None;
                self.scheduler.wake(at, self.now);
            }
        } else if self.scheduler.is_on(at) {
            if side.left == 0 || side.sees_packet() {
                self.ends(at);
            } else if self.scheduler.turn_ends(at) <= self.now {
                self.scheduler.give_way(at);
            }
        }
    }

    /// What a side did is over.
    fn ends(&mut self, at: usize) {
        let now = self.now;
        let has_packet = self.sides[at].has_packet;
        match self.sides[at].doing {
            Doing::Work => self.send(at),
            Doing::Ring => self.begin(at),
            Doing::FirstPolls(polls) | Doing::Polls(polls) => {
                let side = &mut self.sides[at];
                let is_first = matches!(side.doing, Doing::FirstPolls(_));
                let each = if is_first { FIRST_POLL } else { PAUSED_POLL };
                side.wait.polls.skip(polls - (side.left / each) as u32);
                let has_rung = is_first && !has_packet && std::mem::take(&mut side.has_rung);
                match (has_packet, is_first) {
                    (false, _) => self.goes_on(at, Event::Polled { has_rung }),
                    (true, true) => {
                        side.policy.found_at_once(&side.wait);
                        self.receives(at);
                    }
                    (true, false) => {
                        side.policy.found(&side.wait);
                        self.receives(at);
                    }
                }
            }
            Doing::Yield {
                since,
                was_switched: false,
            } if self.scheduler.give_turn_up(at) => {
                self.sides[at].doing = Doing::Yield {
                    since,
                    was_switched: true,
                };
            }
            Doing::Yield { since, was_switched } => {
                let took = Duration::from_nanos(now - since);
                self.goes_on(at, Event::Yielded { took, was_switched });
            }
            Doing::FallAsleep { until } if !has_packet => {
                let late = if self.sides[at].counts() {
                    0
                } else {
                    self.system.timer_at_first
                };
                let until = until.map(|until| until.max(now) + self.system.timer + late);
                self.sides[at].doing = Doing::Sleep;
                self.falls_asleep(at, until);
            }
            Doing::FallAsleep { .. } | Doing::Sleep if has_packet => self.gets_up(at),
            Doing::FallAsleep { .. } | Doing::Sleep => {
                let slept = Duration::from_nanos(now - self.sides[at].slept_since);
                self.goes_on(at, Event::SleptFor(slept));
            }
            Doing::Nothing => {}
        }
    }

    fn send(&mut self, at: usize) {
        let (now, system) = (self.now, self.system);
        let peer = self.sides[at].peer;
        self.sides[peer].has_packet = true;
        self.sides[at].sent_at = now;
        self.sides[at].done += 1;
        if !self.sides[peer].is_asleep() {
            return self.begin(at);
        }
        self.sides[peer].rung_at = now;
        if self.scheduler.is_off(peer) {
            let wake = if self.scheduler.has_idle_processor() {
                system.wake
            } else {
                0
            };
            let awake_at = now + system.call + wake;
            let wakes_at = &mut self.sides[peer].wakes_at;
            *wakes_at = Some(wakes_at.map_or(awake_at, |timer| timer.min(awake_at)));
        }
        let side = &mut self.sides[at];
        side.has_rung = true;
        side.calls += u64::from(side.counts());
        (side.doing, side.left) = (Doing::Ring, system.call);
    }

    fn begin(&mut self, at: usize) {
        let side = &mut self.sides[at];
        side.wait = side.policy.begin();
        let polls = side.wait.polls.left();
        (side.doing, side.left) = (Doing::FirstPolls(polls), u64::from(polls) * FIRST_POLL);
    }

    fn goes_on(&mut self, at: usize, event: Event) {
        let side = &mut self.sides[at];
        let step = side.policy.next(&mut side.wait, event);
        let (now, call) = (self.now, self.system.call);
        (side.doing, side.left) = match step {
            Step::Poll => {
                let polls = side.wait.polls.left();
                (Doing::Polls(polls), u64::from(polls) * PAUSED_POLL)
            }
            Step::Yield => (
                Doing::Yield {
                    since: now,
                    was_switched: false,
                },
                call,
            ),
            Step::SleepFor(length) => {
                let until = now + length.as_nanos() as u64;
                (Doing::FallAsleep { until: Some(until) }, call)
            }
            Step::Sleep => (Doing::FallAsleep { until: None }, call),
        };
        if step != Step::Poll {
            side.calls += u64::from(side.counts());
        }
        (side.slept_since, side.rung_before) = (now, side.rung_at);
    }

    fn gets_up(&mut self, at: usize) {
        let now = self.now;
        let side = &mut self.sides[at];
        let whole = now - side.slept_since;
        let needed = side.rung_at.saturating_sub(side.slept_since).min(whole);
        let slept = Slept {
            whole: Duration::from_nanos(whole),
            needed: Duration::from_nanos(needed),
            was_woken: side.rung_at != side.rung_before,
        };
        side.policy.woken(&side.wait, slept);
        self.receives(at);
    }

    fn receives(&mut self, at: usize) {
        let now = self.now;
        let side = &mut self.sides[at];
        side.has_packet = false;
        if side.is_client && side.counts() {
            side.trips += 1;
            side.trip_nanos += now - side.sent_at;
        }
        match side.works.get(side.done) {
            Some(work) => (side.doing, side.left) = (Doing::Work, *work),
            None => {
                side.doing = Doing::Nothing;
                self.falls_asleep(at, None);
            }
        }
    }

    fn falls_asleep(&mut self, at: usize, until: Option<u64>) {
        self.sides[at].wakes_at = until;
        self.scheduler.sleep(at);
    }
}

/// What a request costs in the mean, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) trip: f64,
    /// Of the processors, in waiting.
    pub(super) waiting: f64,
    pub(super) calls: f64,
}

impl Cost {
    pub(super) fn price(self) -> f64 {
        self.trip + self.waiting
    }
}

/// What a request of a scenario costs, with all rules or without one.
pub(super) fn cost(scenario: &Scenario, without: Option<Rule>) -> Cost {
    let mut sums = [0_u64; 4];
    for pairs in &scenario.runs {
        let mut world = World::new(scenario, pairs, without);
        world.run();
        for side in &world.sides {
            let of_side = [side.trips, side.trip_nanos, side.waiting, side.calls];
            sums.iter_mut()
                .zip(of_side)
                .for_each(|(sum, of_side)| *sum += of_side);
        }
    }
    let [trips, trip, waiting, calls] = sums.map(|sum| sum as f64);
    Cost {
        trip: trip / trips,
        waiting: waiting / trips,
        calls: calls / trips,
    }
}
