//! Whether helpers are worth it for an execution, learned by trying.
//!
//! How long a processor takes to fetch what another one has computed differs by a factor of three from
//! machine to machine, and decides whether executions of many operations of a few microseconds each are
//! faster with helpers or without. By the threshold alone `tiny_kws_int8` takes 37 % longer with two threads
//! on an AMD EPYC (Zen 3) of two processors.

use std::time::{Duration, Instant};

use super::Threads;
use crate::plan::cost::{
    LEAST_PERIOD, MIN_FOR_HELPERS, MIN_FOR_HELPERS_ALWAYS, MIN_FOR_TRIAL, MOST_PERIOD, SETTLING, TRIED,
};

/// How the executions of a program compute: with helpers, or alone where that has been faster.
#[derive(Debug)]
pub(crate) struct ParallelismTuner {
    is_alone: bool,
    /// Whether that has been chosen.
    has_begun: bool,
    /// Executions since the other way was last begun to be tried.
    step: u32,
    period: u32,
    /// The shortest execution in the other way, and in this one after it.
    tried: Duration,
    kept: Duration,
}

/// An execution whose time is compared.
#[derive(Debug)]
pub(crate) struct Timed(Option<Instant>);

impl Default for ParallelismTuner {
    fn default() -> ParallelismTuner {
        ParallelismTuner {
            is_alone: false,
            has_begun: false,
            // Helpers are new, and slow at first: the other way is not tried before the end of a period.
            step: 2 * TRIED,
            period: LEAST_PERIOD,
            tried: Duration::MAX,
            kept: Duration::MAX,
        }
    }
}

