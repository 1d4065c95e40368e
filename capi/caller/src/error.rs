//! What goes wrong in calling the library.

use std::ffi::{OsStr, c_int};

use nnhal_client::runtime::ResultCode;
use nnhal_hal::{ErrorStatus, OutputShape};

/// The library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It cannot be opened.
    #[error("{library} cannot be opened: {reason}")]
    Unopened {
        /// The library.
        library: String,
        /// What the loader says.
        reason: String,
    },
    /// It lacks a function.
    #[error("the library has no function {function}, so it is not libneuralnetworks.so of nnhal: {reason}")]
    Missing {
        /// The function.
        function: String,
        /// What the loader says.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn unopened(name: &OsStr, error: &libloading::Error) -> OpenError {
        OpenError::Unopened {
            library: name.to_string_lossy().into_owned(),
            reason: error.to_string(),
        }
    }

    pub(crate) fn missing(function: &str, error: &libloading::Error) -> OpenError {
        OpenError::Missing {
            function: function.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// A function of the library that has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct CallError {
    /// What it returned.
    pub code: c_int,
    /// What `nnhal_last_error` said.
    pub text: String,
    /// The shapes of the outputs of an execution, where it tells them all the same.
    pub output_shapes: Vec<OutputShape>,
}

impl CallError {
    pub(crate) fn new(code: c_int, text: impl Into<String>) -> CallError {
        CallError {
            code,
            text: text.into(),
            output_shapes: Vec::new(),
        }
    }

    /// Trouble of this crate's own, before the library is called.
    pub(crate) fn unmappable(text: impl Into<String>) -> CallError {
        CallError::new(UNMAPPABLE, text)
    }

    /// The library contradicts itself.
    pub(crate) fn failed(text: impl Into<String>) -> CallError {
        CallError::new(OP_FAILED, text)
    }

    /// The HAL's status for the code.
    #[must_use]
    pub fn status(&self) -> ErrorStatus {
        let mut statuses = ErrorStatus::ALL.into_iter();
        let same = statuses.find(|status| ResultCode::of_status(*status).code() == self.code);
        same.unwrap_or(ErrorStatus::GeneralFailure)
    }
}

/// `ANEURALNETWORKS_OP_FAILED`.
const OP_FAILED: c_int = 5;

/// `ANEURALNETWORKS_UNMAPPABLE`.
const UNMAPPABLE: c_int = 7;

/// `ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE`.
pub(crate) const INSUFFICIENT: c_int = 8;

/// The result of everything that calls the library.
pub(crate) type Result<T> = std::result::Result<T, CallError>;
