//! Trying again where a system refuses what cannot be done without.

use std::time::Duration;

use nnhal_os::time::TimePoint;

/// How long the system may refuse. Memory that is short for a moment comes back within that, or a service
/// manager starts another driver.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// Attempts at something that has been refused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retry {
    since: Option<TimePoint>,
}

impl Retry {
    /// The system has refused; returns whether there is to be another attempt, after [`PAUSE`].
    pub(super) fn again(&mut self, now: TimePoint) -> bool {
        now.saturating_since(*self.since.get_or_insert(now)) < TIMEOUT
    }

    /// It has not.
    pub(super) fn over(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_borne_for_a_time_and_each_time_anew() {
        let start = TimePoint::from_nanos(1);
        let mut retry = Retry::default();
        assert!(retry.again(start) && retry.again(start.saturating_add(TIMEOUT / 2)));
        retry.over();
        assert!(retry.again(start.saturating_add(TIMEOUT)));
        assert!(!retry.again(start.saturating_add(2 * TIMEOUT)));
    }
}
