//! The waiting policy: what a thread that waits for a ring's packets does next.
//!
//! Sleeping costs the waiter the time to be woken and the waker a system call; polling costs a processor.
//! Which is better depends on how long the wait will be, which the policy learns from those that are over.
//! This file decides, and does nothing: it makes no system call and reads no clock. `receive.rs` does what a
//! [`Step`] says, and tells by an [`Event`] what came of it. So a simulator can drive the policy
//! (`wait/simulator.rs`, with the scenarios beside it), with each rule left out in turn: `wait/rules.rs` says
//! what each is good for.
//!
//! | state | what is done | what follows if nothing has come |
//! |---|---|---|
//! | `FirstPolls` | poll for 1 us, as fast as is best here; not where others want the processor | `Polling` or `Yielding`, or `Asleep` if the window is over |
//! | `Polling` | poll with pauses, for 20 us at most | the same again, `Yielding` where it is due, else `TimedSleep` or `Asleep` |
//! | `Yielding` | offer the processor to other threads | `Polling`, as long as the window lasts |
//! | `TimedSleep` | sleep until a little before the packet is due | `LastPolls`, or `Asleep` if it cannot be |
//! | `LastPolls` | poll with pauses | the same again, `LastYield` where it is due, else `Asleep` |
//! | `LastYield` | offer the processor to other threads | `LastPolls` |
//! | `Asleep` | sleep until somebody rings | |
//!
//! - A packet, an error or the end of the ring ends the wait in every state. The policy learns from it.
//! - How long `Polling` goes on is the window ([`window`]).
//! - When the processor is offered to others says [`yield_policy`], and where waits sleep at once instead of
//!   all that follows `FirstPolls`. Who polls with pauses needs a [`permit`].
//! - When a sleep is timed, and for how long, says [`timed_sleep`].
//! - [`Event::Stopped`] ends all polling: the deadline has passed, or the ring has ended.

use std::time::Duration;

use super::calibrate::{Pause, PollRates};
use permit::Permit;
use rules::{Rule, Rules};
use timed_sleep::TimedSleepPolicy;
use window::Window;
use yield_policy::YieldPolicy;

mod permit;
mod rules;
mod step;
mod timed_sleep;
mod window;
mod yield_policy;

pub use step::WaitSettings;
pub(super) use step::{Event, Polls, Slept, Step};
pub(super) use yield_policy::REFUSED;

/// For so long a wait polls as fast as is best on this machine, so that the shortest round trips are seen at
/// once.
const FIRST_NANOS: u64 = 1000;
/// For so long a wait polls with pauses before it looks at the deadline and the end again.
const STRETCH_NANOS: u64 = 20_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    FirstPolls,
    Polling,
    Yielding,
    TimedSleep { length: Duration, poll_nanos: u64 },
    LastPolls,
    LastYield,
    Asleep,
}

/// One wait.
#[derive(Debug)]
pub(super) struct Wait {
    state: State,
    /// Those of the present stretch.
    pub(super) polls: Polls,
    first_polls: u32,
    /// Polls with pauses that were planned, since the last timed sleep.
    paused_polls: u64,
    /// Nanoseconds of the window not yet planned.
    window_left: u64,
    /// Nanoseconds of the wait that the peer's getting up may take, which say nothing about the next wait.
    excused: u64,
    /// After how many nanoseconds of polling to offer the processor to others; `None` for never.
    yield_at: Option<u64>,
    /// Nanoseconds of the wait up to the end of its timed sleep.
    before: u64,
    /// To poll with pauses.
    permit: Option<Permit>,
}

/// Learns from past waits what to do in the next.
#[derive(Clone, Debug)]
pub(super) struct WaitPolicy {
    max_window: u64,
    adaptive: bool,
    /// The present window in nanoseconds.
    window: u64,
    /// How many polls its first stretch has.
    first_polls: u32,
    /// What is learned of the lengths of waits.
    lengths: Window,
    /// How long this side took to get up once it was woken, smoothed, in nanoseconds; 0 if it never slept.
    wake_nanos: u64,
    yields: YieldPolicy,
    timed_sleeps: TimedSleepPolicy,
    rates: PollRates,
    rules: Rules,
}

