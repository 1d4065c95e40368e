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
//! That is for others that yield soon too. Where turns are long on average, others compute for long, or there
//! are many of them: each offer would cost a long wait, and the system counts it as if this side had computed
//! for its whole share. Polling on instead would have the few pairs whose sides run at the same time execute
//! thousands of requests while the others wait. So this side sleeps at once in the next waits, as the system
//! shares processors evenly among threads that sleep while they wait. Then it tries again.

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
/// Where turns take longer than this on average, in nanoseconds, offers do not pay: being woken takes less.
/// Of 4 clients of a small and a large model, the small ones have a p99 of 0.27 ms with it, 1.48 ms without
/// (`cargo bench --bench clients`).
const LONGEST_TURN: u64 = 250_000;
/// One turn weighs in the average as much as so many of the longest, so that one thread that computes for
/// once changes nothing.
const MOST_LONGEST: u64 = 4;
/// The weight of one turn in the average is an eighth.
const TURN_SHIFT: u32 = 3;
/// How many long waits are slept through then.
const SLEEPS: u32 = 4096;

/// Learns whether others want the processor.
#[derive(Clone, Debug)]
pub(super) struct YieldPolicy {
    is_crowded: bool,
    /// Offers in a row that nobody took.
    refused: u32,
    /// How long offers took of late, smoothed, in nanoseconds.
    turn: u64,
    /// Long waits to come that are slept through.
    sleeps: u32,
    rules: Rules,
}

impl YieldPolicy {
    pub(super) fn new(rules: Rules) -> YieldPolicy {
        YieldPolicy {
            is_crowded: false,
            refused: 0,
            turn: 0,
            sleeps: 0,
            rules,
        }
    }

    /// One that has every wait slept through.
    #[cfg(all(test, loom))]
    pub(super) fn sleeping() -> YieldPolicy {
        YieldPolicy {
            sleeps: u32::MAX,
            ..YieldPolicy::new(Rules::default())
        }
    }

    /// Whether a long wait that begins now is to be slept through.
    pub(super) fn has_wait_slept_through(&mut self) -> bool {
        let is_slept_through = self.sleeps > 0;
        self.sleeps = self.sleeps.saturating_sub(1);
        is_slept_through
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
        (self.sleeps == 0 && self.rules.has(Rule::Yield)).then_some(0)
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
        if self.sleeps > 0 {
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
        let turn = if is_taken {
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
        } else {
            0
        };
        self.turn -= self.turn >> TURN_SHIFT;
        self.turn += turn.min(MOST_LONGEST * LONGEST_TURN) >> TURN_SHIFT;
        if self.turn > LONGEST_TURN && self.rules.has(Rule::SleepLongTurns) {
            (self.turn, self.sleeps) = (0, SLEEPS);
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

    /// How many waits in a row are slept through.
    fn slept_through(yield_policy: &mut YieldPolicy) -> usize {
        (0..)
            .find(|_| !yield_policy.has_wait_slept_through())
            .unwrap_or_default()
    }

    #[test]
    fn waits_are_slept_through_where_others_compute_and_offered_again_later() {
        let mut yield_policy = after([COMPUTED; 3]);
        assert_eq!(yield_policy.begin_after_sleep(), None);
        for _ in 0..3 {
            assert_eq!(slept_through(&mut yield_policy), SLEEPS as usize);
            assert_eq!(yield_policy.begin(), Some(0));
            (0..3).for_each(|_| yield_policy.learn(COMPUTED));
        }
    }

    #[test]
    fn waits_are_slept_through_where_a_crowd_has_long_turns() {
        let crowded = Duration::from_nanos(LONGEST_TURN / 3 * 4);
        assert_eq!(slept_through(&mut after([crowded; 32])), SLEEPS as usize);
        let crowded = Duration::from_nanos(LONGEST_TURN / 4 * 3);
        assert_eq!(slept_through(&mut after([crowded; 1000])), 0);
    }

    #[test]
    fn one_long_turn_among_many_short_ones_is_no_reason_to_sleep() {
        let mut turns = vec![TAKEN; 16];
        turns.push(COMPUTED);
        let mut yield_policy = after(turns.into_iter().cycle().take(10_000));
        assert!(yield_policy.is_crowded());
        assert_eq!(slept_through(&mut yield_policy), 0);
    }

    #[test]
    fn nobody_taking_offers_between_long_turns_counts_as_short_ones() {
        let turns = [REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, COMPUTED];
        let mut yield_policy = after(turns.into_iter().cycle().take(10_000));
        assert_eq!(slept_through(&mut yield_policy), 0);
    }
}
