//! The words between the policy and who waits: what is to be done, and what came of it.

use std::time::Duration;

use crate::fmq::calibrate::Pause;

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

/// What a thread that waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fmq) enum Step {
    /// Poll as [`super::Wait::polls`] says; [`Event::Polled`] if nothing came.
    Poll,
    /// Offer the processor to other threads, then [`Event::Yielded`].
    Yield,
    /// Sleep for so long at most; [`Event::SleptFor`] if nothing came.
    SleepFor(Duration),
    /// Sleep until something comes.
    Sleep,
}

/// What came of a step, where that was no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fmq) enum Event {
    /// The polls are over. `has_rung` says after the first ones whether this process has woken the peer since
    /// it last waited for long: what is waited for must wait for the peer to get up.
    Polled { has_rung: bool },
    /// The processor was offered: for how long this thread was away, and whether another has had it.
    Yielded { took: Duration, was_switched: bool },
    /// The timed sleep is over, after so long.
    SleptFor(Duration),
    /// There is to be no more polling.
    Stopped,
}

/// How a sleep was that a packet has ended.
#[derive(Clone, Copy, Debug)]
pub(in crate::fmq) struct Slept {
    /// How long it was.
    pub(in crate::fmq) whole: Duration,
    /// How much of it passed before somebody rang.
    pub(in crate::fmq) needed: Duration,
    /// Whether somebody rang.
    pub(in crate::fmq) was_woken: bool,
}

impl Slept {
    /// A sleep that nothing has ended that was waited for.
    pub(in crate::fmq) fn in_vain(whole: Duration) -> Slept {
        Slept {
            whole,
            needed: whole,
            was_woken: false,
        }
    }
}

/// Some polls to come.
#[derive(Clone, Copy, Debug)]
pub(in crate::fmq) struct Polls {
    pub(super) left: u32,
    pub(super) pause: Pause,
}

impl Polls {
    /// Whether to poll once more; pauses before it if these polls do. With a poll that takes as long as
    /// `weight` polls, but for pauses.
    #[inline(always)]
    pub(in crate::fmq) fn next(&mut self, weight: u32) -> bool {
        if self.left == 0 {
            return false;
        }
        let weight = if matches!(self.pause, Pause::None) {
            weight
        } else {
            1
        };
        self.left = self.left.saturating_sub(weight);
        self.pause.pause();
        true
    }

    /// Has the polls so far be done, and so many more.
    #[cfg(all(test, not(loom)))]
    pub(in crate::fmq) fn skip(&mut self, polls: u32) {
        self.left = self.left.saturating_sub(polls);
    }

    #[cfg(all(test, not(loom)))]
    pub(in crate::fmq) fn left(&self) -> u32 {
        self.left
    }
}
