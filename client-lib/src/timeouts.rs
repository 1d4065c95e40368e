//! How long this process waits for its drivers where nobody says how long.
//!
//! A driver that is hostile, or broken, may answer anything but what is waited for, for ever: that it is
//! alive says nothing of its work. So every wait has a limit. Work has one that no honest work meets.

use std::time::Duration;

use nnhal::diag::tags;
use nnhal_os::environment;
use nnhal_os::time::{Clock, Deadline, MonotonicClock};

use crate::devices_options::DevicesOptions;

/// Says how long a driver may take to answer what needs no computing, in milliseconds.
pub const CALL_TIMEOUT_VARIABLE: &str = "NNHAL_CALL_TIMEOUT_MS";

/// Says how long an execution or a preparation may take that has no limit of its own, in milliseconds; 0 for
/// no limit.
pub const WORK_TIMEOUT_VARIABLE: &str = "NNHAL_WORK_TIMEOUT_MS";

/// A driver that is busy starting a worker takes milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
const WORK_TIMEOUT: Duration = Duration::from_secs(3600);

/// The limits of waits that have none of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    call: Duration,
    /// `None`: for as long as the worker lives.
    work: Option<Duration>,
    /// Whether somebody has said so, and means to give work up.
    is_work_limited: bool,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            call: CALL_TIMEOUT,
            work: Some(WORK_TIMEOUT),
            is_work_limited: false,
        }
    }
}

impl Timeouts {
    /// Those that the program sets, else those of the environment.
    pub(crate) fn of(options: &DevicesOptions) -> Timeouts {
        let default = Timeouts::default();
        let limit = |duration: &Duration| !duration.is_zero();
        let work = options
            .work_timeout
            .or_else(|| milliseconds(WORK_TIMEOUT_VARIABLE));
        Timeouts {
            call: options
                .call_timeout
                .or_else(|| milliseconds(CALL_TIMEOUT_VARIABLE))
                .filter(limit)
                .unwrap_or(default.call),
            work: work.map_or(default.work, |work| Some(work).filter(limit)),
            is_work_limited: work.is_some_and(|work| limit(&work)),
        }
    }

    /// The deadline of connecting: as long as the program says, else ten seconds, or as long as a call if
    /// that is less.
    pub(crate) fn connect_deadline(&self, own: Option<Duration>) -> Deadline {
        let timeout = own.unwrap_or(CONNECT_TIMEOUT.min(self.call));
        Deadline::after(MonotonicClock.now(), timeout)
    }

    /// The deadline of a call that needs no computing.
    pub(crate) fn call_deadline(&self) -> Deadline {
        Deadline::after(MonotonicClock.now(), self.call)
    }

    /// Whether the program or its environment limits work, which is then to be ended when it is given up.
    pub(crate) fn limit_work(&self) -> bool {
        self.is_work_limited
    }

    /// The deadline of work: its own, or the one that work has by default.
    pub(crate) fn work_deadline(&self, own: Deadline) -> Deadline {
        match self.work {
            Some(work) if own.is_none() => Deadline::after(MonotonicClock.now(), work),
            _ => own,
        }
    }
}

fn milliseconds(variable: &str) -> Option<Duration> {
    let text = environment::var(variable)?;
    let number = text.trim().parse();
    if number.is_err() {
        tracing::warn!(target: tags::MANAGER, text, "{variable} takes a number of milliseconds");
    }
    number.ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_without_a_limit_of_their_own_have_those_that_are_set() {
        let minute = Duration::from_secs(60);
        let set = Timeouts::of(
            &DevicesOptions::new()
                .call_timeout(minute * 2)
                .work_timeout(minute),
        );
        assert_eq!((set.call, set.work), (minute * 2, Some(minute)));
        let own = Deadline::after(MonotonicClock.now(), minute * 60);
        assert_eq!(set.work_deadline(own), own);
        assert!(!set.work_deadline(Deadline::NONE).is_none());
        let endless = Timeouts::of(&DevicesOptions::new().work_timeout(Duration::ZERO));
        assert!(endless.work_deadline(Deadline::NONE).is_none());
        assert!(!Timeouts::default().work_deadline(Deadline::NONE).is_none());
    }
}
