//! A point in time and the deadline made of it.

use std::time::Duration;

/// Nanoseconds since the epoch of CLOCK_MONOTONIC, as in HAL 1.3 `OptionalTimePoint.nanosecondsSinceEpoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TimePoint(u64);

impl TimePoint {
    /// The epoch itself.
    pub const EPOCH: Self = Self(0);

    /// The point `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This point plus `duration`, at most the last point there is.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }

    /// The time from `earlier` to this point; zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The moment a wait or an execution has to be over, or never.
///
/// Deadlines are ordered: an earlier one is less, [`Deadline::NONE`] is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(u64);

impl Deadline {
    /// No deadline.
    pub const NONE: Self = Self(u64::MAX);

    /// The deadline at `point`. The last representable point, 584 years after start-up, counts as no
    /// deadline.
    pub const fn at(point: TimePoint) -> Self {
        Self(point.as_nanos())
    }

    /// The deadline `timeout` after `now`; a time beyond all points is no deadline.
    pub fn after(now: TimePoint, timeout: Duration) -> Self {
        Self::at(now.saturating_add(timeout))
    }

    /// The deadline of a HAL 1.3 `OptionalTimePoint`: absent is none.
    pub fn from_hal(nanoseconds_since_epoch: Option<u64>) -> Self {
        nanoseconds_since_epoch.map_or(Self::NONE, |nanos| Self::at(TimePoint::from_nanos(nanos)))
    }

    /// The HAL 1.3 `OptionalTimePoint` of this deadline.
    pub fn to_hal(self) -> Option<u64> {
        self.point().map(TimePoint::as_nanos)
    }

    /// The encoding in fixed-size records: nanoseconds since the epoch, the maximum for none.
    pub const fn to_raw(self) -> u64 {
        self.0
    }

    /// The deadline of [`Deadline::to_raw`]. Every value is one.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The point in time, unless there is no deadline.
    pub fn point(self) -> Option<TimePoint> {
        (self != Self::NONE).then_some(TimePoint::from_nanos(self.0))
    }

    /// Whether there is no deadline.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Whether the deadline has been reached at `now`.
    pub fn is_past(self, now: TimePoint) -> bool {
        self.point().is_some_and(|point| point <= now)
    }

    /// The time left at `now`, zero once reached; `None` if there is no deadline.
    pub fn remaining(self, now: TimePoint) -> Option<Duration> {
        self.point().map(|point| point.saturating_since(now))
    }

    /// The earlier of two deadlines.
    pub fn earlier(self, other: Self) -> Self {
        self.min(other)
    }

    /// The deadline as the absolute time that system calls take; `None` if there is no deadline.
    pub fn to_timespec(self) -> Option<libc::timespec> {
        self.point().map(|point| {
            let nanos = point.as_nanos();
            // Both quotients fit: 2^64 ns are fewer than 2^35 s.
            libc::timespec {
                tv_sec: (nanos / 1_000_000_000) as libc::time_t,
                tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
            }
        })
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::NONE
    }
}

impl std::fmt::Display for Deadline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.point() {
            None => f.write_str("no deadline"),
            Some(point) => write!(
                f,
                "{} ns since the epoch of the monotonic clock",
                point.as_nanos()
            ),
        }
    }
}

fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_timeout_saturates_to_none() {
        let deadline = Deadline::after(TimePoint::from_nanos(10), Duration::MAX);
        assert!(deadline.is_none());
        assert_eq!(deadline.remaining(TimePoint::EPOCH), None);
        assert!(deadline.to_timespec().is_none());
    }

    #[test]
    fn reached_deadline_is_past_and_has_nothing_left() {
        let deadline = Deadline::at(TimePoint::from_nanos(10));
        assert!(!deadline.is_past(TimePoint::from_nanos(9)));
        assert!(deadline.is_past(TimePoint::from_nanos(10)));
        assert_eq!(
            deadline.remaining(TimePoint::from_nanos(11)),
            Some(Duration::ZERO)
        );
        assert_eq!(
            deadline.remaining(TimePoint::from_nanos(4)),
            Some(Duration::from_nanos(6))
        );
    }

    #[test]
    fn hal_time_points_round_trip_and_none_is_last() {
        assert_eq!(Deadline::from_hal(Some(7)).to_hal(), Some(7));
        assert_eq!(Deadline::from_hal(None), Deadline::NONE);
        assert_eq!(
            Deadline::from_hal(Some(7)).earlier(Deadline::NONE).to_hal(),
            Some(7)
        );
        assert_eq!(Deadline::from_raw(Deadline::NONE.to_raw()), Deadline::NONE);
    }

    #[test]
    fn timespec_splits_seconds() {
        let spec = Deadline::at(TimePoint::from_nanos(2_000_000_003))
            .to_timespec()
            .unwrap();
        assert_eq!((spec.tv_sec, spec.tv_nsec), (2, 3));
    }
}
