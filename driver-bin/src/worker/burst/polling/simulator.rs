//! A simulator of a shared poller by the polling policy, and of clients that send to its rings.
//!
//! Each client sends a request to one of the rings, or several behind each other, and the next when it has
//! the answer. The simulator looks and serves as the policy says. What a look, a request and the end of a
//! batch take is a rough figure, and the same for all.
//!
//! `cargo test -p nnhal-driver --lib polling::simulator -- --ignored --nocapture` prints for each scenario
//! how long a request takes, and for each rule how long without it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::rules::{Rule, Rules};
use super::*;

/// Nanoseconds of a poll of the own ring, of a look at another, of the end of a batch (a fence, and the
/// slot), and of reading the clock twice.
const OWN_POLL: u64 = 3;
const LOOK: u64 = 4;
const BATCH_END: u64 = 100;
const TIMING: u64 = 50;

/// Requests of each client that count, behind those that do not.
const REQUESTS: u64 = 1500;
const LEARNING: u64 = 100;

struct Client {
    /// To which ring it sends next.
    rings: Box<dyn Iterator<Item = usize>>,
    /// So many requests behind each other at once.
    depth: u32,
    /// How long one takes, and how long the client thinks between an answer and the next.
    service: u64,
    think: u64,
}

struct Scenario {
    name: &'static str,
    rings: usize,
    clients: fn() -> Vec<Client>,
}

struct World {
    now: u64,
    clients: Vec<Client>,
    /// When which client's next request reaches which ring.
    coming: BinaryHeap<Reverse<(u64, usize, usize)>>,
    queues: Vec<VecDeque<(u64, usize)>>,
    tasks: Vec<ShortTasks>,
    answered: Vec<u64>,
    trips: Vec<u64>,
}

impl World {
    fn new(scenario: &Scenario, rules: Rules) -> World {
        let clients = (scenario.clients)();
        let mut world = World {
            now: 0,
            answered: vec![0; clients.len()],
            trips: vec![0; clients.len()],
            clients,
            coming: BinaryHeap::new(),
            queues: vec![VecDeque::new(); scenario.rings],
            tasks: (0..scenario.rings)
                .map(|_| ShortTasks::with_rules(rules))
                .collect(),
        };
        for client in 0..world.clients.len() {
            (0..world.clients[client].depth).for_each(|_| world.send(client));
        }
        world
    }

    fn send(&mut self, client: usize) {
        let at = self.now + self.clients[client].think;
        let ring = self.clients[client].rings.next().unwrap();
        self.coming.push(Reverse((at, client, ring)));
    }

    fn deliver(&mut self) {
        while let Some(Reverse((at, client, ring))) = self.coming.peek().copied()
            && at <= self.now
        {
            self.coming.pop();
            self.queues[ring].push_back((at, client));
        }
    }

    fn has_packet(&mut self, ring: usize) -> bool {
        self.now += LOOK;
        self.deliver();
        !self.queues[ring].is_empty()
    }

    fn serve_batch(&mut self, ring: usize) {
        let mut batch = self.tasks[ring].begin();
        let mut since = self.now;
        while let Some((sent, client)) = self.queues[ring].pop_front() {
            self.now += self.clients[client].service;
            self.answered[client] += 1;
            if self.answered[client] > LEARNING {
                self.trips[client] += self.now - sent;
            }
            self.send(client);
            self.deliver();
            if !batch.may_go_on() || self.queues[ring].is_empty() {
                break;
            }
            if batch.go_on() {
                since = self.now;
            }
        }
        let took = Duration::from_nanos(self.now - since);
        self.now += BATCH_END;
        if batch.is_timed() {
            self.now += TIMING;
            self.tasks[ring].end(&batch, took);
        }
    }

    /// One poll of the others; serves what it has seen.
    fn poll_others(&mut self, order: &mut PollOrder<usize>) -> bool {
        let world = std::cell::RefCell::new(&mut *self);
        let look = |ring: &mut usize| world.borrow_mut().has_packet(*ring);
        if !order.poll(look, |_| {}) {
            return false;
        }
        let ring = *order.take_ready().unwrap().1;
        self.serve_batch(ring);
        self.end_batch(order);
        true
    }

    fn end_batch(&mut self, order: &mut PollOrder<usize>) {
        if order.end_batch() {
            order.pause().for_each(drop);
        }
    }

    fn run(&mut self, rules: Rules) {
        let mut order = PollOrder::with_rules(rules);
        (1..self.queues.len()).for_each(|ring| order.push(ring));
        let most = self.now + 40_000_000;
        while self.answered.iter().any(|answered| *answered < REQUESTS) && self.now < most {
            self.now += OWN_POLL;
            self.deliver();
            if self.queues[0].is_empty() {
                self.poll_others(&mut order);
                continue;
            }
            self.serve_batch(0);
            self.end_batch(&mut order);
            for _ in 0..order.batches_between() {
                if !self.poll_others(&mut order) {
                    break;
                }
            }
        }
        // What has not come by then has waited all the time.
        while let Some((sent, client)) = self.queues.iter_mut().find_map(VecDeque::pop_front) {
            self.trips[client] += self.now - sent;
            self.answered[client] = (self.answered[client] + 1).max(LEARNING + 1);
        }
    }
}

