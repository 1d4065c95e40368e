//! Prepared models of HAL 1.2.

use nnhal_hal::MeasureTiming;
use nnhal_hal::versions::v1_0::{ErrorStatus, Request};

use super::v1_0;
use crate::older::execution_callback::{Executed, ExecutionCallback};
use crate::older::memory::RequestMemories;

/// HAL 1.2 `IPreparedModel`. As in 1.0, but outputs of unknown dimensions may have too little room.
pub trait PreparedModel: v1_0::PreparedModel {
    /// HAL `execute_1_2`: launches an execution. The driver uses it for those that have a deadline.
    ///
    /// Returns `NONE` if it was launched; whatever comes of it is then told to the callback.
    fn execute_1_2(
        &self,
        request: &Request,
        memories: &RequestMemories,
        measure: MeasureTiming,
        callback: ExecutionCallback,
    ) -> ErrorStatus;

    /// HAL `executeSynchronously`.
    fn execute_synchronously(
        &self,
        request: &Request,
        memories: &RequestMemories,
        measure: MeasureTiming,
    ) -> Executed;
}
