//! Timed sleeps: sleeping through most of a wait of known length, and polling for its end.
//!
//! Being woken by the peer costs it a system call, and takes as long as an idle processor needs to get going,
//! which in a virtual machine can be as long as the wait itself. Where waits are too long to poll through but
//! alike, as those for a model's results or a stream's next frame are, a waiter that gets up by itself a
//! little before the packet is due pays neither. Linux waits for fast disks in the same way (hybrid polling).

use std::time::Duration;

use super::rules::{Rule, Rules};

/// A timed sleep, and how long to poll after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimedSleep {
    /// From the moment of falling asleep.
    pub(super) length: Duration,
    /// For at most twice the longest window.
    pub(super) poll_nanos: u64,
}

/// The weight of one wait is an eighth in the mean, a quarter in the deviation, as in TCP's estimate of round
/// trips.
const MEAN_SHIFT: u32 = 3;
const DEVIATION_SHIFT: u32 = 2;
/// A shorter sleep is not worth its system call.
const LEAST_SLEEP: u64 = 30_000;
/// Of the lateness, one part of so many is forgotten with each wait that is slept through without a timer.
const FORGET: u64 = 64;

/// Learns from waits that were slept through when to get up in the next.
#[derive(Clone, Debug, Default)]
pub(super) struct TimedSleepPolicy {
    /// The longest window of the wait policy, in nanoseconds; 0 for no timed sleeps.
    window: u64,
    /// Nanoseconds; 0 before the first wait.
    mean: u64,
    deviation: u64,
    /// How much too late this thread gets up, smoothed.
    lateness: u64,
    rules: Rules,
}

impl TimedSleepPolicy {
    /// `window` is the longest for which a wait may poll, in nanoseconds; 0 for no timed sleeps.
    pub(super) fn new(window: u64, rules: Rules) -> TimedSleepPolicy {
        TimedSleepPolicy {
            window,
            rules,
            lateness: window,
            ..TimedSleepPolicy::default()
        }
    }

    /// How long to sleep in a wait that has lasted for `waited` nanoseconds before polling for its end, if
    /// that is worth it.
    pub(super) fn next(&self, waited: u64) -> Option<TimedSleep> {
        let early = self.deviation.saturating_add(self.deviation / 2);
        let is_off = self.window == 0 || !self.rules.has(Rule::TimedSleep);
        if is_off || early > self.window {
            return None;
        }
        let before = waited.saturating_add(early).saturating_add(self.lateness);
        let length = self.mean.checked_sub(before)?;
        // Up to twice as early as meant, and not late at all.
        let poll = early.saturating_mul(2).saturating_add(self.lateness);
        (length > LEAST_SLEEP).then(|| TimedSleep {
            length: Duration::from_nanos(length),
            poll_nanos: poll.clamp(self.window, self.window.saturating_mul(2)),
        })
    }

    /// Learns from a wait of so many nanoseconds, part of which was slept through.
    pub(super) fn record(&mut self, nanos: u64) {
        if self.mean == 0 {
            (self.mean, self.deviation) = (nanos, nanos / 2);
            return;
        }
        // One interruption is no reason to get up much later the next time.
        let most = self.deviation.saturating_mul(4).saturating_add(self.window);
        let most = if self.rules.has(Rule::TimedSleepOutlier) {
            most
        } else {
            u64::MAX
        };
        let difference = self.mean.abs_diff(nanos).min(most);
        let step = difference >> MEAN_SHIFT;
        self.mean = if nanos > self.mean {
            self.mean.saturating_add(step)
        } else {
            self.mean - step
        };
        self.deviation =
            self.deviation - (self.deviation >> DEVIATION_SHIFT) + (difference >> DEVIATION_SHIFT);
    }

