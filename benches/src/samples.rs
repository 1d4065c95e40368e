//! Durations of round trips, taken one by one.

use std::time::{Duration, Instant};

/// How often the clock is read to know its cost.
const CLOCK_READS: usize = 20_001;

/// Takes the time of one thing after another with one read of the clock for each, whose cost is taken off.
#[derive(Debug)]
pub struct Samples {
    clock_cost: u64,
    last: Instant,
    nanos: Vec<u64>,
}

impl Samples {
    /// None yet. Measures what reading the clock costs.
    #[must_use]
    pub fn new() -> Samples {
        let mut samples = Samples {
            clock_cost: 0,
            last: Instant::now(),
            nanos: Vec::with_capacity(CLOCK_READS),
        };
        for _ in 0..CLOCK_READS {
            samples.lap();
        }
        samples.clock_cost = quantile(&mut samples.nanos, 0.5);
        samples.nanos.clear();
        samples
    }

    /// What reading the clock costs: the median of many reads.
    #[must_use]
    pub fn clock_cost(&self) -> Duration {
        Duration::from_nanos(self.clock_cost)
    }

    /// Forgets what was taken, makes room for `count` and starts the clock.
    pub fn start(&mut self, count: u32) {
        self.nanos.clear();
        self.nanos.reserve(count as usize);
        self.last = Instant::now();
    }

    /// Ends one thing and starts the next.
    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        let nanos = now.duration_since(self.last).as_nanos() as u64;
        self.nanos.push(nanos.saturating_sub(self.clock_cost));
        self.last = now;
    }

    /// What was taken since the start, in nanoseconds.
    pub fn taken(&mut self) -> &mut [u64] {
        &mut self.nanos
    }
}

impl Default for Samples {
    fn default() -> Samples {
        Samples::new()
    }
}

/// The value that this part of the values does not exceed; 0 if there are none. Changes their order.
pub fn quantile(values: &mut [u64], part: f64) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let rank = (values.len() as f64 * part).ceil() as usize;
    let index = rank.clamp(1, values.len()) - 1;
    *values.select_nth_unstable(index).1
}

/// The middle of the values, the mean of two if their number is even; NaN if there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}

/// Jain's index of how evenly something is shared: 1 if all have the same, 1/n if one of n has everything.
#[must_use]
pub fn jain_index(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return f64::NAN;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_taken() {
        let mut values: Vec<u64> = (1..=1000).rev().collect();
        assert_eq!(quantile(&mut values, 0.5), 500);
        assert_eq!(quantile(&mut values, 0.99), 990);
        assert_eq!(quantile(&mut values, 0.999), 999);
        assert_eq!(quantile(&mut values, 1.0), 1000);
        assert_eq!(quantile(&mut [7], 0.001), 7);
        assert_eq!(quantile(&mut [], 0.5), 0);
    }

    #[test]
    fn median_of_even_counts_lies_between() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn jain_index_is_one_for_equal_shares() {
        assert_eq!(jain_index(&[5.0; 16]), 1.0);
        assert_eq!(jain_index(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert!(jain_index(&[0.0]).is_nan());
    }

    #[test]
    fn laps_are_counted_from_the_start() {
        let mut samples = Samples::new();
        samples.start(3);
        (0..3).for_each(|_| samples.lap());
        assert_eq!(samples.taken().len(), 3);
        samples.start(1);
        assert!(samples.taken().is_empty());
    }
}