impl WaitPolicy {
    /// A policy without history: it polls for the longest window until it has learned.
    pub(super) fn new(settings: WaitSettings, rates: PollRates) -> Self {
        Self::with_rules(settings, rates, Rules::default())
    }

    fn with_rules(settings: WaitSettings, rates: PollRates, rules: Rules) -> Self {
        let (window, adaptive) = match settings {
            WaitSettings::Adaptive { max_window } => (max_window, true),
            WaitSettings::Fixed { window } => (window, false),
            WaitSettings::Sleep => (Duration::ZERO, false),
        };
        // On a single processor the peer cannot run while this side polls.
        let window = if rates.cpus < 2 { Duration::ZERO } else { window };
        let max_window = nanos_of(window);
        let adaptive = adaptive && max_window > 0;
        let mut policy = Self {
            max_window,
            adaptive,
            window: 0,
            first_polls: 0,
            lengths: Window::new(max_window),
            wake_nanos: 0,
            yields: YieldPolicy::new(rules),
            timed_sleeps: TimedSleepPolicy::new(if adaptive { max_window } else { 0 }, rules),
            rates,
            rules,
        };
        policy.set_window(max_window);
        policy
    }

    /// One that sleeps through the next wait by a timer, whatever time it takes, and polls a few times behind
    /// it: loom knows no time, and what depends on it would not be the same in each of its executions.
    #[cfg(all(test, loom))]
    pub(super) fn expecting_timed_sleep() -> Self {
        const LONG: u64 = 1_000_000_000_000;
        let without = Some(Rule::Yield);
        let mut policy = Self::with_rules(WaitSettings::Sleep, PollRates::slow(), Rules { without });
        policy.adaptive = true;
        policy.timed_sleeps = TimedSleepPolicy::new(STRETCH_NANOS, policy.rules);
        (0..64).for_each(|_| policy.timed_sleeps.record(LONG));
        policy
    }

    /// Has it learn that waits are all so long; says whether the next has a timed sleep.
    #[cfg(all(test, not(loom)))]
    pub(super) fn expect_waits_of(&mut self, nanos: u64) -> bool {
        (0..64).for_each(|_| self.timed_sleeps.record(nanos));
        self.timed_sleeps.next(0).is_some()
    }

