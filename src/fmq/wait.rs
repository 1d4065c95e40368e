//! How long to poll before sleeping.
//!
//! Sleeping costs the waiter some 8 us of latency and the waker a system call; polling costs a processor.
//! Which is better depends on how long the wait would be, which is learned: the policy keeps a short history
//! of waits in classes, two for each doubling of length, and polls for as long as would have been cheapest
//! over that history, counting a sleep as expensive as polling for the longest allowed window. So it polls
//! through regular short waits, gives up at once where waits are long, and between the two polls as long as
//! the short ones among them take.
//!
//! Waits that are too long to poll through but alike are slept through until a little before their end, and
//! polled for then: [`super::timed_sleep`].
//!
//! Where threads that poll outnumber processors, each lets the others go first: [`super::yield_policy`].
//! Where threads that compute do, waits last until the peer gets its turn, which is longer than any window,
//! so polling stops by the rule above: such threads are not let go first for long. Within one process, no
//! more threads poll than there are processors: those that come last sleep at once ([`SpinPermit`]).
//!
//! That count ends at the process on purpose. One of all workers of a driver could be kept cheaply, in the
//! page in which they count who computes, but it would know only half of those that poll: applications poll
//! as many, and need not be honest. It could answer by sleep alone: from then on each request costs the
//! application of a worker that was turned away a system call, and the worker the time to wake up, which
//! together are several times what letting others go first costs, while those that have got their permits
//! poll on. And a worker that has been taken over could put all others to sleep. The system knows of every
//! thread that wants a processor, of whichever process, and it is asked by an offer to let others go first.
//! Within one process the bound needs no system call, and nobody else's threads are concerned.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::calibrate::PollRates;
use super::timed_sleep::{TimedSleep, TimedSleepPolicy};
use super::yield_policy::YieldPolicy;
use nnhal_os::cpu;

/// How an end of a ring waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitSettings {
    /// Poll for a window that follows the measured waits, at most `max_window`; after a timed sleep, and
    /// where being woken takes longer than that, at most twice that.
    Adaptive {
        /// The longest window.
        max_window: Duration,
    },
    /// Poll for this long, then sleep.
    Fixed {
        /// The window.
        window: Duration,
    },
    /// Sleep at once: the low-power preference.
    Sleep,
}

impl Default for WaitSettings {
    /// Adaptive, with 100 us as the longest window: small models, which take less, are waited for without
    /// sleeping.
    fn default() -> Self {
        Self::Adaptive {
            max_window: Duration::from_micros(100),
        }
    }
}

/// How long a wait took and how it was spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    /// Nanoseconds from the start of the wait to its end.
    pub nanos: u64,
    /// Whether the waiter slept.
    pub slept: bool,
}

impl Waited {
    pub(super) fn and_slept(self, slept: Duration) -> Self {
        let slept = u64::try_from(slept.as_nanos()).unwrap_or(u64::MAX);
        Self {
            nanos: self.nanos.saturating_add(slept),
            slept: true,
        }
    }
}

/// Classes of waits: below 512 ns, below 768, below 1024 and so on, two for each doubling; the last has no
/// bound.
const CLASSES: usize = 26;
const FIRST_CLASS_BITS: u32 = 9;
/// The weight of a new wait in the history, and the total at which all weights are halved: 64 waits ago
/// counts half.
const WEIGHT: u32 = 16;
const FULL: u32 = 64 * 2 * WEIGHT;
/// Waits that fit the window change it slowly, so it is computed anew after this many.
const REVIEW_AFTER: u32 = 16;

/// Learns from past waits how long to poll in the next.
#[derive(Clone, Debug)]
pub struct WaitPolicy {
    max_window: u64,
    adaptive: bool,
    /// The present window in nanoseconds.
    window: u64,
    /// How many polls its first stretch has.
    eager_polls: u32,
    weights: [u32; CLASSES],
    total: u32,
    /// The longest that a window may be now, and the weight of waits that it caught, in the same history.
    longest: u64,
    within_longest: u32,
    since_review: u32,
    /// How long this side took to get up once it was woken, smoothed, in nanoseconds; 0 if it never slept.
    wake_nanos: u64,
    yield_policy: YieldPolicy,
    timed_sleeps: TimedSleepPolicy,
    rates: PollRates,
}

impl WaitPolicy {
    /// A policy without history: it polls for the longest window until it has learned.
    pub fn new(settings: WaitSettings) -> Self {
        Self::with_rates(settings, PollRates::get())
    }