    /// Learns by how much a sleep ended too late.
    pub(super) fn got_up(&mut self, late: Duration) {
        let late = u64::try_from(late.as_nanos())
            .unwrap_or(u64::MAX)
            .min(self.window.saturating_mul(4));
        // Getting up too early costs some polling, too late costs what the sleep was for.
        self.lateness = if late > self.lateness {
            self.lateness + (late - self.lateness) / 4
        } else {
            self.lateness - (self.lateness - late) / 16
        };
    }

    /// A wait was slept through without a timer. Sleeps that would be too late are tried again after some of
    /// them: only they tell by how much they are.
    pub(super) fn slept_on(&mut self) {
        if self.rules.has(Rule::TimedSleepForget) {
            self.lateness -= self.lateness / FORGET;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WINDOW: u64 = 50_000;

    fn after(waits: impl IntoIterator<Item = u64>) -> TimedSleepPolicy {
        let mut policy = TimedSleepPolicy::new(WINDOW, Rules::default());
        waits.into_iter().for_each(|nanos| policy.record(nanos));
        policy
    }

    #[test]
    fn regular_waits_are_slept_through_until_just_before_their_end() {
        let mut policy = after([400_000; 40]);
        for _ in 0..20 {
            policy.got_up(Duration::from_micros(60));
        }
        let sleep = policy.next(0).unwrap();
        let up = sleep.length.as_nanos() as u64;
        assert!((330_000..=341_000).contains(&up), "{sleep:?}");
        assert!((WINDOW..2 * WINDOW).contains(&sleep.poll_nanos), "{sleep:?}");
    }

    #[test]
    fn what_was_polled_before_is_no_part_of_the_sleep() {
        let policy = after([400_000; 40]);
        let whole = policy.next(0).unwrap().length;
        assert_eq!(
            whole - policy.next(50_000).unwrap().length,
            Duration::from_micros(50)
        );
        assert_eq!(policy.next(350_000), None);
    }

    #[test]
    fn irregular_unknown_and_short_waits_are_not_timed() {
        assert_eq!(after([]).next(0), None);
        assert_eq!(after([70_000; 40]).next(0), None);
        assert_eq!(after((0..40).map(|at| 400_000 * (1 + at % 3))).next(0), None);
        assert_eq!(TimedSleepPolicy::new(0, Rules::default()).next(0), None);
        let mut unbounded = TimedSleepPolicy::new(u64::MAX, Rules::default());
        unbounded.record(u64::MAX);
        assert_eq!(unbounded.next(0), None);
    }

    #[test]
    fn one_interruption_moves_the_sleep_little() {
        let mut policy = after([400_000; 40]);
        let before = policy.next(0).unwrap().length;
        policy.record(50_000_000);
        policy.record(400_000);
        let after = policy.next(0).unwrap().length;
        assert!(
            after.abs_diff(before) < Duration::from_micros(40),
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn sleeps_end_early_enough_for_most_that_are_late() {
        let mut policy = after([400_000; 40]);
        for at in 0..200 {
            policy.got_up(Duration::from_micros(if at % 5 == 0 { 120 } else { 60 }));
        }
        let early = 400_000 - policy.next(0).unwrap().length.as_nanos() as u64;
        assert!((70_000..120_000).contains(&early), "{early}");
    }

    #[test]
    fn sleeps_that_were_too_late_to_be_any_are_tried_again() {
        let mut policy = after([200_000; 40]);
        for _ in 0..20 {
            policy.got_up(Duration::from_micros(190));
        }
        assert_eq!(policy.next(0), None);
        let tries = (1..1000).find(|_| {
            policy.slept_on();
            policy.next(0).is_some()
        });
        assert!(tries.is_some_and(|tries| tries > 4), "{tries:?}");
    }

    #[test]
    fn waits_of_another_length_are_learned() {
        let policy = after([400_000; 40].into_iter().chain([2_000_000; 120]));
        let length = policy.next(0).unwrap().length.as_nanos() as u64;
        assert!((1_800_000..2_000_000).contains(&length), "{length}");
    }
}
