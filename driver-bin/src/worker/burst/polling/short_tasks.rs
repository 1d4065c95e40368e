//! The short-task estimator: how long a burst's requests take, and so how many make a batch, and whether one
//! thread may serve other bursts between them.

use std::time::Duration;

use super::rules::{Rule, Rules};

/// Short requests take no more nanoseconds than this, which is about what waking a thread takes: others wait
/// for one as long as for a thread of their own. A batch takes no longer either, as far as is known: memory
/// that the client frees is there until it ends at least, and a client that has fallen asleep at an unlucky
/// moment waits for its next result.
const SHORT: u64 = 20_000;

/// The most requests of a batch.
const LONGEST_BATCH: u32 = 16;

/// Of a burst of short tasks one single request of so many is timed, as reading the clock takes a good part
/// of what the shortest do. A batch of several is always timed, from its second request on.
const TIMED_EVERY: u32 = 64;

/// Learns how long the requests of a burst take.
#[derive(Debug)]
pub(crate) struct ShortTasks {
    /// How long a request of the last timed batch took, in nanoseconds.
    last: u64,
    are_short: bool,
    /// How many requests a batch may have.
    limit: u32,
    /// Batches until the next is timed from its start.
    until_timed: u32,
    rules: Rules,
}

impl Default for ShortTasks {
    fn default() -> ShortTasks {
        ShortTasks::with_rules(Rules::default())
    }
}

/// A batch that has begun.
#[derive(Debug)]
pub(crate) struct Batch {
    length: u32,
    limit: u32,
    /// After how many of its requests its time began to count, if it did.
    timed_after: Option<u32>,
}

impl ShortTasks {
    pub(super) fn with_rules(rules: Rules) -> ShortTasks {
        ShortTasks {
            last: u64::MAX,
            are_short: false,
            limit: 1,
            until_timed: 0,
            rules,
        }
    }

    /// Whether requests are short, as far as is known.
    #[inline]
    pub(crate) fn are_short(&self) -> bool {
        self.are_short
    }

    /// A batch begins with its first request.
    #[inline]
    pub(crate) fn begin(&mut self) -> Batch {
        let is_timed = self.until_timed == 0;
        self.until_timed = self.until_timed.saturating_sub(1);
        Batch {
            length: 1,
            limit: self.limit,
            timed_after: is_timed.then_some(0),
        }
    }

    /// A batch has ended whose time was taken: what counts of it took so long.
    #[cold]
    pub(crate) fn end(&mut self, batch: &Batch, took: Duration) {
        let Some(timed_after) = batch.timed_after else {
            return;
        };
        let requests = u64::from((batch.length - timed_after).max(1));
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / requests;
        // Two in a row are believed: one may have been interrupted, or have failed early.
        let (shorter, longer) = (nanos.min(self.last).max(1), nanos.max(self.last));
        self.last = nanos;
        let are_sure = longer <= SHORT;
        self.are_short = are_sure || self.are_short && shorter <= SHORT;
        self.limit = match () {
            () if !self.rules.has(Rule::Batches) => 1,
            () if !self.rules.has(Rule::BatchTime) => LONGEST_BATCH,
            // It fits, since it is no more than the longest.
            () => (SHORT / shorter).clamp(1, u64::from(LONGEST_BATCH)) as u32,
        };
        self.until_timed = if are_sure && self.rules.has(Rule::RareTiming) {
            TIMED_EVERY - 1
        } else {
            0
        };
    }
}

