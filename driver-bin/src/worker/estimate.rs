//! How long a model takes at least, as far as it has been seen.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{ErrorStatus, Failure, Operand};
use nnhal_os::time::TimePoint;

use super::limits::RunLimits;

/// Runs that must have been timed before anything is refused.
const ENOUGH_RUNS: u32 = 3;

/// An execution is refused that would have to be this many times faster than any before.
const MARGIN: u32 = 2;

/// The fastest run of a model. Runs are timed that have a deadline or are measured: the others need no clock.
#[derive(Debug)]
pub(crate) struct Estimate {
    /// Whether all runs do the same work: no operand of the model is of open dimensions, and nothing loops or
    /// branches.
    is_steady: bool,
    /// Nanoseconds.
    fastest: AtomicU64,
    runs: AtomicU32,
}

impl Estimate {
    pub(crate) fn of(model: &ValidModel) -> Estimate {
        let main = &model.model().main;
        let is_known = |operand: &Operand| {
            !operand.dimensions.contains(&0)
                && (operand.operand_type.is_scalar() || !operand.dimensions.is_empty())
        };
        let inputs = main
            .input_indexes
            .iter()
            .filter_map(|&index| main.operands.get(index as usize));
        Estimate {
            is_steady: inputs.clone().all(is_known)
                && !main
                    .operations
                    .iter()
                    .any(|operation| operation.operation_type.is_control_flow()),
            fastest: AtomicU64::new(u64::MAX),
            runs: AtomicU32::new(0),
        }
    }

    /// That of a model about which nothing can be said, for tests.
    #[cfg(test)]
    pub(crate) fn unsteady() -> Estimate {
        Estimate {
            is_steady: false,
            fastest: AtomicU64::new(u64::MAX),
            runs: AtomicU32::new(0),
        }
    }

    /// Whether all runs do the same work.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// Takes a run that succeeded into account.
    pub(crate) fn record(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.fastest.fetch_min(nanos, Ordering::Relaxed);
        // Beyond the number that is enough it does not matter, nor would a wrap.
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// The fastest run, if enough of them have shown it.
    fn fastest(&self) -> Option<Duration> {
        let is_known = self.is_steady && self.runs.load(Ordering::Relaxed) >= ENOUGH_RUNS;
        is_known.then(|| Duration::from_nanos(self.fastest.load(Ordering::Relaxed)))
    }

    /// Refuses what cannot be done by the deadline any more. Whether it could have been on an idle device
    /// decides whether it is worth another try.
    pub(crate) fn check(&self, now: TimePoint, limits: &RunLimits) -> Result<(), Failure> {
        let (Some(left), Some(fastest)) = (limits.deadline.remaining(now), self.fastest()) else {
            return Ok(());
        };
        if left.saturating_mul(MARGIN) >= fastest {
            return Ok(());
        }
        let whole = limits.deadline.remaining(limits.arrival).unwrap_or(left);
        let status = if whole.saturating_mul(MARGIN) < fastest {
            ErrorStatus::MissedDeadlinePersistent
        } else {
            ErrorStatus::MissedDeadlineTransient
        };
        Err(Failure::new(
            status,
            format!(
                "{} us are left to the deadline, the fastest execution of the model has taken {} us",
                left.as_micros(),
                fastest.as_micros()
            ),
        ))
    }

    /// The failure of a run. Where the deadline was missed, and no run has ever been as fast as it would have
    /// had to be, another try will miss it too.
    pub(crate) fn judge(&self, failure: Failure, limits: &RunLimits) -> Failure {
        let is_missed = failure.status == ErrorStatus::MissedDeadlineTransient;
        let whole = limits.deadline.remaining(limits.arrival);
        match (whole, self.fastest()) {
            (Some(whole), Some(fastest)) if is_missed && whole < fastest => Failure {
                status: ErrorStatus::MissedDeadlinePersistent,
                detail: format!(
                    "{}; there were {} us for it, the fastest execution of the model has taken {} us",
                    failure.detail,
                    whole.as_micros(),
                    fastest.as_micros()
                ),
                ..failure
            },
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_os::time::Deadline;

    use super::*;

    fn seen(is_steady: bool, runs: &[u64]) -> Estimate {
        let estimate = Estimate {
            is_steady,
            ..Estimate::unsteady()
        };
        for &micros in runs {
            estimate.record(Duration::from_micros(micros));
        }
        estimate
    }

    const ARRIVAL: TimePoint = TimePoint::from_nanos(1_000_000_000);

    /// So many microseconds for the whole.
    fn limits(whole_us: u64) -> RunLimits {
        RunLimits {
            deadline: Deadline::after(ARRIVAL, Duration::from_micros(whole_us)),
            loop_timeout: Duration::MAX,
            arrival: ARRIVAL,
        }
    }

    /// The status of a run that begins so many microseconds after its arrival.
    fn status(estimate: &Estimate, whole_us: u64, begins_us: u64) -> Option<ErrorStatus> {
        let now = ARRIVAL.saturating_add(Duration::from_micros(begins_us));
        let checked = estimate.check(now, &limits(whole_us));
        checked.err().map(|failure| failure.status)
    }

    #[test]
    fn too_little_time_is_refused_once_enough_is_known() {
        assert_eq!(status(&seen(true, &[100, 100]), 1, 0), None);
        let known = seen(true, &[300, 100, 200]);
        assert_eq!(status(&known, 50, 0), None);
        assert_eq!(status(&known, 49, 0), Some(ErrorStatus::MissedDeadlinePersistent));
        let unlimited = RunLimits {
            deadline: Deadline::NONE,
            ..limits(0)
        };
        assert_eq!(known.check(TimePoint::EPOCH, &unlimited), Ok(()));
    }

    #[test]
    fn time_that_was_lost_waiting_may_be_there_at_another_time() {
        let known = seen(true, &[100; 3]);
        assert_eq!(
            status(&known, 1000, 990),
            Some(ErrorStatus::MissedDeadlineTransient)
        );
        assert_eq!(
            status(&known, 40, 10),
            Some(ErrorStatus::MissedDeadlinePersistent)
        );
    }

    #[test]
    fn runs_that_differ_in_their_work_say_nothing() {
        assert_eq!(status(&seen(false, &[100, 100, 100, 100]), 1, 0), None);
    }

    #[test]
    fn missed_deadline_is_persistent_where_no_run_was_ever_fast_enough() {
        let missed = || Failure::new(ErrorStatus::MissedDeadlineTransient, "missed");
        let other = || Failure::general("something else");
        let known = seen(true, &[100; 3]);
        let table = [
            (&known, missed(), 99, ErrorStatus::MissedDeadlinePersistent),
            (&known, missed(), 100, ErrorStatus::MissedDeadlineTransient),
            (&known, other(), 99, ErrorStatus::GeneralFailure),
            (
                &seen(true, &[100; 2]),
                missed(),
                99,
                ErrorStatus::MissedDeadlineTransient,
            ),
            (
                &seen(false, &[100; 3]),
                missed(),
                99,
                ErrorStatus::MissedDeadlineTransient,
            ),
        ];
        for (estimate, failure, whole_us, expected) in table {
            let judged = estimate.judge(failure, &limits(whole_us));
            assert_eq!(judged.status, expected, "{judged} within {whole_us} us");
        }
    }
}
