//! The time that an execution may take.

use nnhal_os::time::{Clock, MonotonicClock};

use super::result::{ResultCode, RuntimeError, RuntimeResult};
use crate::execution::ExecuteOptions;

/// Refuses to start what would be too late.
#[inline]
pub(super) fn expect_time(options: &ExecuteOptions) -> RuntimeResult<()> {
    if !options.deadline.is_none() && options.deadline.is_past(MonotonicClock.now()) {
        return Err(RuntimeError::new(
            ResultCode::MissedDeadlinePersistent,
            "the deadline had passed before the execution was started",
        ));
    }
    Ok(())
}