impl ParallelismTuner {
    /// What the next execution computes with, of what it may compute with: all of it or its own thread.
    /// `expected` is about how many microseconds one thread takes for operations that can be parted.
    #[inline]
    pub(crate) fn begin<'a>(&mut self, threads: Threads<'a>, expected: u64) -> (Threads<'a>, Timed) {
        if !(MIN_FOR_TRIAL..MIN_FOR_HELPERS_ALWAYS).contains(&expected) || threads.most() == 1 {
            return (threads, Timed(None));
        }
        // Waking a helper takes as long as a good part of a short execution: those begin alone.
        if !self.has_begun {
            (self.has_begun, self.is_alone) = (true, expected < MIN_FOR_HELPERS);
        }
        let timed = Timed(Some(Instant::now()));
        if self.is_next_alone() {
            (threads.without_helpers(), timed)
        } else {
            (threads, timed)
        }
    }

    /// Whether the next execution will have helpers if it can, which is `expected` to take so long.
    pub(crate) fn wants_helpers(&self, expected: u64) -> bool {
        let is_tried = expected >= MIN_FOR_HELPERS || expected >= MIN_FOR_TRIAL && self.has_begun;
        expected >= MIN_FOR_HELPERS_ALWAYS || is_tried && !self.is_next_alone()
    }

    fn is_next_alone(&self) -> bool {
        self.is_alone ^ (self.step < TRIED)
    }

    /// Learns from an execution that has ended, unless it has failed: then it may have been cut short.
    pub(crate) fn end(&mut self, timed: &Timed, has_succeeded: bool) {
        match timed {
            Timed(Some(started)) if has_succeeded => self.learn(started.elapsed()),
            Timed(Some(_)) => self.learn(Duration::MAX),
            Timed(None) => {}
        }
    }

    fn learn(&mut self, took: Duration) {
        if (SETTLING..TRIED).contains(&self.step) {
            self.tried = self.tried.min(took);
        } else if (TRIED + SETTLING..2 * TRIED).contains(&self.step) {
            self.kept = self.kept.min(took);
        }
        self.step += 1;
        if self.step == 2 * TRIED {
            self.decide();
        }
        if self.step >= self.period {
            self.step = 0;
            (self.tried, self.kept) = (Duration::MAX, Duration::MAX);
        }
    }

    fn decide(&mut self) {
        if self.tried < self.kept && self.kept - self.tried > self.kept / 16 {
            self.is_alone = !self.is_alone;
            self.period = LEAST_PERIOD;
        } else {
            self.period = (2 * self.period).min(MOST_PERIOD);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use nnhal_os::cores::OwnCores;

    use super::super::{Helpers, Threads};
    use super::{
        MIN_FOR_HELPERS, MIN_FOR_HELPERS_ALWAYS, MIN_FOR_TRIAL, MOST_PERIOD, ParallelismTuner, Timed,
    };

    /// How many of so many executions are alone, which take so long if they are and if they are not.
    fn alone_of(tuner: &mut ParallelismTuner, count: u32, alone: u64, helped: u64) -> u32 {
        let mut found = 0;
        for _ in 0..count {
            let is_alone = tuner.is_next_alone();
            found += u32::from(is_alone);
            tuner.learn(Duration::from_micros(if is_alone { alone } else { helped }));
        }
        found
    }

    #[test]
    fn helpers_are_wanted_where_the_next_execution_has_them() {
        let mut tuner = ParallelismTuner::default();
        assert!(tuner.wants_helpers(MIN_FOR_HELPERS_ALWAYS) && tuner.wants_helpers(MIN_FOR_HELPERS));
        assert!(!tuner.wants_helpers(MIN_FOR_HELPERS - 1));
        alone_of(&mut tuner, 2 * MOST_PERIOD, 50, 100);
        assert!(tuner.is_alone && !tuner.wants_helpers(MIN_FOR_HELPERS));
        assert!(tuner.wants_helpers(MIN_FOR_HELPERS_ALWAYS));
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_hardly_tried() {
        let mut tuner = ParallelismTuner::default();
        alone_of(&mut tuner, 10_000, 70, 80);
        assert!(alone_of(&mut tuner, 10_000, 70, 80) >= 9_970);
        // The machine is another one now.
        alone_of(&mut tuner, MOST_PERIOD + 100, 90, 60);
        alone_of(&mut tuner, 10_000, 90, 60);
        assert!(alone_of(&mut tuner, 10_000, 90, 60) <= 40);
    }

    #[test]
    fn what_is_hardly_faster_changes_nothing() {
        let mut tuner = ParallelismTuner::default();
        assert!(alone_of(&mut tuner, 1000, 78, 80) <= 40);
    }

    #[test]
    fn one_slow_execution_does_not_count() {
        let mut tuner = ParallelismTuner {
            step: 0,
            ..ParallelismTuner::default()
        };
        for step in 0..2 * super::TRIED {
            let is_alone = tuner.is_next_alone();
            let slow = if step == super::TRIED + 3 { 5000 } else { 0 };
            tuner.learn(Duration::from_micros(slow + if is_alone { 80 } else { 60 }));
        }
        assert!(!tuner.is_next_alone());
    }

    #[test]
    fn a_way_in_which_executions_fail_is_left() {
        let mut tuner = ParallelismTuner::default();
        let mut failures = 0;
        for _ in 0..1000 {
            let timed = super::Timed(Some(std::time::Instant::now()));
            let is_alone = tuner.is_next_alone();
            failures += u32::from(is_alone);
            tuner.end(&timed, !is_alone);
        }
        assert!(failures <= 4 * super::TRIED, "{failures}");
    }

    #[test]
    fn only_doubtful_executions_are_compared() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let threads = Threads::new(&helpers, &cores, 2);
        let mut tuner = ParallelismTuner {
            step: 0,
            ..ParallelismTuner::default()
        };
        let mut begin = |threads, expected| {
            let (threads, timed) = tuner.begin(threads, expected);
            (threads.most(), timed.0.is_some())
        };
        assert_eq!(begin(threads, MIN_FOR_TRIAL - 1), (2, false));
        assert_eq!(begin(threads, MIN_FOR_HELPERS), (1, true));
        assert_eq!(begin(threads, MIN_FOR_HELPERS_ALWAYS), (2, false));
        assert_eq!(begin(Threads::ALONE, MIN_FOR_HELPERS), (1, false));
    }

    #[test]
    fn short_executions_begin_alone_and_long_ones_with_helpers() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let threads = Threads::new(&helpers, &cores, 2);
        for (expected, most) in [(MIN_FOR_TRIAL, 1), (MIN_FOR_HELPERS - 1, 1), (MIN_FOR_HELPERS, 2)] {
            let mut tuner = ParallelismTuner::default();
            let (begun, Timed(Some(_))) = tuner.begin(threads, expected) else {
                unreachable!("it is compared");
            };
            assert_eq!((begun.most(), tuner.wants_helpers(expected)), (most, most == 2));
            // What is faster is found.
            alone_of(&mut tuner, 1000, 40, 30);
            assert!(tuner.wants_helpers(expected));
        }
    }
}
