//! The status codes of the HAL.

use serde::{Deserialize, Serialize};

/// HAL `ErrorStatus` 1.3: how a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum ErrorStatus {
    /// Success.
    None = 0,
    /// The device is not there, or cannot be reached at the moment.
    DeviceUnavailable = 1,
    /// Anything that no other code names.
    GeneralFailure = 2,
    /// At least one output buffer is too small; the shapes that are needed come with the answer.
    OutputInsufficientSize = 3,
    /// An argument breaks a rule of the interface.
    InvalidArgument = 4,
    /// The deadline was missed; another try may meet it.
    MissedDeadlineTransient = 5,
    /// The deadline was missed and would be again, however idle the device.
    MissedDeadlinePersistent = 6,
    /// Not enough memory or another resource; another try may find it.
    ResourceExhaustedTransient = 7,
    /// Not enough memory or another resource, now or later.
    ResourceExhaustedPersistent = 8,
}

impl ErrorStatus {
    /// Every status, by rising code.
    pub const ALL: [ErrorStatus; 9] = [
        ErrorStatus::None,
        ErrorStatus::DeviceUnavailable,
        ErrorStatus::GeneralFailure,
        ErrorStatus::OutputInsufficientSize,
        ErrorStatus::InvalidArgument,
        ErrorStatus::MissedDeadlineTransient,
        ErrorStatus::MissedDeadlinePersistent,
        ErrorStatus::ResourceExhaustedTransient,
        ErrorStatus::ResourceExhaustedPersistent,
    ];

    /// The status with this code, or `None` when the HAL has none.
    #[must_use]
    #[inline]
    pub fn from_code(code: u32) -> Option<ErrorStatus> {
        ErrorStatus::ALL.into_iter().find(|status| *status as u32 == code)
    }

    /// The HAL's number for the status.
    #[must_use]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// The HAL's name for the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ErrorStatus::None => "NONE",
            ErrorStatus::DeviceUnavailable => "DEVICE_UNAVAILABLE",
            ErrorStatus::GeneralFailure => "GENERAL_FAILURE",
            ErrorStatus::OutputInsufficientSize => "OUTPUT_INSUFFICIENT_SIZE",
            ErrorStatus::InvalidArgument => "INVALID_ARGUMENT",
            ErrorStatus::MissedDeadlineTransient => "MISSED_DEADLINE_TRANSIENT",
            ErrorStatus::MissedDeadlinePersistent => "MISSED_DEADLINE_PERSISTENT",
            ErrorStatus::ResourceExhaustedTransient => "RESOURCE_EXHAUSTED_TRANSIENT",
            ErrorStatus::ResourceExhaustedPersistent => "RESOURCE_EXHAUSTED_PERSISTENT",
        }
    }
}

impl std::fmt::Display for ErrorStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorStatus;

    #[test]
    fn every_status_survives_its_code() {
        for status in ErrorStatus::ALL {
            assert_eq!(ErrorStatus::from_code(status.code()), Some(status));
        }
        assert_eq!(ErrorStatus::from_code(9), None);
    }
}
