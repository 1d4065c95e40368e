//! A simulator of threads that wait for each other's packets by the waiting policy, on few processors.
//!
//! Clients think, send a request and wait; workers wait, work and answer. Each side has a policy of its own.
//! The simulator does what it says, with an operating system whose system calls, wake-ups and turns take as
//! long as a scenario says. What the clients think and the workers work is recorded (`traces`, see
//! `trace_tests.rs`) or made up.
//!
//! `cargo test -p nnhal --lib simulator -- --ignored --nocapture` prints for each scenario what a request
//! costs, and for each rule what it would cost without it.

use std::collections::VecDeque;

use super::rules::{Rule, Rules};
use super::*;

/// How long a thread runs while others wait for its processor, and how long before it gives way to one that
/// was just woken.
const TURN: u64 = 3_000_000;
const LEAST_TURN: u64 = 700_000;

/// Nanoseconds of a poll as it is done at first, and of one with a pause.
const FIRST_POLL: u64 = 1;
const PAUSED_POLL: u64 = 40;

/// Requests of a client that count for nothing: its policies learn.
const LEARNING: usize = 200;

#[derive(Clone, Copy, Debug)]
struct System {
    processors: usize,
    /// From the call that wakes a thread until it runs, in nanoseconds.
    wake: u64,
    /// A system call.
    call: u64,
    /// By how much a timer is late, and by how much more as long as nothing counts.
    timer: u64,
    timer_at_first: u64,
}

const METAL: System = System {
    processors: 8,
    wake: 6_000,
    call: 400,
    timer: 55_000,
    timer_at_first: 0,
};
const VIRTUAL: System = System {
    processors: 2,
    wake: 40_000,
    call: 600,
    timer: 60_000,
    timer_at_first: 0,
};

/// A client and its worker.
#[derive(Clone, Debug)]
struct Pair {
    thinks: Vec<u64>,
    works: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Scenario {
    name: &'static str,
    system: System,
    /// Those of each of several runs, which are alike but for chance.
    runs: Vec<Vec<Pair>>,
    /// Threads that compute all the time.
    computers: usize,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    On { since: u64 },
    Ready,
    Off { until: Option<u64> },
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
    place: Place,
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
    ready: VecDeque<usize>,
}

impl World {
    fn new(scenario: &Scenario, pairs: &[Pair], without: Option<Rule>) -> World {
        let mut world = World {
            system: scenario.system,
            rules: Rules { without },
            now: 1_000_000_000,
            sides: Vec::new(),
            ready: VecDeque::new(),
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
            (side.doing, side.left, side.place) = (Doing::Work, u64::MAX / 2, Place::Ready);
            world.ready.push_back(at);
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
            place: if is_client {
                Place::Ready
            } else {
                Place::Off { until: None }
            },
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
        if is_client {
            self.ready.push_back(self.sides.len());
        }
        self.sides.push(side);
    }

    fn run(&mut self) {
        while self
            .sides
            .iter()
            .any(|side| side.is_client && side.done < side.works.len())
        {
            self.fill_processors();
            let next = (0..self.sides.len()).map(|at| self.next_event(at)).min().unwrap();
            let passed = next - self.now;
            self.now = next;
            for side in &mut self.sides {
                if let Place::On { .. } = side.place {
                    side.left -= passed;
                    if side.counts() && side.doing != Doing::Work {
                        side.waiting += passed;
                    }
                }
            }
            (0..self.sides.len()).for_each(|at| self.happens(at));
        }
    }

    fn fill_processors(&mut self) {
        let running = self
            .sides
            .iter()
            .filter(|side| matches!(side.place, Place::On { .. }));
        for _ in running.count()..self.system.processors {
            let Some(at) = self.ready.pop_front() else { break };
            self.sides[at].place = Place::On { since: self.now };
        }
    }

    fn next_event(&self, at: usize) -> u64 {
        let side = &self.sides[at];
        match side.place {
            Place::Ready => u64::MAX,
            Place::Off { until } => until.unwrap_or(u64::MAX).max(self.now),
            Place::On { .. } if side.sees_packet() => self.now,
            Place::On { since } => {
                let turn = if self.ready.is_empty() {
                    u64::MAX
                } else {
                    since + TURN
                };
                (self.now + side.left).min(turn).max(self.now)
            }
        }
    }

    fn happens(&mut self, at: usize) {
        let side = &self.sides[at];
        match side.place {
            Place::Off { until: Some(until) } if until <= self.now => self.becomes_ready(at),
            Place::On { .. } if side.left == 0 || side.sees_packet() => self.ends(at),
            Place::On { since } if since + TURN <= self.now && !self.ready.is_empty() => {
                self.sides[at].place = Place::Ready;
                self.ready.push_back(at);
            }
            _ => {}
        }
    }

    fn becomes_ready(&mut self, at: usize) {
        self.sides[at].place = Place::Ready;
        let running = || (0..self.sides.len()).filter(|at| matches!(self.sides[*at].place, Place::On { .. }));
        let is_full = running().count() >= self.system.processors;
        let oldest = running().min_by_key(|at| match self.sides[*at].place {
            Place::On { since } => since,
            _ => u64::MAX,
        });
        if let Some(oldest) = oldest
            && is_full
            && let Place::On { since } = self.sides[oldest].place
            && since + LEAST_TURN <= self.now
        {
            self.sides[oldest].place = Place::Ready;
            self.ready.push_back(oldest);
            self.sides[at].place = Place::On { since: self.now };
        } else {
            self.ready.push_front(at);
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
            } if !self.ready.is_empty() => {
                self.sides[at].doing = Doing::Yield {
                    since,
                    was_switched: true,
                };
                self.sides[at].place = Place::Ready;
                self.ready.push_back(at);
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
                self.sides[at].place = Place::Off { until };
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
        if self.sides[peer].doing == Doing::Sleep {
            self.sides[peer].place = Place::Off {
                until: Some(now + system.call + system.wake),
            };
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
                side.place = Place::Off { until: None };
            }
        }
    }
}

/// What a request costs in the mean, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    trip: f64,
    /// Of the processors, in waiting.
    waiting: f64,
    calls: f64,
}

impl Cost {
    fn price(self) -> f64 {
        self.trip + self.waiting
    }
}

fn cost(scenario: &Scenario, without: Option<Rule>) -> Cost {
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

/// Numbers between 0 and 1 that are the same each time.
fn noise(seed: u64) -> impl Iterator<Item = f64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1 << 24) as f64
    })
}

