//! Calls in rounds, and what is told of them.

use std::time::{Duration, Instant};

/// Fewest calls of a round, as of the other contestants'.
const LEAST_CALLS: usize = 5;

/// What calls took.
#[derive(Debug)]
pub(crate) struct Times {
    /// Median over the rounds of their medians, in milliseconds.
    pub(crate) median_ms: f64,
    /// The fastest call of all, in milliseconds.
    pub(crate) least_ms: f64,
    pub(crate) calls: usize,
}

/// Makes calls in so many rounds of such a length each.
///
/// # Errors
/// The first one of a call.
pub(crate) fn measure<E>(
    rounds: usize,
    budget: Duration,
    mut call: impl FnMut() -> Result<(), E>,
) -> Result<Times, E> {
    let mut medians = Vec::with_capacity(rounds);
    let mut times = Times {
        median_ms: 0.0,
        least_ms: f64::INFINITY,
        calls: 0,
    };
    for _ in 0..rounds {
        let mut round = round(budget, &mut call)?;
        times.least_ms = round.iter().copied().fold(times.least_ms, f64::min);
        times.calls += round.len();
        medians.push(median(&mut round));
    }
    times.median_ms = median(&mut medians);
    Ok(times)
}

/// The calls of one round, in milliseconds.
fn round<E>(budget: Duration, call: &mut impl FnMut() -> Result<(), E>) -> Result<Vec<f64>, E> {
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < LEAST_CALLS || started.elapsed() < budget {
        let before = Instant::now();
        call()?;
        times.push(before.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

/// Half of the values are no greater; 0 of none. The values are sorted.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[upper],
        _ => f64::midpoint(values[upper - 1], values[upper]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_between_the_two_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
    }

    #[test]
    fn round_without_time_has_the_fewest_calls() {
        let mut calls = 0;
        let times = measure::<()>(3, Duration::ZERO, || {
            calls += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((times.calls, calls), (3 * LEAST_CALLS, 3 * LEAST_CALLS));
        assert!(times.least_ms <= times.median_ms);
    }

    #[test]
    fn failing_call_ends_the_measurement() {
        let mut calls = 0;
        let result = measure(1, Duration::MAX, || {
            calls += 1;
            if calls == 2 { Err("broken") } else { Ok(()) }
        });
        assert_eq!(result.unwrap_err(), "broken");
        assert_eq!(calls, 2);
    }
}
