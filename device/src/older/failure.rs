//! What is said of devices that failed without a reason.

use nnhal_hal::versions::v1_0::ErrorStatus as OldStatus;
use nnhal_hal::{ErrorStatus, Failure};

use super::awaited::Silence;

/// What is known of a failure that a device tells by its status alone.
pub(super) fn refused(name: &str, method: &str, status: OldStatus) -> Failure {
    let (status, note) = match status {
        OldStatus::None => (ErrorStatus::GeneralFailure, ", which is no failure"),
        other => (other.into(), ""),
    };
    let detail = format!(
        "device {name} answered {method} with {status}{note}; its interface has no place for reasons"
    );
    Failure::new(status, detail)
}

/// What is said of a callback that was not notified.
pub(super) fn silence(name: &str, method: &str, silence: Silence) -> Failure {
    match silence {
        Silence::TooLate => Failure::new(
            ErrorStatus::MissedDeadlineTransient,
            format!(
                "the deadline passed before device {name} had done {method}, which nothing can interrupt"
            ),
        ),
        Silence::Dropped => Failure::general(format!(
            "device {name} dropped the callback of {method} without notifying it"
        )),
    }
}
