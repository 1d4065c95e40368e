//! Statuses between versions.

use super::{Downcast, Loss, v1_0};
use crate::{ErrorStatus, HalVersion};

impl ErrorStatus {
    /// Whether this version has the status.
    #[must_use]
    pub fn compliant_with(self, version: HalVersion) -> bool {
        version >= HalVersion::V1_3 || self.to_v1_0().losses.is_empty()
    }

    /// The status as HAL 1.0 to 1.2 can say it: what only 1.3 has becomes `GENERAL_FAILURE`.
    #[must_use]
    pub fn to_v1_0(self) -> Downcast<v1_0::ErrorStatus> {
        let value = match self {
            ErrorStatus::None => v1_0::ErrorStatus::None,
            ErrorStatus::DeviceUnavailable => v1_0::ErrorStatus::DeviceUnavailable,
            ErrorStatus::OutputInsufficientSize => v1_0::ErrorStatus::OutputInsufficientSize,
            ErrorStatus::InvalidArgument => v1_0::ErrorStatus::InvalidArgument,
            ErrorStatus::GeneralFailure
            | ErrorStatus::MissedDeadlineTransient
            | ErrorStatus::MissedDeadlinePersistent
            | ErrorStatus::ResourceExhaustedTransient
            | ErrorStatus::ResourceExhaustedPersistent => v1_0::ErrorStatus::GeneralFailure,
        };
        let is_same = ErrorStatus::from(value) == self;
        let loss = (!is_same).then(|| {
            Loss::new(
                "status",
                format!("{self}, which came with HAL 1.3, becomes {value}"),
            )
        });
        Downcast {
            value,
            losses: loss.into_iter().collect(),
        }
    }
}

impl From<v1_0::ErrorStatus> for ErrorStatus {
    fn from(status: v1_0::ErrorStatus) -> ErrorStatus {
        match status {
            v1_0::ErrorStatus::None => ErrorStatus::None,
            v1_0::ErrorStatus::DeviceUnavailable => ErrorStatus::DeviceUnavailable,
            v1_0::ErrorStatus::GeneralFailure => ErrorStatus::GeneralFailure,
            v1_0::ErrorStatus::OutputInsufficientSize => ErrorStatus::OutputInsufficientSize,
            v1_0::ErrorStatus::InvalidArgument => ErrorStatus::InvalidArgument,
        }
    }
}

impl std::fmt::Display for v1_0::ErrorStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(ErrorStatus::from(*self).name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_of_1_3_become_general_failure_and_say_so() {
        for status in ErrorStatus::ALL {
            let older = status.to_v1_0();
            let is_of_1_0 = status.code() <= 4;
            assert_eq!(older.losses.is_empty(), is_of_1_0, "{status}");
            assert_eq!(status.compliant_with(HalVersion::V1_2), is_of_1_0);
            assert!(status.compliant_with(HalVersion::V1_3));
            let expected = if is_of_1_0 {
                status
            } else {
                ErrorStatus::GeneralFailure
            };
            assert_eq!(ErrorStatus::from(older.value), expected);
            assert_eq!(older.value as u32, expected.code());
        }
    }
}
