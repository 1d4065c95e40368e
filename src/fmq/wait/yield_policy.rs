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
//! That is for others that yield too. One that computes keeps the processor for milliseconds, which is no
//! price to pay for every packet: where turns are that long too often, this side polls as if there were
//! nobody, and tries again after a while.

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
/// Others that yield do so within this. Linux lets a thread that computes go on for about 3 ms.
const LONGEST_TURN: Duration = Duration::from_millis(2);
/// A longer turn weighs as much as so many shorter ones weigh against it.
const LONG_TURN: u32 = 16;
/// At this weight nothing more is offered for a while.
const MOST_LONG_TURNS: u32 = 6 * LONG_TURN;
/// For how many long waits.
const PAUSE: u32 = 1024;

/// Learns whether others want the processor.
#[derive(Clone, Debug)]
pub(super) struct YieldPolicy {
    is_crowded: bool,
    /// Offers in a row that nobody took.
    refused: u32,
    /// How much turns that were too long weigh.
    long_turns: u32,
    /// Long waits to come in which nothing is offered.
    pause: u32,
    rules: Rules,
}

impl YieldPolicy {
    pub(super) fn new(rules: Rules) -> YieldPolicy {
        YieldPolicy {
            is_crowded: false,
            refused: 0,
            long_turns: 0,
            pause: 0,
            rules,
        }
    }

    /// One that offers nothing for long.
    #[cfg(all(test, loom))]
    pub(super) fn paused() -> YieldPolicy {
        YieldPolicy {
            pause: u32::MAX,
            ..YieldPolicy::new(Rules::default())
        }
    }

    /// After how many nanoseconds of polling a long wait that begins now is to offer the processor; `None`
    /// for never.
    pub(super) fn begin(&mut self) -> Option<u64> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
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
        (self.pause == 0 && self.rules.has(Rule::Yield)).then_some(0)
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
        if self.pause > 0 {
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
        if took > LONGEST_TURN && self.rules.has(Rule::YieldPause) {
            self.long_turns += LONG_TURN;
            if self.long_turns >= MOST_LONG_TURNS {
                // One more is enough then, until others have behaved for a while.
                self.long_turns = MOST_LONG_TURNS - LONG_TURN;
                self.is_crowded = false;
                self.pause = PAUSE;
            }
        } else if took > REFUSED {
            (self.is_crowded, self.refused) = (true, 0);
            self.long_turns = self.long_turns.saturating_sub(1);
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

    /// How many waits in a row offer nothing.
    fn silence(yield_policy: &mut YieldPolicy) -> usize {
        (0..).find(|_| yield_policy.begin().is_some()).unwrap()
    }

    #[test]
    fn who_is_alone_offers_after_polling_in_vain() {
        let mut yield_policy = YieldPolicy::new(Rules::default());
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
    fn who_computes_is_left_alone_for_a_while() {
        let mut yield_policy = after([COMPUTED; (MOST_LONG_TURNS / LONG_TURN) as usize]);
        assert!(!yield_policy.is_crowded());
        assert_eq!(yield_policy.begin_after_sleep(), None);
        for _ in 0..3 {
            assert_eq!(silence(&mut yield_policy), PAUSE as usize);
            yield_policy.learn(COMPUTED);
        }
    }

    #[test]
    fn one_long_turn_among_many_short_ones_is_no_reason_to_stop() {
        let mut turns = vec![TAKEN; LONG_TURN as usize + 1];
        turns.push(COMPUTED);
        let mut yield_policy = after(turns.into_iter().cycle().take(10_000));
        assert!(yield_policy.is_crowded());
        assert_eq!(yield_policy.begin(), Some(0));
    }

    #[test]
    fn half_of_the_turns_too_long_is() {
        let mut yield_policy = after([TAKEN, COMPUTED].into_iter().cycle().take(14));
        assert_eq!(yield_policy.begin(), None);
    }
}
