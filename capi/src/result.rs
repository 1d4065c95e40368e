//! How calls end: the NDK's codes, and the texts that go with them.

use std::borrow::Cow;
use std::ffi::c_int;

use nnhal_client::runtime;

use crate::codes::ResultCode;

/// A call that failed: the code that it returns, and what was wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ResultCode,
    pub(crate) text: Cow<'static, str>,
}

/// The result of everything behind the functions of the interface.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(code: ResultCode, text: impl Into<Cow<'static, str>>) -> Failure {
        let text = text.into();
        Failure { code, text }
    }

    /// `UNEXPECTED_NULL`: the named argument is NULL.
    pub(crate) fn null(name: &str) -> Failure {
        Failure::new(
            ResultCode::ANEURALNETWORKS_UNEXPECTED_NULL,
            format!("{name} is NULL"),
        )
    }

    pub(crate) fn bad_data(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(ResultCode::ANEURALNETWORKS_BAD_DATA, text)
    }

    pub(crate) fn bad_state(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(ResultCode::ANEURALNETWORKS_BAD_STATE, text)
    }

    pub(crate) fn op_failed(text: impl Into<Cow<'static, str>>) -> Failure {
        Failure::new(ResultCode::ANEURALNETWORKS_OP_FAILED, text)
    }

    /// The code as functions return it.
    pub(crate) fn number(&self) -> c_int {
        self.code as c_int
    }
}

impl From<runtime::RuntimeError> for Failure {
    fn from(error: runtime::RuntimeError) -> Failure {
        Failure::new(ResultCode::of_runtime(error.code()), error.to_string())
    }
}

impl From<nnhal_client::Error> for Failure {
    fn from(error: nnhal_client::Error) -> Failure {
        let code = if error.is_dead_object() {
            ResultCode::ANEURALNETWORKS_DEAD_OBJECT
        } else {
            ResultCode::of_status(error.status())
        };
        Failure::new(code, error.to_string())
    }
}
