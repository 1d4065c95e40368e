//! How calls of the runtime end: the result codes of the NDK, and the text that says why.

use nnhal_hal::{ErrorStatus, Failure, OutputShape};

use crate::error::{Error, ErrorKind, Remedy};

/// The result codes of the NDK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ResultCode {
    /// Success.
    NoError = 0,
    /// This process has no memory.
    OutOfMemory = 1,
    /// Something is not finished yet.
    Incomplete = 2,
    /// An argument that must be given is missing.
    UnexpectedNull = 3,
    /// An argument breaks a rule.
    BadData = 4,
    /// What no other code names.
    OpFailed = 5,
    /// The call comes at the wrong time.
    BadState = 6,
    /// A memory cannot be mapped.
    Unmappable = 7,
    /// An output's memory is too small; the error has the shapes that are needed.
    OutputInsufficientSize = 8,
    /// The device is not there or cannot be reached.
    UnavailableDevice = 9,
    /// The deadline was missed; another try may meet it.
    MissedDeadlineTransient = 10,
    /// The deadline was missed and would be again.
    MissedDeadlinePersistent = 11,
    /// A resource is used up; another try may find it.
    ResourceExhaustedTransient = 12,
    /// A resource is used up, now and later.
    ResourceExhaustedPersistent = 13,
    /// The process of the driver is dead.
    DeadObject = 14,
}

impl ResultCode {
    /// The NDK's number.
    #[must_use]
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The code for a status of the HAL.
    #[must_use]
    pub const fn of_status(status: ErrorStatus) -> ResultCode {
        match status {
            ErrorStatus::None => ResultCode::NoError,
            ErrorStatus::DeviceUnavailable => ResultCode::UnavailableDevice,
            ErrorStatus::GeneralFailure => ResultCode::OpFailed,
            ErrorStatus::OutputInsufficientSize => ResultCode::OutputInsufficientSize,
            ErrorStatus::InvalidArgument => ResultCode::BadData,
            ErrorStatus::MissedDeadlineTransient => ResultCode::MissedDeadlineTransient,
            ErrorStatus::MissedDeadlinePersistent => ResultCode::MissedDeadlinePersistent,
            ErrorStatus::ResourceExhaustedTransient => ResultCode::ResourceExhaustedTransient,
            ErrorStatus::ResourceExhaustedPersistent => ResultCode::ResourceExhaustedPersistent,
        }
    }

    /// The status of the HAL for the code, `GENERAL_FAILURE` where the HAL has none.
    #[must_use]
    pub const fn status(self) -> ErrorStatus {
        match self {
            ResultCode::NoError => ErrorStatus::None,
            ResultCode::UnexpectedNull | ResultCode::BadData => ErrorStatus::InvalidArgument,
            ResultCode::OutputInsufficientSize => ErrorStatus::OutputInsufficientSize,
            ResultCode::UnavailableDevice => ErrorStatus::DeviceUnavailable,
            ResultCode::MissedDeadlineTransient => ErrorStatus::MissedDeadlineTransient,
            ResultCode::MissedDeadlinePersistent => ErrorStatus::MissedDeadlinePersistent,
            ResultCode::ResourceExhaustedTransient => ErrorStatus::ResourceExhaustedTransient,
            ResultCode::ResourceExhaustedPersistent => ErrorStatus::ResourceExhaustedPersistent,
            ResultCode::OutOfMemory
            | ResultCode::Incomplete
            | ResultCode::OpFailed
            | ResultCode::BadState
            | ResultCode::Unmappable
            | ResultCode::DeadObject => ErrorStatus::GeneralFailure,
        }
    }
}

/// Why a call of the runtime failed: a code of the NDK, and the text that says what was wrong, where, and
/// what would be right.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub struct RuntimeError {
    code: ResultCode,
    detail: String,
    output_shapes: Vec<OutputShape>,
    /// Whether an attempt before the one that gave this error cost a worker.
    follows_death: bool,
    /// What the client library said, where it comes from there.
    #[source]
    source: Option<Error>,
}

/// What most calls of the runtime give.
pub type RuntimeResult<T> = Result<T, RuntimeError>;

impl RuntimeError {
    /// An error with this code and text.
    pub(crate) fn new(code: ResultCode, detail: impl Into<String>) -> RuntimeError {
        RuntimeError {
            code,
            detail: detail.into(),
            output_shapes: Vec::new(),
            follows_death: false,
            source: None,
        }
    }