    fn with_rates(settings: WaitSettings, rates: PollRates) -> Self {
        let (window, adaptive) = match settings {
            WaitSettings::Adaptive { max_window } => (max_window, true),
            WaitSettings::Fixed { window } => (window, false),
            WaitSettings::Sleep => (Duration::ZERO, false),
        };
        // On a single processor the peer cannot run while this side polls.
        let window = if rates.cpus < 2 { Duration::ZERO } else { window };
        let max_window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let mut policy = Self {
            max_window,
            adaptive: adaptive && max_window > 0,
            window: 0,
            eager_polls: 0,
            weights: [0; CLASSES],
            total: 0,
            longest: max_window,
            within_longest: 0,
            since_review: 0,
            wake_nanos: 0,
            yield_policy: YieldPolicy::default(),
            timed_sleeps: TimedSleepPolicy::default(),
            rates,
        };
        if policy.adaptive {
            policy.timed_sleeps = TimedSleepPolicy::new(max_window);
        }
        policy.set_window(max_window);
        policy
    }

    /// One that sleeps through the next wait by a timer, whatever time it takes, and polls a few times behind
    /// it: loom knows no time, and what depends on it would not be the same in each of its executions.
    #[cfg(all(test, loom))]
    pub(super) fn napping() -> Self {
        const LONG: u64 = 1_000_000_000_000;
        let mut policy = Self::with_rates(WaitSettings::Sleep, PollRates::slow());
        policy.adaptive = true;
        policy.timed_sleeps = TimedSleepPolicy::new(STRETCH_NANOS);
        (0..64).for_each(|_| policy.timed_sleeps.record(LONG));
        policy.yield_policy = YieldPolicy::paused();
        assert!(policy.timed_sleep(&policy.start()).is_some());
        policy
    }

    fn set_window(&mut self, nanos: u64) {
        self.window = nanos;
        self.set_eager_polls();
    }

    /// Where others want the processor, they are asked before this side polls.
    fn set_eager_polls(&mut self) {
        self.eager_polls = if self.yield_policy.is_crowded() {
            0
        } else {
            self.rates.eager_polls(self.window.min(EAGER_NANOS))
        };
    }

    /// How long the next wait polls before it sleeps.
    pub fn window(&self) -> Duration {
        Duration::from_nanos(self.window)
    }

    /// Whether the window depends on what is recorded.
    pub fn is_adaptive(&self) -> bool {
        self.adaptive
    }

    /// Learns from a wait that is over.
    #[inline]
    pub fn record(&mut self, waited: Waited) {
        if !self.adaptive {
            return;
        }
        // The class is below CLASSES by its definition.
        self.weights[class_of(waited.nanos)] += WEIGHT;
        self.total += WEIGHT;
        self.within_longest += if waited.nanos <= self.longest { WEIGHT } else { 0 };
        self.since_review += 1;
        if waited.slept {
            self.timed_sleeps.record(waited.nanos);
            self.review();
        }
    }

    /// Computes the window anew if enough waits have been recorded. To be called before a wait, which mostly
    /// is longer than this takes: after it, the packet that has come would wait.
    #[inline]
    pub fn review_if_due(&mut self) {
        if self.since_review >= REVIEW_AFTER {
            self.review();
        }
    }

