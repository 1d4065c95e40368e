//! The policy on waits of real bursts: what it costs beside the window that would have been best, had all
//! been known.
//!
//! The traces in `traces` were recorded by `cargo bench --bench waiting -- --record src/fmq/traces`. Each
//! says what its client did and on which machine; both sides polled through every wait, so that a wait is as
//! long as its packet took to come. More threads than processors wanted to run there, which is why there are
//! waits of many milliseconds where none are expected.

use super::*;

/// The traces of one side.
macro_rules! traces {
    ($side:literal: $($name:literal),*) => {
        [$(($name, include_str!(concat!("../traces/", $name, "-", $side, ".txt")))),*]
    };
}

const CLIENTS: [(&str, &str); 6] =
    traces!("client": "steady", "large", "thinking", "series", "frames", "busy");
const WORKERS: [(&str, &str); 6] =
    traces!("worker": "steady", "large", "thinking", "series", "frames", "busy");

/// The longest window of a client and of a worker, unless they are set otherwise.
const SIDES: [(u64, &[(&str, &str)]); 2] = [(100_000, &CLIENTS), (50_000, &WORKERS)];

fn waits(trace: &str) -> Vec<u64> {
    let lines = trace.lines().filter(|line| !line.starts_with('#'));
    let numbers = lines.flat_map(str::split_whitespace);
    numbers.map(|number| number.parse().unwrap()).collect()
}

/// The recorded scenarios: name, the waits of the client, and of the worker.
pub(super) fn recorded() -> impl Iterator<Item = (&'static str, Vec<u64>, Vec<u64>)> {
    let sides = CLIENTS.iter().zip(&WORKERS);
    sides.map(|((name, client), (_, worker))| (*name, waits(client), waits(worker)))
}

/// What polling costs in nanoseconds, a sleep counted as polling for the longest window, as the policy does.
fn cost(wait: u64, window: u64, longest: u64) -> u64 {
    if wait <= window { wait } else { window + longest }
}

/// The first waits, from which the policy learns.
const LEARNING: usize = 100;

/// The windows that the policy has for the waits behind the first ones.
fn windows(waits: &[u64], longest: u64) -> Vec<u64> {
    let settings = WaitSettings::Adaptive {
        max_window: Duration::from_nanos(longest),
    };
    let mut policy = WaitPolicy::new(settings, PollRates::of(1, 40, u32::MAX));
    let windows = waits.iter().map(|&nanos| {
        policy.begin();
        let window = policy.window().as_nanos() as u64;
        policy.record(nanos, nanos > window);
        window
    });
    windows.collect::<Vec<_>>().split_off(LEARNING)
}

fn cost_of_policy(waits: &[u64], longest: u64) -> u64 {
    let pairs = waits[LEARNING..].iter().zip(windows(waits, longest));
    pairs.map(|(wait, window)| cost(*wait, window, longest)).sum()
}

fn cost_of_best_window(waits: &[u64], longest: u64) -> u64 {
    let waits = &waits[LEARNING..];
    let windows = waits.iter().copied().filter(|wait| *wait <= longest).chain([0]);
    let costs = windows.map(|window| waits.iter().map(|wait| cost(*wait, window, longest)).sum());
    costs.min().unwrap()
}

/// Single waits that were never so long before cost a sleep each, which whoever knows of them in advance
/// saves.
const SURPRISES: u64 = 4;

#[test]
fn policy_costs_little_more_than_the_best_window_would_have() {
    for (longest, traces) in SIDES {
        for (name, trace) in traces {
            let waits = waits(trace);
            assert_eq!(waits.len(), 1000, "{name}");
            let (found, best) = (
                cost_of_policy(&waits, longest),
                cost_of_best_window(&waits, longest),
            );
            let most = best + best / 8 + SURPRISES * longest;
            assert!(
                found <= most,
                "{name}, at most {longest} ns: {found} ns, at best {best} ns"
            );
        }
    }
}

#[test]
fn waits_that_are_mostly_short_are_hardly_ever_slept_through_for_being_a_little_longer() {
    for (longest, trace) in [(100_000, CLIENTS[0]), (100_000, CLIENTS[1]), (50_000, WORKERS[0])] {
        let waits = waits(trace.1);
        let pairs = waits[LEARNING..].iter().zip(windows(&waits, longest));
        let short: Vec<_> = pairs.filter(|(wait, _)| **wait <= longest / 2).collect();
        let slept = short.iter().filter(|(wait, window)| *wait > window).count();
        assert!(
            short.len() > 800 && slept <= 8,
            "{}: {slept} of {}",
            trace.0,
            short.len()
        );
    }
}