/// How long a request takes, in nanoseconds: the mean over clients.
fn trip(scenario: &Scenario, without: Option<Rule>) -> f64 {
    let rules = Rules { without };
    let mut world = World::new(scenario, rules);
    world.run(rules);
    let means = world.trips.iter().zip(&world.answered);
    let sum: f64 = means
        .map(|(trips, answered)| *trips as f64 / (answered - LEARNING) as f64)
        .sum();
    sum / world.trips.len() as f64
}

fn client(rings: impl Iterator<Item = usize> + 'static, depth: u32, service: u64, think: u64) -> Client {
    Client {
        rings: Box::new(rings),
        depth,
        service,
        think,
    }
}

/// One of so many from the first on, by chance.
fn any_of(first: usize, count: usize) -> impl Iterator<Item = usize> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        first + (state >> 33) as usize % count
    })
}

const SCENARIOS: [Scenario; 10] = [
    Scenario {
        name: "the own of 64 is used",
        rings: 64,
        clients: || vec![client(std::iter::repeat(0), 1, 300, 300)],
    },
    Scenario {
        name: "another of 64 is used",
        rings: 64,
        clients: || vec![client(std::iter::repeat(40), 1, 300, 300)],
    },
    Scenario {
        name: "16 by turns",
        rings: 16,
        clients: || vec![client((0..16).cycle(), 1, 300, 300)],
    },
    Scenario {
        name: "64 by turns",
        rings: 64,
        clients: || vec![client((0..64).cycle(), 1, 300, 300)],
    },
    Scenario {
        name: "mostly two of 64",
        rings: 64,
        clients: || {
            vec![client(
                any_of(0, 20).map(|at| if at < 18 { 1 + at % 2 } else { 40 + at }),
                1,
                300,
                300,
            )]
        },
    },
    Scenario {
        name: "the own never empties, another is used",
        rings: 4,
        clients: || {
            vec![
                client(std::iter::repeat(0), 8, 1_000, 0),
                client(std::iter::repeat(2), 1, 1_000, 5_000),
            ]
        },
    },
    Scenario {
        name: "the own never empties, one of 60 is used",
        rings: 64,
        clients: || {
            vec![
                client(std::iter::repeat(0), 8, 1_000, 0),
                client(any_of(2, 60), 1, 1_000, 20_000),
            ]
        },
    },
    Scenario {
        name: "two never empty, one of 60 is used",
        rings: 64,
        clients: || {
            vec![
                client(std::iter::repeat(0), 8, 1_000, 0),
                client(std::iter::repeat(1), 8, 1_000, 0),
                client(any_of(2, 60), 1, 1_000, 20_000),
            ]
        },
    },
    Scenario {
        name: "requests of 18 us in a row, and short ones",
        rings: 4,
        clients: || {
            vec![
                client(std::iter::repeat(0), 16, 18_000, 0),
                client(std::iter::repeat(2), 1, 500, 2_000),
            ]
        },
    },
    Scenario {
        name: "requests of 300 ns in a row",
        rings: 4,
        clients: || vec![client(std::iter::repeat(0), 16, 300, 0)],
    },
];

fn more(without: f64, with: f64) -> f64 {
    100.0 * (without / with - 1.0)
}

const RULES: [Rule; 6] = [
    Rule::MoveToFront,
    Rule::FewLooks,
    Rule::ServeBetween,
    Rule::Batches,
    Rule::BatchTime,
    Rule::RareTiming,
];

/// The most that a rule gains, in percent, and where.
fn gain(rule: Rule) -> (f64, &'static str) {
    let of = |scenario: &Scenario| {
        (
            more(trip(scenario, Some(rule)), trip(scenario, None)),
            scenario.name,
        )
    };
    SCENARIOS
        .iter()
        .map(of)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap()
}

#[test]
fn each_rule_gains_something_somewhere() {
    for rule in RULES {
        let (gain, name) = gain(rule);
        println!("{rule:?}: {gain:.1} % in {name}");
        assert!(gain >= 5.0, "{rule:?}: {gain:.1} %");
    }
}

#[test]
#[ignore = "prints what each rule gains"]
fn each_rule_left_out() {
    for scenario in &SCENARIOS {
        println!("{:45} {:8.0} ns", scenario.name, trip(scenario, None));
    }
    for rule in RULES {
        println!("without {rule:?}");
        for scenario in &SCENARIOS {
            let more = more(trip(scenario, Some(rule)), trip(scenario, None));
            println!("  {more:+8.1} % {}", scenario.name);
        }
    }
}