    /// Learns from a wait of this length.
    #[cfg(all(test, not(loom)))]
    fn record(&mut self, nanos: u64, slept: bool) {
        if !self.adaptive {
            return;
        }
        self.lengths.record(nanos);
        if slept {
            self.learn_from_sleep(nanos);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn wake_nanos(&self) -> u64 {
        self.wake_nanos
    }

    fn set_window(&mut self, nanos: u64) {
        self.window = nanos;
        self.set_first_polls();
    }

    /// Where others want the processor, they are asked before this side polls.
    fn set_first_polls(&mut self) {
        self.first_polls = if self.yields.is_crowded() {
            0
        } else {
            self.rates.eager_polls(self.window.min(FIRST_NANOS))
        };
    }

    /// How long the next wait polls before it sleeps.
    #[cfg(all(test, not(loom)))]
    pub(super) fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// Starts a wait. Before it the window is computed anew if that is due: the wait is mostly longer than
    /// this takes, while behind it the packet that has come would have to wait.
    #[inline]
    pub(super) fn begin(&mut self) -> Wait {
        if self.lengths.is_review_due() {
            self.review();
        }
        Wait {
            state: State::FirstPolls,
            polls: Polls {
                left: self.first_polls,
                pause: self.rates.first_pause,
            },
            first_polls: self.first_polls,
            paused_polls: 0,
            window_left: match self.first_polls {
                0 => self.window,
                _ => self.window.saturating_sub(FIRST_NANOS),
            },
            excused: 0,
            yield_at: None,
            before: 0,
            permit: None,
        }
    }

    /// What to do after what has come of the last step.
    #[cold]
    pub(super) fn next(&mut self, wait: &mut Wait, event: Event) -> Step {
        match (wait.state, event) {
            (State::FirstPolls, Event::Polled { has_rung }) => {
                if self.adaptive && self.yields.sleeps_at_once() {
                    return self.sleep(wait);
                }
                wait.yield_at = if self.adaptive { self.yields.begin() } else { None };
                if has_rung {
                    self.await_sleeper(wait);
                }
                self.go_on(wait)
            }
            (State::Polling | State::LastPolls, Event::Polled { .. }) => self.go_on(wait),
            (State::Yielding | State::LastYield, Event::Yielded { took, was_switched }) => {
                let polled = self.polled(wait);
                wait.yield_at = self.yields.yielded(polled, took, was_switched);
                self.set_first_polls();
                self.go_on(wait)
            }
            (State::TimedSleep { length, poll_nanos }, Event::SleptFor(woke)) => {
                self.timed_sleeps.got_up(woke.saturating_sub(length));
                wait.before = self.waited(wait).saturating_add(nanos_of(woke));
                wait.state = State::LastPolls;
                (wait.first_polls, wait.paused_polls, wait.excused) = (0, 0, 0);
                wait.window_left = poll_nanos;
                wait.yield_at = self.yields.begin_after_sleep();
                self.go_on(wait)
            }
            (State::FirstPolls | State::Polling | State::Yielding, _) => self.fall_asleep(wait),
            _ => self.sleep(wait),
        }
    }

    /// Polls on, as long as the window lasts.
    fn go_on(&mut self, wait: &mut Wait) -> Step {
        let is_last = matches!(wait.state, State::LastPolls | State::LastYield);
        if wait.window_left > 0 && wait.permit.is_none() {
            wait.permit = Permit::take(self.rates.cpus);
            if wait.permit.is_none() {
                wait.window_left = 0;
            }
        }
        if wait.window_left == 0 {
            return if is_last {
                self.sleep(wait)
            } else {
                self.fall_asleep(wait)
            };
        }
        let polled = self.polled(wait);
        let until_yield = wait.yield_at.map_or(u64::MAX, |at| at.saturating_sub(polled));
        if until_yield == 0 {
            wait.state = if is_last {
                State::LastYield
            } else {
                State::Yielding
            };
            return Step::Yield;
        }
        let stretch = wait.window_left.min(until_yield).min(STRETCH_NANOS);
        wait.window_left -= stretch;
        wait.polls = Polls {
            left: self.rates.paused_polls(stretch).max(1),
            pause: Pause::Full,
        };
        wait.paused_polls += u64::from(wait.polls.left);
        wait.state = if is_last { State::LastPolls } else { State::Polling };
        Step::Poll
    }

    /// The window is over: sleeps until a little before the packet is due, or until it comes.
    fn fall_asleep(&mut self, wait: &mut Wait) -> Step {
        wait.permit = None;
        if wait.paused_polls > 0 {
            self.yields.was_in_vain();
        }
        if let Some(sleep) = self.timed_sleeps.next(self.waited(wait)) {
            wait.state = State::TimedSleep {
                length: sleep.length,
                poll_nanos: sleep.poll_nanos,
            };
            return Step::SleepFor(sleep.length);
        }
        self.timed_sleeps.slept_on();
        wait.state = State::Asleep;
        Step::Sleep
    }

    /// Sleeps until the packet comes, at once or behind a timed sleep that was in vain or could not be.
    fn sleep(&mut self, wait: &mut Wait) -> Step {
        wait.before = self.waited(wait);
        (wait.first_polls, wait.paused_polls, wait.excused) = (0, 0, 0);
        wait.polls.left = 0;
        wait.state = State::Asleep;
        Step::Sleep
    }

    /// Has a wait that has begun go on for as long as the peer, which was just woken, takes to get up: this
    /// side has learned from itself how long that is. Falling asleep meanwhile would be falling asleep at the
    /// moment of the answer, and the peer, finding this side asleep, would do the same: once out of step,
    /// both would sleep through every wait. Only where polling is worth it at all, and where the peer gets up
    /// within twice the longest window: where it takes longer, processors are busy with others.
    fn await_sleeper(&self, wait: &mut Wait) {
        if self.rules.has(Rule::AwaitSleeper)
            && self.adaptive
            && self.window > 0
            && self.wake_nanos / 2 <= self.max_window
        {
            // Half more, since one wake-up is not like the other.
            wait.excused = self.wake_nanos + self.wake_nanos / 2;
            wait.window_left = wait.window_left.saturating_add(wait.excused);
        }
    }

    /// Nanoseconds of polling that were planned since the wait or its last timed sleep.
    fn polled(&self, wait: &Wait) -> u64 {
        self.rates.nanos(u64::from(wait.first_polls), wait.paused_polls)
    }

    /// How long the wait has been, but for a sleep that is not over.
    fn waited(&self, wait: &Wait) -> u64 {
        let left = u64::from(wait.polls.left);
        let (first, paused) = match wait.paused_polls {
            0 => (u64::from(wait.first_polls).saturating_sub(left), 0),
            paused => (u64::from(wait.first_polls), paused.saturating_sub(left)),
        };
        let polled = self.rates.nanos(first, paused).saturating_sub(wait.excused);
        wait.before.saturating_add(polled)
    }

    /// A wait has ended with its first polls.
    #[inline]
    pub(super) fn found_at_once(&mut self, wait: &Wait) {
        if self.adaptive {
            let polls = u64::from(wait.first_polls - wait.polls.left);
            self.lengths.record(self.rates.nanos(polls, 0));
        }
    }

    /// A wait has ended while this side polled.
    pub(super) fn found(&mut self, wait: &Wait) {
        if !self.adaptive {
            return;
        }
        let nanos = self.waited(wait);
        self.lengths.record(nanos);
        if matches!(wait.state, State::LastPolls | State::LastYield) {
            self.learn_from_sleep(nanos);
        }
    }

    /// A wait has ended while this side slept.
    pub(super) fn woken(&mut self, wait: &Wait, slept: Slept) {
        if let State::TimedSleep { length, .. } = wait.state
            // A packet can have come before this side got up, though that was later than it meant to.
            && slept.whole > length
        {
            self.timed_sleeps.got_up(slept.whole - length);
        }
        if slept.was_woken {
            let took = nanos_of(slept.whole - slept.needed).max(1);
            self.wake_nanos = match self.wake_nanos {
                0 => took,
                known => known - known / 4 + took / 4,
            };
        }
        if self.adaptive {
            self.yields.slept(nanos_of(slept.whole));
            let needed = if self.rules.has(Rule::CountUntilRung) {
                slept.needed
            } else {
                slept.whole
            };
            let nanos = self.waited(wait).saturating_add(nanos_of(needed));
            self.lengths.record(nanos);
            self.learn_from_sleep(nanos);
        }
    }

    fn learn_from_sleep(&mut self, nanos: u64) {
        self.timed_sleeps.record(nanos);
        self.review();
    }

    /// Computes the window that would have been cheapest over the history.
    #[cold]
    fn review(&mut self) {
        // Polling for as long as being woken takes costs no more than being woken: where that is longer than
        // the longest window, as in virtual machines, up to twice as long. Where it takes even longer,
        // processors are busy with others.
        let twice = self.max_window.saturating_mul(2);
        let is_longer = self.wake_nanos > self.max_window && self.wake_nanos <= twice;
        let longest = if is_longer && self.rules.has(Rule::WakeWindow) {
            twice
        } else {
            self.max_window
        };
        let best = self.lengths.review(longest);
        // What is a little late now and then, for an interrupt, is worth waiting for: in regular waits it
        // costs nothing.
        let least = if best > 0 && self.rules.has(Rule::LeastWindow) {
            self.max_window / 8
        } else {
            0
        };
        let is_fixed = !self.rules.has(Rule::Window);
        self.set_window(if is_fixed {
            self.max_window
        } else {
            best.max(least)
        });
    }
}

fn nanos_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod scenarios;
#[cfg(all(test, not(loom)))]
mod scheduler;
#[cfg(all(test, not(loom)))]
mod simulator;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod trace_tests;
