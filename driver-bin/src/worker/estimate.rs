//! How long a model takes at least, as far as it has been seen.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nnhal::hal::{ErrorStatus, Operand};
use nnhal::time::{Deadline, TimePoint};
use nnhal::validate::ValidModel;
use nnhal::wire::Failure;

/// Runs that must have been timed before anything is refused.
const ENOUGH_RUNS: u32 = 3;

/// An execution is refused that would have to be this many times faster than any before.
const MARGIN: u32 = 2;

/// The fastest run of a model. Runs are timed that have a deadline or are measured: the others need no clock.
#[derive(Debug)]
pub(crate) struct Estimate {
    /// Whether all runs do the same work: no operand of the model is of open dimensions, and nothing loops or branches.
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

    /// Takes a run that succeeded into account.
    pub(crate) fn record(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.fastest.fetch_min(nanos, Ordering::Relaxed);
        // Beyond the number that is enough it does not matter, nor would a wrap.
        self.runs.fetch_add(1, Ordering::Relaxed);
    }

    /// Refuses what cannot be done by the deadline, however idle the device.
    pub(crate) fn check(&self, now: TimePoint, deadline: Deadline) -> Result<(), Failure> {
        let Some(left) = deadline.remaining(now) else {
            return Ok(());
        };
        if !self.is_steady || self.runs.load(Ordering::Relaxed) < ENOUGH_RUNS {
            return Ok(());
        }
        let fastest = Duration::from_nanos(self.fastest.load(Ordering::Relaxed));
        if left.saturating_mul(MARGIN) >= fastest {
            return Ok(());
        }
        Err(Failure::new(
            ErrorStatus::MissedDeadlinePersistent,
            format!(
                "{} us are left to the deadline, the fastest execution of the model has taken {} us",
                left.as_micros(),
                fastest.as_micros()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(is_steady: bool, runs: &[u64]) -> Estimate {
        let estimate = Estimate {
            is_steady,
            fastest: AtomicU64::new(u64::MAX),
            runs: AtomicU32::new(0),
        };
        for &micros in runs {
            estimate.record(Duration::from_micros(micros));
        }
        estimate
    }

    fn status(estimate: &Estimate, left_us: u64) -> Option<ErrorStatus> {
        let now = TimePoint::from_nanos(1_000_000_000);
        let deadline = Deadline::after(now, Duration::from_micros(left_us));
        estimate.check(now, deadline).err().map(|failure| failure.status)
    }

    #[test]
    fn too_little_time_is_refused_once_enough_is_known() {
        assert_eq!(status(&seen(true, &[100, 100]), 1), None);
        let known = seen(true, &[300, 100, 200]);
        assert_eq!(status(&known, 50), None);
        assert_eq!(status(&known, 49), Some(ErrorStatus::MissedDeadlinePersistent));
        assert_eq!(known.check(TimePoint::EPOCH, Deadline::NONE), Ok(()));
    }

    #[test]
    fn runs_that_differ_in_their_work_say_nothing() {
        assert_eq!(status(&seen(false, &[100, 100, 100, 100]), 1), None);
    }
}