    pub(crate) fn bad_data(detail: impl Into<String>) -> RuntimeError {
        RuntimeError::new(ResultCode::BadData, detail)
    }

    pub(crate) fn failed(detail: impl Into<String>) -> RuntimeError {
        RuntimeError::new(ResultCode::OpFailed, detail)
    }

    pub(crate) fn with_status(status: ErrorStatus, detail: impl Into<String>) -> RuntimeError {
        RuntimeError::new(ResultCode::of_status(status), detail)
    }

    /// The error of outputs that are too small.
    pub(crate) fn insufficient(detail: impl Into<String>, output_shapes: Vec<OutputShape>) -> RuntimeError {
        RuntimeError {
            output_shapes,
            ..RuntimeError::new(ResultCode::OutputInsufficientSize, detail)
        }
    }

    /// The same after a first attempt of which a worker died.
    pub(crate) fn after_death(mut self) -> RuntimeError {
        self.follows_death = true;
        self
    }

    /// Whether a worker died of what failed, in this attempt or the one before.
    pub(crate) fn has_cost_a_worker(&self) -> bool {
        self.follows_death || self.is_connection_lost()
    }

    /// Whether no driver serves the device any more.
    pub(crate) fn is_without_driver(&self) -> bool {
        self.source.as_ref().is_some_and(|error| {
            matches!(
                error.kind(),
                ErrorKind::NoDevice { .. }
                    | ErrorKind::NoSuchDevice { .. }
                    | ErrorKind::NoDriver { .. }
                    | ErrorKind::Directory { .. }
                    | ErrorKind::Connect { .. }
            )
        })
    }

    /// The same with these shapes.
    pub(crate) fn with_shapes(mut self, output_shapes: Vec<OutputShape>) -> RuntimeError {
        self.output_shapes = output_shapes;
        self
    }

    /// The same, said of something.
    pub(crate) fn about(mut self, what: &str) -> RuntimeError {
        self.detail = format!("{what}: {}", self.detail);
        self
    }

    /// The NDK's code.
    #[must_use]
    pub fn code(&self) -> ResultCode {
        self.code
    }

    /// The HAL's status for the code.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        self.code.status()
    }

    /// The shapes that the outputs need; empty unless the code is [`ResultCode::OutputInsufficientSize`].
    #[must_use]
    pub fn output_shapes(&self) -> &[OutputShape] {
        &self.output_shapes
    }

    /// The error as a driver would answer it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        Failure::new(self.status(), self.detail.clone())
    }

    /// Whether what failed has ended for sure: it was answered, or its process is dead.
    pub(crate) fn is_final(&self) -> bool {
        self.source
            .as_ref()
            .is_none_or(|error| error.failure().is_some() || error.is_dead_object())
    }

    /// Whether the worker that was asked is gone, so that opening its device again may help.
    #[must_use]
    pub fn is_connection_lost(&self) -> bool {
        self.source
            .as_ref()
            .is_some_and(|error| error.remedy() == Remedy::Reconnect)
    }
}

/// Does something that needs the workers of devices, and once more if one of them was dead without anybody
/// knowing it yet: what died is known then, and is got back by the second attempt.
pub(super) fn once_more_if_lost<T>(mut attempt: impl FnMut() -> RuntimeResult<T>) -> RuntimeResult<T> {
    match attempt() {
        Err(error) if error.is_connection_lost() => attempt(),
        outcome => outcome,
    }
}

impl From<Error> for RuntimeError {
    fn from(error: Error) -> RuntimeError {
        let code = if error.is_dead_object() {
            ResultCode::DeadObject
        } else {
            ResultCode::of_status(error.status())
        };
        RuntimeError {
            code,
            detail: error.to_string(),
            output_shapes: error.output_shapes().to_vec(),
            follows_death: false,
            source: Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_code_that_says_the_same() {
        for status in ErrorStatus::ALL {
            assert_eq!(ResultCode::of_status(status).status(), status);
        }
        assert_eq!(ResultCode::DeadObject.status(), ErrorStatus::GeneralFailure);
        assert_eq!(ResultCode::UnexpectedNull.status(), ErrorStatus::InvalidArgument);
        assert_eq!(ResultCode::DeadObject.code(), 14);
    }
}
