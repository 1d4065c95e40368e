//! What stands around every exported function: no panic leaves it, and a failure leaves its text.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use nnhal::diag::tags;

use crate::result::{Failure, Outcome};
use crate::{last_error, log};

/// Runs the body of an exported function and returns its code. What went wrong is kept for
/// [`crate::nnhal_last_error`].
pub(crate) fn guard(function: &'static str, body: impl FnOnce() -> Outcome) -> c_int {
    match caught(body) {
        Ok(()) => 0,
        Err(failure) => {
            tracing::debug!(target: tags::MANAGER, function, code = ?failure.code, text = &*failure.text);
            last_error::set(function, &failure.text);
            failure.number()
        }
    }
}

/// As [`guard`] for functions that return nothing.
pub(crate) fn guard_free(function: &'static str, body: impl FnOnce() -> Outcome) {
    if let Err(failure) = caught(body) {
        tracing::warn!(target: tags::MANAGER, function, text = &*failure.text);
        last_error::set(function, &failure.text);
    }
}

/// Runs something that may panic, which is a failure.
pub(crate) fn caught<T>(body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    log::start();
    // What a panic leaves half done is behind locks, whose users take whatever state they find.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        Err(Failure::op_failed(format!(
            "an error in this library: {}",
            words(panic.as_ref())
        )))
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without words")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_is_op_failed_with_its_words() {
        let code = guard("ANeuralNetworksTest", || panic!("the answer is {}", 42));
        assert_eq!(code, 5);
        assert_eq!(
            last_error::text(),
            "ANeuralNetworksTest: an error in this library: the answer is 42"
        );
    }
}