/// So many lengths around a mean.
fn around(mean: u64, spread: u64, seed: u64, count: usize) -> Vec<u64> {
    let of = |noise: f64| (mean as f64 + (noise - 0.5) * 2.0 * spread as f64) as u64;
    noise(seed).take(count).map(of).collect()
}

/// Runs that differ by chance, of many threads.
const RUNS: u64 = 4;

/// A thousand of them.
const COUNT: usize = 1000;

fn pair(thinks: Vec<u64>, works: Vec<u64>) -> Pair {
    Pair { thinks, works }
}

/// Several of them.
fn pairs(count: usize, think: u64, work: u64, run: u64) -> Vec<Pair> {
    let of = |number: usize| Pair {
        thinks: around(think, think / 4, 1000 * run + number as u64, COUNT),
        works: around(work, work / 4, 1000 * run + 100 + number as u64, COUNT),
    };
    (0..count).map(of).collect()
}

fn scenarios() -> Vec<Scenario> {
    let alone = |name, system, thinks, works| Scenario {
        name,
        system,
        runs: vec![vec![pair(thinks, works)]],
        computers: 0,
    };
    let mut all = Vec::new();
    for (name, of_client, of_worker) in super::trace_tests::recorded() {
        let name: &'static str = name;
        all.push(alone(name, METAL, of_worker.clone(), of_client.clone()));
        all.push(alone(name, VIRTUAL, of_worker, of_client));
    }
    let frames = around(16_000_000, 300_000, 1, COUNT);
    all.push(alone(
        "camera frames",
        METAL,
        frames.clone(),
        around(400_000, 10_000, 2, COUNT),
    ));
    all.push(alone(
        "camera frames",
        VIRTUAL,
        frames,
        around(400_000, 10_000, 2, COUNT),
    ));
    let tens = (0..COUNT).map(|at| if at % 10 == 0 { 3_000_000 } else { 800 });
    all.push(alone(
        "ten, then a pause",
        METAL,
        tens.clone().collect(),
        around(1_000, 200, 3, COUNT),
    ));
    all.push(alone(
        "ten, then a pause",
        VIRTUAL,
        tens.collect(),
        around(1_000, 200, 3, COUNT),
    ));
    for (name, work) in [
        ("work of 30 us", 30_000),
        ("work of 80 us", 80_000),
        ("work of 300 us", 300_000),
        ("work of 2 ms", 2_000_000),
    ] {
        for system in [
            METAL,
            VIRTUAL,
            System {
                wake: 90_000,
                ..VIRTUAL
            },
        ] {
            all.push(alone(
                name,
                system,
                around(500, 100, 4, COUNT),
                around(work, work / 40, 5, COUNT),
            ));
        }
    }
    let spoilt = around(300_000, 5_000, 8, COUNT);
    let spoilt = spoilt.into_iter().enumerate();
    let spoilt = spoilt.map(|(at, work)| if at % 20 == 7 { work + 5_000_000 } else { work });
    all.push(alone(
        "work of 300 us, at times 5 ms",
        METAL,
        around(500, 100, 4, COUNT),
        spoilt.collect(),
    ));
    let mixed = noise(9)
        .take(COUNT)
        .map(|noise| if noise < 0.5 { 250_000 } else { 400_000 });
    all.push(alone(
        "work of 250 or 400 us",
        METAL,
        around(500, 100, 4, COUNT),
        mixed.collect(),
    ));
    let slow = System { call: 3_000, ..METAL };
    all.push(alone(
        "slow system calls",
        slow,
        around(500, 100, 4, COUNT),
        around(30_000, 1_000, 5, COUNT),
    ));
    for (name, think) in [("thought of 60 us", 60_000), ("thought of 80 us", 80_000)] {
        for system in [
            METAL,
            VIRTUAL,
            System {
                wake: 90_000,
                ..VIRTUAL
            },
        ] {
            let thinks = around(think, think / 40, 6, COUNT);
            all.push(alone(name, system, thinks, around(1_000, 200, 7, COUNT)));
        }
    }
    for wake in [6_000, 40_000, 90_000] {
        let long = |short: u64| (0..COUNT).map(move |at| if at < LEARNING - 5 { 1_000_000 } else { short });
        let (thinks, works) = (long(500).collect(), long(200).collect());
        all.push(alone("long, then short", System { wake, ..METAL }, thinks, works));
        let held_up = |at: usize| if at % 100 == 50 { 1_000_000 } else { 500 };
        let thinks = (0..COUNT).map(held_up).collect();
        all.push(alone(
            "held up at times",
            System { wake, ..METAL },
            thinks,
            around(1_000, 100, 4, COUNT),
        ));
    }
    let late = System {
        timer_at_first: 400_000,
        ..VIRTUAL
    };
    all.push(alone(
        "timers late at first",
        late,
        around(500, 100, 4, COUNT),
        around(300_000, 7_500, 5, COUNT),
    ));
    all.push(alone(
        "slow system calls",
        slow,
        around(500, 100, 4, COUNT),
        around(10_000, 1_000, 5, COUNT),
    ));
    let crowd = |name, system, pairs: &dyn Fn(u64) -> Vec<Pair>, computers| Scenario {
        name,
        system,
        runs: (0..RUNS).map(pairs).collect(),
        computers,
    };
    for system in [
        System {
            processors: 2,
            ..METAL
        },
        VIRTUAL,
    ] {
        all.push(crowd(
            "4 pairs on 2 processors",
            system,
            &|run| pairs(4, 2_000, 1_000, run),
            0,
        ));
        all.push(crowd(
            "4 pairs with 30 us of work on 2",
            system,
            &|run| pairs(4, 2_000, 30_000, run),
            0,
        ));
        all.push(crowd(
            "1 pair, 2 compute on 2",
            system,
            &|run| pairs(1, 2_000, 1_000, run),
            2,
        ));
        all.push(crowd(
            "1 pair with 30 us of work, 2 compute on 2",
            system,
            &|run| pairs(1, 2_000, 30_000, run),
            2,
        ));
        all.push(crowd(
            "3 pairs, 1 computes on 2",
            system,
            &|run| pairs(3, 2_000, 1_000, run),
            1,
        ));
    }
    let four = System {
        processors: 4,
        ..METAL
    };
    for four in [four, System { wake: 40_000, ..four }] {
        all.push(crowd(
            "8 pairs on 4 processors",
            four,
            &|run| pairs(8, 10_000, 5_000, run),
            0,
        ));
        all.push(crowd(
            "8 pairs with 60 us of work on 4",
            four,
            &|run| pairs(8, 5_000, 60_000, run),
            0,
        ));
    }
    let late = |run| {
        let mut late = pairs(4, 2_000, 1_000, run);
        late[1..].iter_mut().for_each(|pair| pair.thinks[0] = 2_000_000);
        late
    };
    all.push(crowd(
        "a crowd comes late, on 2",
        System {
            processors: 2,
            ..METAL
        },
        &late,
        0,
    ));
    all
}

