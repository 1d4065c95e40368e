//! How long something took.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment that time is measured from, as HAL `Timing` has it.
///
/// CLOCK_BOOTTIME, which goes on while the system is suspended: a duration includes the time in which nothing
/// ran, so that nobody takes a device for faster than it was. Deadlines are points of another clock and
/// cannot be mixed with this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stopwatch(u64);

impl Stopwatch {
    /// Starts to measure. Costs as much as a reading of [`super::MonotonicClock`].
    #[inline]
    #[must_use]
    pub fn start() -> Self {
        // The kernel knows this clock and the pointer is ours, so the call has no way to fail.
        Self(clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
            (now.tv_sec() as u64) * 1_000_000_000 + now.tv_nsec() as u64
        }))
    }

    /// The time since the start.
    #[inline]
    #[must_use]
    pub fn elapsed(self) -> Duration {
        self.until(Self::start())
    }

    /// The time from the start to that of `later`; zero if that was earlier.
    #[must_use]
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_measured_forward() {
        let first = Stopwatch::start();
        let second = Stopwatch::start();
        assert!(first <= second);
        assert!(first.until(second) <= first.elapsed());
        assert_eq!(second.until(first), Duration::ZERO);
    }

    #[test]
    fn time_while_the_system_was_suspended_counts() {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
        let nanos = (monotonic.tv_sec() as u64) * 1_000_000_000 + monotonic.tv_nsec() as u64;
        // The clocks start together, and only the monotonic one ever stands still.
        assert!(Stopwatch::start().0 >= nanos);
    }
}
