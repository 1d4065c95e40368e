//! How long a helper looks for work before it sleeps.

use crate::plan::cost::{LINGERS_IN_VAIN, LINGERS_ONCE_IN, LOOKS_BETWEEN_CLOCKS, SPIN};

/// For how long a helper looks for work.
pub(super) struct SpinPolicy {
    looks: u32,
    since: Option<std::time::Instant>,
}

impl SpinPolicy {
    pub(super) fn new() -> SpinPolicy {
        SpinPolicy {
            looks: 0,
            since: None,
        }
    }

    pub(super) fn lasts(&mut self) -> bool {
        if cfg!(loom) {
            return false;
        }
        self.looks = self.looks.wrapping_add(1);
        if !self.looks.is_multiple_of(LOOKS_BETWEEN_CLOCKS) {
            return true;
        }
        let now = std::time::Instant::now();
        now.duration_since(*self.since.get_or_insert(now)) < SPIN
    }
}

/// Learns whether the helper of an execution that has ended should look for the work of the next before it
/// sleeps.
///
/// Where the next execution is a while away this costs what looking does, and nothing where it always is. A
/// client that executes once in a millisecond is spared 15 % of a processor for each helper.
#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// How often in a row it was in vain, up to [`LINGERS_IN_VAIN`].
    in_vain: u32,
    /// Executions since, in which the helper went to sleep at once.
    passed: u32,
    /// Whether the helper lingers, and then whether it will.
    decided: Option<bool>,
}

impl Lingering {
    /// The helper has nothing to do, and no leader: whether to look for work yet.
    pub(super) fn is_worth_it(&mut self) -> bool {
        if let Some(decided) = self.decided {
            return decided;
        }
        self.passed += 1;
        let decided = self.in_vain < LINGERS_IN_VAIN || self.passed >= LINGERS_ONCE_IN;
        self.decided = Some(decided);
        decided
    }

    /// The helper has found work.
    pub(super) fn was_worth_it(&mut self) {
        if self.decided.take() == Some(true) {
            (self.in_vain, self.passed) = (0, 0);
        }
    }

    /// The helper goes to sleep.
    pub(super) fn end(&mut self) {
        if self.decided.take() == Some(true) {
            (self.in_vain, self.passed) = (LINGERS_IN_VAIN.min(self.in_vain + 1), 0);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LINGERS_IN_VAIN, LINGERS_ONCE_IN, Lingering};

    #[test]
    fn helper_lingers_until_that_was_in_vain_some_times_and_now_and_then() {
        let mut lingering = Lingering::default();
        let mut goes_to_sleep = || {
            let lingered = lingering.is_worth_it();
            assert_eq!(lingering.is_worth_it(), lingered, "it is decided once");
            lingering.end();
            lingered
        };
        let lingered = (0..LINGERS_IN_VAIN + 10 * LINGERS_ONCE_IN)
            .filter(|_| goes_to_sleep())
            .count();
        assert_eq!(lingered as u32, LINGERS_IN_VAIN + 10);
    }

    #[test]
    fn helper_that_finds_work_lingers_again() {
        let mut lingering = Lingering::default();
        for _ in 0..LINGERS_IN_VAIN {
            assert!(lingering.is_worth_it());
            lingering.end();
        }
        let mut passed = 0;
        while !lingering.is_worth_it() {
            passed += 1;
            lingering.was_worth_it();
        }
        assert_eq!(passed, LINGERS_ONCE_IN - 1);
        lingering.was_worth_it();
        assert!(lingering.is_worth_it());
        // Work of the same execution says nothing.
        lingering.end();
        lingering.was_worth_it();
        assert_eq!(lingering.in_vain, 1);
    }
}
