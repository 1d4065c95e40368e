//! How evenly clients that executed the same at the same time were served.

use serde::Serialize;

use crate::bursting_client::Seen;
use crate::samples::{jain_index, median};

/// One client, as medians over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Served {
    /// Its executions per second.
    pub per_second: f64,
    /// How long half of them took at most, in nanoseconds.
    pub p50_ns: f64,
    /// How long all but a hundredth took at most.
    pub p99_ns: f64,
    /// How long one of them took, the longest of all rounds.
    pub max_ns: u64,
}

/// All of them, as medians over rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// Executions per second of all together.
    pub per_second: f64,
    /// Jain's index of how they were shared: 1 if evenly.
    pub jain: f64,
    /// The p50 of the median client, in nanoseconds.
    pub median_p50_ns: f64,
    /// The p99 of the median client.
    pub median_p99_ns: f64,
    /// The p99 of the client that has the worst.
    pub worst_p99_ns: f64,
    /// By how much that is more than the median client's.
    pub worst_p99_ratio: f64,
    /// Each of them.
    pub each: Vec<Served>,
}

impl Fairness {
    /// Of rounds of `seconds` each, in all of which the clients have the same order.
    #[must_use]
    pub fn of(rounds: &[Vec<Seen>], seconds: f64) -> Fairness {
        let over_rounds = |figure: fn(&[Seen]) -> f64| {
            let figures: Vec<f64> = rounds.iter().map(|round| figure(round)).collect();
            median(&figures)
        };
        let clients = rounds.iter().map(Vec::len).min().unwrap_or_default();
        Fairness {
            per_second: over_rounds(|round| of_each(round, |seen| seen.executions).iter().sum()) / seconds,
            jain: over_rounds(|round| jain_index(&of_each(round, |seen| seen.executions))),
            median_p50_ns: over_rounds(|round| median(&of_each(round, |seen| seen.p50_ns))),
            median_p99_ns: over_rounds(median_p99),
            worst_p99_ns: over_rounds(worst_p99),
            worst_p99_ratio: over_rounds(|round| worst_p99(round) / median_p99(round)),
            each: (0..clients)
                .map(|client| served(rounds, client, seconds))
                .collect(),
        }
    }
}

fn of_each(round: &[Seen], figure: fn(&Seen) -> u64) -> Vec<f64> {
    round.iter().map(|seen| figure(seen) as f64).collect()
}

fn median_p99(round: &[Seen]) -> f64 {
    median(&of_each(round, |seen| seen.p99_ns))
}

fn worst_p99(round: &[Seen]) -> f64 {
    of_each(round, |seen| seen.p99_ns).into_iter().fold(0.0, f64::max)
}

fn served(rounds: &[Vec<Seen>], client: usize, seconds: f64) -> Served {
    let own: Vec<Seen> = rounds
        .iter()
        .filter_map(|round| round.get(client).cloned())
        .collect();
    Served {
        per_second: median(&of_each(&own, |seen| seen.executions)) / seconds,
        p50_ns: median(&of_each(&own, |seen| seen.p50_ns)),
        p99_ns: median(&of_each(&own, |seen| seen.p99_ns)),
        max_ns: own.iter().map(|seen| seen.max_ns).max().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(executions: u64, p50_ns: u64, p99_ns: u64) -> Seen {
        Seen {
            executions,
            p50_ns,
            p99_ns,
            max_ns: 2 * p99_ns,
        }
    }

    #[test]
    fn figures_are_medians_over_rounds_of_those_of_each_round() {
        let even = vec![seen(100, 10, 20), seen(100, 12, 22)];
        // Each round is shared evenly but for the last, in which one client has all.
        let rounds = [even.clone(), even, vec![seen(400, 1, 2), seen(0, 90, 1000)]];
        let fairness = Fairness::of(&rounds, 2.0);
        assert_eq!(fairness.per_second, 100.0);
        assert_eq!(fairness.jain, 1.0);
        assert_eq!((fairness.median_p50_ns, fairness.median_p99_ns), (11.0, 21.0));
        assert_eq!(fairness.worst_p99_ns, 22.0);
        assert_eq!(fairness.worst_p99_ratio, 22.0 / 21.0);
    }

    #[test]
    fn each_client_has_its_own_medians_and_the_longest_of_all_rounds() {
        let rounds = [1, 5, 3].map(|times| vec![seen(10 * times, times, 2 * times), seen(1, 1, 1)]);
        let fairness = Fairness::of(&rounds, 0.5);
        let expected = Served {
            per_second: 60.0,
            p50_ns: 3.0,
            p99_ns: 6.0,
            max_ns: 20,
        };
        assert_eq!(fairness.each.len(), 2);
        assert_eq!(fairness.each[0], expected);
    }
}