impl Batch {
    /// Whether its time counts from its start on.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed_after.is_some()
    }

    /// Whether another request may follow in this batch.
    #[inline]
    pub(crate) fn may_go_on(&self) -> bool {
        self.length < self.limit
    }

    /// Another request follows; whether the batch's time counts from now on.
    #[inline]
    pub(crate) fn go_on(&mut self) -> bool {
        let begins = self.timed_after.is_none();
        if begins {
            self.timed_after = Some(self.length);
        }
        self.length += 1;
        begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_TASK: Duration = Duration::from_micros(2);
    const LONG: Duration = Duration::from_millis(1);

    /// A batch of as many requests as may be, each of which takes so long; how many, and whether it was
    /// timed.
    fn run(tasks: &mut ShortTasks, each: Duration, queued: u32) -> (u32, bool) {
        let mut batch = tasks.begin();
        while batch.length < queued && batch.may_go_on() {
            batch.go_on();
        }
        if let Some(after) = batch.timed_after {
            tasks.end(&batch, each * (batch.length - after));
        }
        (batch.length, batch.timed_after.is_some())
    }

    /// After how many single requests that take so long it says something else.
    fn turns_after(tasks: &mut ShortTasks, each: Duration, most: u32) -> Option<u32> {
        let before = tasks.are_short();
        (1..=most).find(|_| {
            run(tasks, each, 1);
            tasks.are_short() != before
        })
    }

    #[test]
    fn tasks_are_short_after_two_short_ones() {
        let mut tasks = ShortTasks::default();
        assert!(!tasks.are_short());
        assert_eq!(turns_after(&mut tasks, LONG, 100), None);
        assert_eq!(turns_after(&mut tasks, SHORT_TASK, 100), Some(2));
        assert_eq!(turns_after(&mut tasks, SHORT_TASK, 1000), None);
    }

    #[test]
    fn tasks_that_take_longer_again_are_seen_soon() {
        let mut tasks = ShortTasks::default();
        turns_after(&mut tasks, SHORT_TASK, 100);
        let after = turns_after(&mut tasks, LONG, 1000).unwrap();
        assert!(after <= TIMED_EVERY + 1, "{after}");
    }

    #[test]
    fn one_long_request_is_no_reason() {
        let mut tasks = ShortTasks::default();
        turns_after(&mut tasks, SHORT_TASK, 100);
        for _ in 0..10 {
            while !run(&mut tasks, SHORT_TASK, 1).1 {}
            let batch = Batch {
                length: 1,
                limit: 1,
                timed_after: Some(0),
            };
            tasks.end(&batch, LONG);
            assert!(tasks.are_short());
            assert_eq!(run(&mut tasks, SHORT_TASK, 100).0, 10);
        }
    }

    #[test]
    fn one_short_request_is_no_reason() {
        let mut tasks = ShortTasks::default();
        for _ in 0..10 {
            assert_eq!(turns_after(&mut tasks, SHORT_TASK, 1), None);
            assert_eq!(turns_after(&mut tasks, LONG, 1), None);
        }
    }

    #[test]
    fn few_single_requests_are_timed() {
        let mut tasks = ShortTasks::default();
        turns_after(&mut tasks, SHORT_TASK, 100);
        let timed = (0..10 * TIMED_EVERY).filter(|_| run(&mut tasks, SHORT_TASK, 1).1);
        assert!((10..=11).contains(&timed.count()));
    }

    #[test]
    fn batches_take_about_twenty_microseconds() {
        for (micros, length) in [(1, 16), (2, 10), (5, 4), (20, 1), (1000, 1)] {
            let mut tasks = ShortTasks::default();
            let each = Duration::from_micros(micros);
            (0..4).for_each(|_| assert!(run(&mut tasks, each, 100).0 > 0));
            assert_eq!(run(&mut tasks, each, 100).0, length, "{micros} us each");
        }
    }

    #[test]
    fn batches_get_shorter_and_longer_with_the_requests() {
        let mut tasks = ShortTasks::default();
        let mut lengths = |each, batches: usize| -> Vec<u32> {
            (0..batches).map(|_| run(&mut tasks, each, 100).0).collect()
        };
        assert_eq!(lengths(SHORT_TASK, 4), [1, 10, 10, 10]);
        assert_eq!(lengths(LONG, 4), [10, 10, 1, 1]);
        assert_eq!(lengths(SHORT_TASK, 3), [1, 10, 10]);
    }
}