    /// Learns how long getting up took.
    pub(super) fn record_wake(&mut self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.wake_nanos = match self.wake_nanos {
            0 => took,
            known => known - known / 4 + took / 4,
        };
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn wake_nanos(&self) -> u64 {
        self.wake_nanos
    }

    /// How long to sleep before polling again, if that is worth it, in a wait that has polled as this says.
    pub(super) fn timed_sleep(&self, spin: &Spin) -> Option<TimedSleep> {
        self.timed_sleeps.next(spin.waited().nanos)
    }

    /// What timed sleeps learn from.
    pub(super) fn timed_sleeps(&mut self) -> &mut TimedSleepPolicy {
        &mut self.timed_sleeps
    }

    /// A wait was longer than the first polls.
    pub(super) fn begin_long_wait(&mut self, spin: &mut Spin) {
        if self.adaptive {
            spin.offer_at = self.yield_policy.begin();
        }
    }

    /// Starts a stretch of polling with pauses, if there is one more; offers the processor to others before
    /// it where it is time to.
    pub(super) fn next_stretch(&mut self, spin: &mut Spin) -> bool {
        if !spin.may_go_on() {
            return false;
        }
        let polled = spin.polled_nanos();
        if spin.offer_at.is_some_and(|at| at <= polled) {
            spin.offer_at = self.yield_policy.offer(polled);
            self.set_eager_polls();
        }
        let until_offer = spin
            .offer_at
            .map_or(u64::MAX, |at| at.saturating_sub(polled).max(1));
        spin.next_stretch(until_offer.min(STRETCH_NANOS))
    }

    /// Ends the polling of a wait, since the thread goes to sleep.
    pub(super) fn stop(&mut self, spin: &mut Spin) {
        if spin.paused {
            self.yield_policy.was_in_vain();
        }
        spin.stop();
    }

    /// Has a wait that has begun go on for as long as the peer, which was just woken, takes to get up: this
    /// side has learned from itself how long that is. Falling asleep meanwhile would be falling asleep at the
    /// moment of the answer, and the peer, finding this side asleep, would do the same: once out of step,
    /// both would sleep through every wait. Only where polling is worth it at all, and where the peer gets up
    /// within twice the longest window: where it takes longer, processors are busy with others.
    pub(super) fn await_sleeper(&self, spin: &mut Spin) {
        if self.adaptive && self.window > 0 && self.wake_nanos / 2 <= self.max_window {
            // Half more, since one wake-up is not like the other.
            spin.excused = self.wake_nanos + self.wake_nanos / 2;
            spin.window_left = spin.window_left.saturating_add(spin.excused);
        }
    }

    /// Starts a wait.
    #[inline]
    pub(super) fn start(&self) -> Spin {
        Spin {
            left: self.eager_polls,
            eager_polls: self.eager_polls,
            paused_polls: 0,
            paused: false,
            pause: if self.rates.eager_pauses {
                Pause::Brief
            } else {
                Pause::None
            },
            window_left: match self.eager_polls {
                0 => self.window,
                _ => self.window.saturating_sub(EAGER_NANOS),
            },
            excused: 0,
            offer_at: None,
            rates: self.rates,
            permit: None,
        }
    }

    /// Starts polling again after a timed sleep, for so many nanoseconds.
    pub(super) fn start_after_sleep(&self, nanos: u64) -> Spin {
        Spin {
            left: 0,
            eager_polls: 0,
            window_left: nanos,
            offer_at: self.yield_policy.begin_after_sleep(),
            ..self.start()
        }
    }

    /// Polling for as long as being woken takes costs no more than being woken: where that is longer than the
    /// longest window, as in virtual machines, up to twice as long. Where it takes even longer, processors
    /// are busy with others.
    fn longest_window(&self) -> u64 {
        let twice = self.max_window.saturating_mul(2);
        let is_idle = self.wake_nanos <= twice;
        self.max_window.max(if is_idle { self.wake_nanos } else { 0 })
    }

    /// Computes the window that would have been cheapest over the history.
    #[cold]
    fn review(&mut self) {
        self.since_review = 0;
        if self.total >= FULL {
            self.weights.iter_mut().for_each(|weight| *weight /= 2);
            self.total = self.weights.iter().sum();
            self.within_longest /= 2;
        }
        let total = u64::from(self.total);
        let longest = self.longest_window();
        if longest != self.longest {
            // Of the class that it cuts it is not known how much it would have caught.
            let caught = (0..CLASSES).filter(|class| class_start(*class) < longest);
            self.within_longest = caught.map(|class| self.weights[class]).sum();
            self.longest = longest;
        }
        // Halves are rounded down one by one.
        self.within_longest = self.within_longest.min(self.total);
        let sleep_cost = longest;
        let (mut best_window, mut best_cost) = (0, total.saturating_mul(sleep_cost));
        let (mut caught, mut polled) = (0_u64, 0_u64);
        for (class, &weight) in self.weights.iter().enumerate().take(CLASSES - 1) {
            // The class that the longest window cuts is caught as far as that would have.
            let window = class_end(class).min(longest);
            let weight = if class_end(class) <= longest {
                u64::from(weight)
            } else {
                u64::from(self.within_longest).saturating_sub(caught)
            };
            caught += weight;
            polled = polled.saturating_add(weight.saturating_mul(window / 8 * 7));
            let missed = (total - caught).saturating_mul(window.saturating_add(sleep_cost));
            let cost = polled.saturating_add(missed);
            if cost < best_cost {
                (best_window, best_cost) = (window, cost);
            }
            if window == longest {
                break;
            }
        }
        // What is a little late now and then, for an interrupt, is worth waiting for: in regular waits it
        // costs nothing.
        let least = if best_window > 0 { self.max_window / 8 } else { 0 };
        self.set_window(best_window.max(least));
    }
}

#[inline]
fn class_of(nanos: u64) -> usize {
    let Some(doublings) = nanos.max(1).ilog2().checked_sub(FIRST_CLASS_BITS) else {
        return 0;
    };
    let is_upper_half = nanos >> (doublings + FIRST_CLASS_BITS - 1) & 1;
    let class = 1 + 2 * doublings as usize + is_upper_half as usize;
    class.min(CLASSES - 1)
}

/// The waits of a class are shorter than this many nanoseconds.
fn class_end(class: usize) -> u64 {
    let Some(above) = class.checked_sub(1) else {
        return 1 << FIRST_CLASS_BITS;
    };
    let start = 1 << (FIRST_CLASS_BITS as usize + above / 2);
    if above % 2 == 0 { start / 2 * 3 } else { start * 2 }
}

/// No wait of a class is shorter than this many nanoseconds.
fn class_start(class: usize) -> u64 {
    class.checked_sub(1).map_or(0, class_end)
}

/// For so long a wait polls as fast as is best on this machine, so that the shortest round trips are seen at
/// once.
const EAGER_NANOS: u64 = 1000;
/// For so long a wait polls with pauses before it looks at the deadline and the end again.
const STRETCH_NANOS: u64 = 20_000;

/// Threads of this process that poll with pauses.
static SPINNING: AtomicU32 = AtomicU32::new(0);

/// One wait's polling.
#[derive(Debug)]
pub(super) struct Spin {
    /// Polls left in this stretch.
    left: u32,
    /// Polls planned without pause.
    eager_polls: u32,
    /// Polls planned with pauses so far.
    paused_polls: u64,
    /// Whether the present stretch is one of those after the first.
    paused: bool,
    /// How its polls pause.
    pause: Pause,
    /// Nanoseconds of the window not yet planned.
    window_left: u64,
    /// Nanoseconds of the wait that the peer's getting up may take, which say nothing about the next wait.
    excused: u64,
    /// After how many nanoseconds of polling to offer the processor to others; `None` for never.
    offer_at: Option<u64>,
    rates: PollRates,
    permit: Option<SpinPermit>,
}

/// What is between two polls.
#[derive(Clone, Copy, Debug)]
enum Pause {
    None,
    Brief,
    Full,
}

impl Spin {
    /// Whether to poll once more in this stretch; pauses if it is one with pauses.
    #[inline(always)]
    pub(super) fn next(&mut self) -> bool {
        self.next_of(1)
    }

