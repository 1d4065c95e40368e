//! The yield policy: what a side that polls does for others that want its processor.
//!
//! Where more threads poll than there are processors, the peer that one of them waits for may be waiting for
//! the processor that it polls on. Falling asleep would have that peer woken by a system call, and each of
//! the two find the other asleep from then on; polling on would keep it waiting until the system takes the
//! processor away. So a side that has polled for some microseconds offers the processor to others
//! (`sched_yield`), and comes back when they have had their turn. Once an offer was taken it offers at the
//! start of every wait. So among many pairs each has its turn after a few microseconds, and none executes for
//! as long as the system lets it while the others wait. Once nobody took any for a while it offers no more,
//! but after a wait in which polling was in vain.
//!
//! That is for others that yield soon too. Where others keep the processor for long on average, an offer
//! costs more than being woken does. The system also counts it as if this side had run for its whole turn.
//! Polling on is no better: the few pairs whose sides run at the same time would execute thousands of
//! requests while others wait. So the next waits sleep at once: who sleeps gets an even share. Then this
//! side tries again.

use std::time::Duration;

use super::rules::{Rule, Rules};

/// A long wait offers first after polling for so many nanoseconds, then each time that this has doubled.
const FIRST_OFFER: u64 = 4000;
/// How long to poll between offers where others are known to want the processor, in nanoseconds.
const TURN: u64 = 1000;
/// An offer that nobody took is over after this.
pub(in super::super) const REFUSED: Duration = Duration::from_micros(2);
/// After so many of them in a row nobody is taken to want the processor.
const ALONE: u32 = 32;
/// Where others keep the processor for longer than this on average, in nanoseconds, offers do not pay. With
/// it, the small models of 4 mixed clients have a p99 of 0.24 ms on the Zen 3, without it 1.48 ms
/// (`cargo bench --bench clients`).
const LONGEST_AVERAGE: u64 = 250_000;
/// The longest time that counts, so that one thread that computes for once changes little.
const LONGEST: u64 = 4 * LONGEST_AVERAGE;
/// The weight of one offer in the average is an eighth.
const WEIGHT_SHIFT: u32 = 3;
/// How long waits sleep at once then, in nanoseconds of waiting. To try again costs some turns of a few
/// milliseconds.
const SLEEP: u64 = 500_000_000;
/// What a wait counts beside its length, so that short ones are no more than 4096.
const EACH_WAIT: u64 = SLEEP / 4096;

/// Learns whether others want the processor.
#[derive(Clone, Debug)]
pub(super) struct YieldPolicy {
    is_crowded: bool,
    /// Offers in a row that nobody took.
    refused: u32,
    /// How long others kept the processor of late, smoothed, in nanoseconds.
    kept: u64,
    /// For how many nanoseconds of waiting this side sleeps at once.
    sleep: u64,
    rules: Rules,
}

impl YieldPolicy {
    pub(super) fn new(rules: Rules) -> YieldPolicy {
        YieldPolicy {
            is_crowded: false,
            refused: 0,
            kept: 0,
            sleep: 0,
            rules,
        }
    }

    /// Whether a long wait that begins now is to sleep at once.
    pub(super) fn sleeps_at_once(&self) -> bool {
        self.sleep > 0
    }

    /// A wait has slept for so many nanoseconds.
    pub(super) fn slept(&mut self, nanos: u64) {
        self.sleep = self.sleep.saturating_sub(nanos.saturating_add(EACH_WAIT));
    }

    /// After how many nanoseconds of polling a long wait that begins now is to offer the processor; `None`
    /// for never.
    pub(super) fn begin(&self) -> Option<u64> {
        if !self.rules.has(Rule::Yield) {
            return None;
        }
        let is_alone = self.rules.has(Rule::YieldAlone) && self.refused >= ALONE;
        let is_first = self.is_crowded && self.rules.has(Rule::YieldFirst);
        (!is_alone).then_some(if is_first { 0 } else { FIRST_OFFER })
    }

    /// A wait has polled until it was time to sleep: perhaps for the processor that it polled on.
    pub(super) fn was_in_vain(&mut self) {
        self.refused = self.refused.min(ALONE - 1);
    }

    /// [`YieldPolicy::begin`] for the polling that follows a timed sleep: whoever has had the processor
    /// meanwhile may be about to end what this side waits for.
    pub(super) fn begin_after_sleep(&self) -> Option<u64> {
        self.rules.has(Rule::Yield).then_some(0)
    }

