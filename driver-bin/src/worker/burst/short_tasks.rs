//! Whether a burst's executions are brief enough for one thread to serve other bursts between them.

use std::time::Duration;

use nnhal_os::time::Stopwatch;

/// Batch of brief executions take no longer than this, which is about what waking a thread takes: others
/// wait for one as long as for a thread of their own.
const BRIEF: Duration = Duration::from_micros(20);

/// So many batch in a row must be brief before a burst is taken for one of brief executions, and so many of
/// those that are looked at must not before it is no more: one may have been interrupted.
const BRIEF_AFTER: u32 = 4;
const LONG_AFTER: u32 = 2;

/// Of a burst of brief executions one batch of so many is looked at, as reading the clock takes a good part
/// of what the shortest do.
const LOOKS_EVERY: u32 = 64;

/// Learns how long the batch of a burst take.
#[derive(Debug, Default)]
pub(super) struct ShortTaskEstimator {
    is_brief: bool,
    /// Batch in a row that were not as `is_brief` says.
    contrary: u32,
    /// Batch until the next is looked at.
    until_look: u32,
}

impl ShortTaskEstimator {
    /// Whether executions are brief, as far as is known.
    #[inline]
    pub(super) fn is_brief(&self) -> bool {
        self.is_brief
    }

    /// A batch begins. If it is one to be looked at, what this returns is for [`ShortTaskEstimator::end`].
    #[inline]
    pub(super) fn begin(&mut self) -> Option<Stopwatch> {
        if self.until_look > 0 {
            self.until_look -= 1;
            return None;
        }
        Some(Stopwatch::start())
    }

    /// A batch that is looked at has ended.
    #[cold]
    pub(super) fn end(&mut self, took: Duration) {
        // What is near the limit is left as it is.
        let is_brief = took <= if self.is_brief { 2 * BRIEF } else { BRIEF };
        let enough = if self.is_brief { LONG_AFTER } else { BRIEF_AFTER };
        self.contrary = if is_brief == self.is_brief {
            0
        } else {
            self.contrary + 1
        };
        if self.contrary == enough {
            (self.is_brief, self.contrary) = (is_brief, 0);
        }
        let is_sure = self.is_brief && self.contrary == 0;
        self.until_look = if is_sure { LOOKS_EVERY - 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(2);
    const LONG: Duration = Duration::from_millis(1);

    /// Batch that take so long; how many until it says something else.
    fn turns_after(short_tasks: &mut ShortTaskEstimator, took: Duration, most: u32) -> Option<u32> {
        let before = short_tasks.is_brief();
        (1..=most).find(|_| {
            if short_tasks.begin().is_some() {
                short_tasks.end(took);
            }
            short_tasks.is_brief() != before
        })
    }

    #[test]
    fn bursts_are_brief_after_some_brief_series() {
        let mut short_tasks = ShortTaskEstimator::default();
        assert!(!short_tasks.is_brief());
        assert_eq!(turns_after(&mut short_tasks, LONG, 100), None);
        assert_eq!(turns_after(&mut short_tasks, SHORT, 100), Some(BRIEF_AFTER));
        assert!(short_tasks.is_brief());
        assert_eq!(turns_after(&mut short_tasks, SHORT, 1000), None);
    }

    #[test]
    fn bursts_that_take_longer_again_are_seen_soon() {
        let mut short_tasks = ShortTaskEstimator::default();
        turns_after(&mut short_tasks, SHORT, 100);
        let after = turns_after(&mut short_tasks, LONG, 1000).unwrap();
        assert!(after <= LOOKS_EVERY - 1 + LONG_AFTER, "{after}");
        assert!(!short_tasks.is_brief());
    }

    #[test]
    fn one_long_series_is_no_reason() {
        let mut short_tasks = ShortTaskEstimator::default();
        turns_after(&mut short_tasks, SHORT, 100);
        for _ in 0..10 {
            while short_tasks.begin().is_none() {}
            short_tasks.end(LONG);
            assert!(short_tasks.is_brief());
            assert_eq!(turns_after(&mut short_tasks, SHORT, 10), None);
        }
        assert!(short_tasks.is_brief());
    }

    #[test]
    fn few_series_of_a_brief_burst_are_looked_at() {
        let mut short_tasks = ShortTaskEstimator::default();
        turns_after(&mut short_tasks, SHORT, 100);
        let looks =
            (0..10 * LOOKS_EVERY).filter(|_| short_tasks.begin().map(|_| short_tasks.end(SHORT)).is_some());
        assert_eq!(looks.count(), 10);
    }
}
