//! Scenarios of clients and workers that wait for each other, and what each rule of the policy gains in them.
//!
//! What the clients think and the workers work is recorded (`traces`, see `trace_tests.rs`) or made up.
//!
//! `cargo test -p nnhal --lib scenarios -- --ignored --nocapture` prints for each scenario what a request
//! costs, and for each rule what it would cost without it.

use super::rules::Rule;
use super::simulator::{Cost, LEARNING, Pair, Scenario, System, cost};
use super::trace_tests::recorded;

/// A machine of one's own, and a small virtual one.
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
    for (name, of_client, of_worker) in recorded() {
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
    (Rule::SleepAtOnce, "1 pair, 2 compute on 2", 6_000),
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