    /// Whether others are known to want the processor.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_crowded && self.rules.has(Rule::YieldFirst)
    }

    /// Learns from an offer in a wait that has polled for so many nanoseconds: this thread was away for so
    /// long, and perhaps another has had its processor. Returns after how many to offer it again.
    pub(super) fn yielded(&mut self, polled: u64, took: Duration, was_switched: bool) -> Option<u64> {
        // System calls may take long by themselves, as under a debugger.
        let is_taken = was_switched || !self.rules.has(Rule::YieldSwitched);
        self.learn(if is_taken { took } else { REFUSED });
        if self.sleeps_at_once() {
            return None;
        }
        Some(if self.is_crowded {
            polled.saturating_add(TURN)
        } else {
            polled.saturating_mul(2).max(FIRST_OFFER)
        })
    }

    /// Learns from an offer that was over after this time.
    fn learn(&mut self, took: Duration) {
        let is_taken = took > REFUSED;
        let kept = if is_taken { took } else { Duration::ZERO };
        let kept = u64::try_from(kept.as_nanos()).unwrap_or(LONGEST).min(LONGEST);
        self.kept -= self.kept >> WEIGHT_SHIFT;
        self.kept += kept >> WEIGHT_SHIFT;
        if self.kept > LONGEST_AVERAGE && self.rules.has(Rule::SleepAtOnce) {
            (self.kept, self.sleep) = (0, SLEEP);
        }
        if is_taken {
            (self.is_crowded, self.refused) = (true, 0);
        } else {
            self.refused = self.refused.saturating_add(1);
            self.is_crowded &= self.refused < ALONE;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TAKEN: Duration = Duration::from_micros(5);
    const COMPUTED: Duration = Duration::from_millis(4);

    fn after(offers: impl IntoIterator<Item = Duration>) -> YieldPolicy {
        let mut yield_policy = YieldPolicy::new(Rules::default());
        offers.into_iter().for_each(|took| yield_policy.learn(took));
        yield_policy
    }

    #[test]
    fn who_is_alone_offers_after_polling_in_vain() {
        let yield_policy = YieldPolicy::new(Rules::default());
        assert_eq!(yield_policy.begin(), Some(FIRST_OFFER), "not known yet");
        let mut yield_policy = after([REFUSED; ALONE as usize]);
        assert!(!yield_policy.is_crowded());
        assert_eq!(yield_policy.begin(), None);
        yield_policy.was_in_vain();
        assert_eq!(yield_policy.begin(), Some(FIRST_OFFER));
        yield_policy.learn(REFUSED);
        assert_eq!(yield_policy.begin(), None);
    }

    #[test]
    fn where_others_take_offers_each_wait_begins_with_one_until_nobody_does() {
        let mut yield_policy = after([TAKEN]);
        assert!(yield_policy.is_crowded());
        assert_eq!(yield_policy.begin(), Some(0));
        for _ in 1..ALONE {
            yield_policy.learn(REFUSED);
        }
        assert_eq!(yield_policy.begin(), Some(0));
        yield_policy.learn(REFUSED);
        assert!(!yield_policy.is_crowded());
    }

    #[test]
    fn offers_come_more_rarely_in_a_wait_that_nobody_uses() {
        let mut yield_policy = after([REFUSED; ALONE as usize]);
        let again = yield_policy.yielded(FIRST_OFFER, TAKEN, false);
        assert_eq!(again, Some(2 * FIRST_OFFER));
        let again = yield_policy.yielded(FIRST_OFFER, TAKEN, true);
        assert_eq!(again, Some(FIRST_OFFER + TURN));
    }

    #[test]
    fn waits_sleep_at_once_where_others_compute_until_it_is_time_to_try_again() {
        let mut yield_policy = after([COMPUTED; 3]);
        for _ in 0..3 {
            assert!(yield_policy.sleeps_at_once());
            yield_policy.slept(SLEEP - EACH_WAIT - 1);
            assert!(yield_policy.sleeps_at_once());
            yield_policy.slept(1);
            assert!(!yield_policy.sleeps_at_once());
            assert_eq!(yield_policy.begin(), Some(0));
            (0..3).for_each(|_| yield_policy.learn(COMPUTED));
        }
        (1..4096).for_each(|_| yield_policy.slept(0));
        assert!(yield_policy.sleeps_at_once());
        (0..2).for_each(|_| yield_policy.slept(0));
        assert!(!yield_policy.sleeps_at_once());
    }

    #[test]
    fn waits_sleep_at_once_where_a_crowd_keeps_the_processor() {
        let crowd = Duration::from_nanos(LONGEST_AVERAGE / 3 * 4);
        assert!(after([crowd; 32]).sleeps_at_once());
        let crowd = Duration::from_nanos(LONGEST_AVERAGE / 4 * 3);
        assert!(!after([crowd; 1000]).sleeps_at_once());
    }

    #[test]
    fn one_long_turn_among_many_short_ones_is_no_reason_to_sleep() {
        let mut turns = vec![TAKEN; 16];
        turns.push(COMPUTED);
        let yield_policy = after(turns.into_iter().cycle().take(10_000));
        assert!(yield_policy.is_crowded() && !yield_policy.sleeps_at_once());
    }

    #[test]
    fn offers_that_nobody_takes_between_long_ones_count_as_short_ones() {
        let turns = [REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, COMPUTED];
        assert!(!after(turns.into_iter().cycle().take(10_000)).sleeps_at_once());
    }
}