/// By how much a price is higher, in percent.
fn more(without: f64, with: f64) -> f64 {
    100.0 * (without / with - 1.0)
}

/// The rules, each with a scenario in which it gains, and how long waking takes there.
const GAINS: [(Rule, &str, u64); 12] = [
    (Rule::Window, "ten, then a pause", 6_000),
    (Rule::LeastWindow, "steady", 40_000),
    (Rule::WakeWindow, "thought of 60 us", 90_000),
    (Rule::AwaitSleeper, "long, then short", 40_000),
    (Rule::CountUntilRung, "work of 30 us", 90_000),
    (Rule::TimedSleep, "ten, then a pause", 40_000),
    (Rule::TimedSleepOutlier, "thinking", 40_000),
    (Rule::TimedSleepForget, "timers late at first", 40_000),
    (Rule::Yield, "8 pairs with 60 us of work on 4", 6_000),
    (Rule::YieldFirst, "8 pairs on 4 processors", 6_000),
    (Rule::YieldSwitched, "slow system calls", 6_000),
    (Rule::YieldPause, "1 pair, 2 compute on 2", 6_000),
];

/// The least that a rule must gain, in percent.
const LEAST_GAIN: f64 = 5.0;

#[test]
fn each_rule_gains_something_somewhere() {
    let scenarios = scenarios();
    for (rule, name, wake) in GAINS {
        let gain = scenarios
            .iter()
            .filter(|scenario| scenario.name == name && scenario.system.wake == wake)
            .map(|scenario| more(cost(scenario, Some(rule)).price(), cost(scenario, None).price()))
            .fold(f64::MIN, f64::max);
        println!("{rule:?}: {gain:.1} %");
        assert!(gain >= LEAST_GAIN, "{rule:?}: {gain:.1} % in {name}");
    }
}

