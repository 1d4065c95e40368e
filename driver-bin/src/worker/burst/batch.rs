//! How many requests that are queued behind each other a burst carries out in one go.

use std::time::Duration;

use nnhal_os::time::Stopwatch;

/// The most requests of a batch.
const LONGEST: u32 = 16;

/// How long a batch may take: memory that the client frees is there until it ends at least, and a client
/// that has fallen asleep at an unlucky moment waits for its next result. This is looked at in the middle and
/// at the end of the longest batch, and at the end of others, as reading the clock takes a good part of what
/// the shortest requests do: what was too long makes the next ones shorter.
const PATIENCE: Duration = Duration::from_micros(20);

/// Behind every how many requests of a batch its time is looked at.
const LOOKS_EVERY: u32 = 8;

/// After how many requests, each by itself, a second one in a batch is tried again.
const AGAIN_AFTER: u32 = 256;

/// Learns how many requests of a burst make a batch that is short enough.
#[derive(Debug)]
pub(super) struct SeriesPolicy {
    limit: u32,
    /// Batch of one request, since the limit has been 1.
    singles: u32,
}

impl Default for SeriesPolicy {
    fn default() -> SeriesPolicy {
        SeriesPolicy { limit: 2, singles: 0 }
    }
}

/// A batch that has begun.
#[derive(Debug)]
pub(super) struct Batch {
    length: u32,
    limit: u32,
    /// Since its second request; one that stays alone reads no clock.
    since: Option<Stopwatch>,
}

impl SeriesPolicy {
    /// The first request of a batch.
    #[inline]
    pub(super) fn start(&self) -> Batch {
        Batch {
            length: 1,
            limit: self.limit,
            since: None,
        }
    }

    /// A batch has ended.
    #[inline]
    pub(super) fn end(&mut self, batch: &Batch) {
        match batch.since {
            Some(since) => self.learn(batch, since.elapsed()),
            None if self.limit == 1 => self.count_single(),
            None => {}
        }
    }

    fn learn(&mut self, batch: &Batch, elapsed: Duration) {
        if elapsed > PATIENCE {
            self.limit = (self.limit / 2).max(1);
        } else if batch.length == self.limit && 2 * elapsed <= PATIENCE {
            self.limit = (self.limit * 2).min(LONGEST);
        }
    }

    fn count_single(&mut self) {
        self.singles += 1;
        if self.singles == AGAIN_AFTER {
            *self = SeriesPolicy::default();
        }
    }
}

impl Batch {
    /// Whether another request may follow in this batch.
    #[inline]
    pub(super) fn may_go_on(&self) -> bool {
        self.may_go_on_after(|| self.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// The same if it has taken so long since its second request, which is asked for only where that is
    /// looked at.
    #[inline]
    fn may_go_on_after(&self, elapsed: impl FnOnce() -> Duration) -> bool {
        self.length < self.limit && !(self.length.is_multiple_of(LOOKS_EVERY) && elapsed() > PATIENCE)
    }

    /// Another request follows.
    #[inline]
    pub(super) fn go_on(&mut self) {
        self.length += 1;
        if self.since.is_none() {
            self.since = Some(Stopwatch::start());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(2);
    const LONG: Duration = Duration::from_millis(1);

    /// A batch as long as may be, which took so long from its second request on; returns its length.
    fn run(policy: &mut SeriesPolicy, took: Duration) -> u32 {
        let mut batch = policy.start();
        while batch.may_go_on_after(|| took) {
            batch.go_on();
        }
        match batch.since {
            Some(_) => policy.learn(&batch, took),
            None => policy.end(&batch),
        }
        batch.length
    }

    #[test]
    fn series_of_short_requests_grow() {
        let mut policy = SeriesPolicy::default();
        let lengths: Vec<u32> = (0..6).map(|_| run(&mut policy, SHORT)).collect();
        assert_eq!(lengths, [2, 4, 8, 16, 16, 16]);
    }

    #[test]
    fn series_that_took_too_long_get_shorter() {
        let mut policy = SeriesPolicy::default();
        let grown: u32 = (0..4).map(|_| run(&mut policy, SHORT)).sum();
        let lengths: Vec<u32> = (0..6).map(|_| run(&mut policy, LONG)).collect();
        assert_eq!((grown, lengths), (2 + 4 + 8 + 16, vec![8, 8, 4, 2, 1, 1]));
    }

    #[test]
    fn long_requests_stay_alone_but_for_a_try_now_and_then() {
        let mut policy = SeriesPolicy::default();
        let lengths: Vec<u32> = (0..3 * AGAIN_AFTER).map(|_| run(&mut policy, LONG)).collect();
        assert_eq!(lengths.iter().filter(|length| **length > 1).count(), 3);
    }

    #[test]
    fn requests_that_come_one_by_one_change_nothing() {
        let mut policy = SeriesPolicy::default();
        for _ in 0..2 * AGAIN_AFTER {
            let batch = policy.start();
            policy.end(&batch);
        }
        assert_eq!(run(&mut policy, SHORT), 2);
    }
}