    /// The same where a poll takes as long as so many, but for pauses: with one that hardly counts.
    #[inline(always)]
    pub(super) fn next_of(&mut self, polls: u32) -> bool {
        if self.left == 0 {
            return false;
        }
        let polls = if matches!(self.pause, Pause::None) {
            polls
        } else {
            1
        };
        self.left = self.left.saturating_sub(polls);
        match self.pause {
            Pause::None => {}
            Pause::Brief => cpu::relax_briefly(),
            Pause::Full => cpu::relax(),
        }
        true
    }

    /// Nanoseconds of polling that were planned so far.
    fn polled_nanos(&self) -> u64 {
        self.rates.nanos(u64::from(self.eager_polls), self.paused_polls)
    }

    /// Whether the window has not passed and not too many threads poll already.
    fn may_go_on(&mut self) -> bool {
        if self.window_left > 0 && self.permit.is_none() {
            self.permit = SpinPermit::take(&SPINNING, self.rates.cpus);
            if self.permit.is_none() {
                self.window_left = 0;
            }
        }
        self.window_left > 0
    }

    /// Starts a stretch with pauses of at most so many nanoseconds, if there is one more.
    fn next_stretch(&mut self, nanos: u64) -> bool {
        if !self.may_go_on() {
            return false;
        }
        let stretch = self.window_left.min(nanos);
        self.window_left -= stretch;
        (self.paused, self.pause) = (true, Pause::Full);
        self.left = self.rates.paused_polls(stretch).max(1);
        self.paused_polls += u64::from(self.left);
        true
    }

    /// Ends the polling, since the thread goes to sleep.
    fn stop(&mut self) {
        self.permit = None;
    }

    /// How long the polling took so far.
    #[inline]
    pub(super) fn waited(&self) -> Waited {
        let left = u64::from(self.left);
        let (eager, paused) = if self.paused {
            (u64::from(self.eager_polls), self.paused_polls - left)
        } else {
            (u64::from(self.eager_polls) - left, 0)
        };
        Waited {
            nanos: self.rates.nanos(eager, paused).saturating_sub(self.excused),
            slept: false,
        }
    }
}

/// The right of a thread to poll with pauses; at most one for each processor.
#[derive(Debug)]
struct SpinPermit(&'static AtomicU32);

impl SpinPermit {
    /// One of `most`, if not all of them are taken, as `taken` counts.
    fn take(taken: &'static AtomicU32, most: u32) -> Option<Self> {
        if taken.fetch_add(1, Ordering::Relaxed) < most {
            return Some(Self(taken));
        }
        taken.fetch_sub(1, Ordering::Relaxed);
        None
    }
}

impl Drop for SpinPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
#[path = "wait_tests.rs"]
mod tests;
#[cfg(all(test, not(loom)))]
#[path = "wait_trace_tests.rs"]
mod trace_tests;