fn cost_in(name: &str, wake: u64, without: Option<Rule>) -> Cost {
    let scenarios = scenarios();
    let found = scenarios
        .iter()
        .find(|scenario| scenario.name == name && scenario.system.wake == wake);
    cost(found.unwrap(), without)
}

#[test]
fn offers_that_nobody_takes_cost_system_calls() {
    let calls = |without| cost_in("work of 80 us", 40_000, without).calls;
    let (with, without) = (calls(None), calls(Some(Rule::YieldAlone)));
    assert!(with < 0.1 && without >= 3.0, "{with}, {without}");
}

#[test]
fn sides_that_both_poll_make_no_system_call() {
    for name in ["steady", "work of 30 us", "work of 80 us"] {
        let cost = cost_in(name, 40_000, None);
        assert!(cost.calls < 0.1, "{name}: {cost:?}");
    }
}

#[test]
fn two_sides_that_sleep_find_out_of_it() {
    for wake in [6_000, 40_000, 90_000] {
        let cost = cost_in("long, then short", wake, None);
        assert!(cost.calls < 0.2, "where waking takes {wake} ns: {cost:?}");
    }
}

#[test]
#[ignore = "prints what each rule gains"]
fn each_rule_left_out() {
    let scenarios = scenarios();
    let all: Vec<Cost> = scenarios.iter().map(|scenario| cost(scenario, None)).collect();
    for (scenario, cost) in scenarios.iter().zip(&all) {
        println!(
            "{:45} wake {:2} us: trip {:9.0} ns, waiting {:9.0} ns, {:5.2} calls",
            scenario.name,
            scenario.system.wake / 1000,
            cost.trip,
            cost.waiting,
            cost.calls
        );
    }
    for rule in GAINS.iter().map(|(rule, ..)| *rule).chain([Rule::YieldAlone]) {
        println!("without {rule:?}");
        for (scenario, with) in scenarios.iter().zip(&all) {
            let without = cost(scenario, Some(rule));
            let (price, calls) = (more(without.price(), with.price()), without.calls - with.calls);
            if price.abs() >= 3.0 || calls.abs() >= 0.5 {
                println!(
                    "  {price:+7.1} % price ({:+7.1} % trip, {:+7.1} % waiting, {calls:+6.2} calls) {}, wake {} us",
                    more(without.trip, with.trip),
                    more(without.waiting, with.waiting),
                    scenario.name,
                    scenario.system.wake / 1000
                );
            }
        }
    }
}
