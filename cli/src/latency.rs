//! Latencies, as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer ones count as this, an hour.
const HIGHEST_NANOSECONDS: u64 = 3_600_000_000_000;

/// How long calls took.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// What is told of them, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    /// How many there were.
    pub(crate) count: u64,
    /// Half took no longer.
    pub(crate) p50: f64,
    /// All but one in a hundred took no longer.
    pub(crate) p99: f64,
    /// None took less.
    pub(crate) min: f64,
    /// None took longer.
    pub(crate) max: f64,
}

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Latencies {
        let histogram = Histogram::new_with_max(HIGHEST_NANOSECONDS, 3);
        Latencies(histogram.expect("an hour and three digits are within a histogram's bounds"))
    }

    /// Adds one.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.max(1));
    }

    /// What is told of them.
    pub(crate) fn summary(&self) -> Summary {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        Summary {
            count: self.0.len(),
            p50: microseconds(self.0.value_at_quantile(0.50)),
            p99: microseconds(self.0.value_at_quantile(0.99)),
            min: microseconds(self.0.min()),
            max: microseconds(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latencies;

    #[test]
    fn quantiles_are_in_microseconds() {
        let mut latencies = Latencies::new();
        (1..=100).for_each(|n| latencies.record(Duration::from_micros(n)));
        latencies.record(Duration::from_secs(1 << 40));
        let summary = latencies.summary();
        assert_eq!(summary.count, 101);
        assert!((summary.p50 - 51.0).abs() < 0.1, "{summary:?}");
        assert!((summary.p99 - 100.0).abs() < 0.1, "{summary:?}");
        assert!(
            (summary.min - 1.0).abs() < 0.01 && summary.max > 1e9,
            "{summary:?}"
        );
    }
}
