//! How a case ended: the four words of the HAL documents' stress suite.

use std::fmt;
use std::process::ExitStatus;

use serde::Serialize;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Outcome {
    /// All was as the HAL has it.
    Success,
    /// A result or a status was wrong.
    Failure,
    /// It did not end in time.
    Hang,
    /// A process died that nobody had killed.
    Crash,
}

impl Outcome {
    /// All of them, as they are counted.
    pub(crate) const ALL: [Outcome; 4] = [Outcome::Success, Outcome::Failure, Outcome::Hang, Outcome::Crash];

    /// The exit code by which a case's process tells it.
    pub(crate) fn code(self) -> u8 {
        match self {
            Outcome::Success => 0,
            Outcome::Failure => 1,
            Outcome::Hang => 3,
            Outcome::Crash => 4,
        }
    }

    /// What a case's process says by its end. A signal, a panic and a code that no case gives are a crash.
    pub(crate) fn of_process(status: ExitStatus) -> Outcome {
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Outcome::ALL
            .into_iter()
            .find(|outcome| code == Some(outcome.code()))
            .unwrap_or(Outcome::Crash)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outcome::Success => "SUCCESS",
            Outcome::Failure => "FAILURE",
            Outcome::Hang => "HANG",
            Outcome::Crash => "CRASH",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn codes_tell_the_outcome_and_all_else_is_a_crash() {
        for outcome in Outcome::ALL {
            let status = ExitStatus::from_raw(i32::from(outcome.code()) << 8);
            assert_eq!(Outcome::of_process(status), outcome);
        }
        for raw in [101 << 8, 2 << 8, 6, 11] {
            assert_eq!(Outcome::of_process(ExitStatus::from_raw(raw)), Outcome::Crash);
        }
    }
}
