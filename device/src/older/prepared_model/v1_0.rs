//! Prepared models of HAL 1.0 and 1.1.

use std::fmt::Debug;

use nnhal_hal::versions::v1_0::{ErrorStatus, Request};

use crate::older::execution_callback::ExecutionCallback;
use crate::older::memory::RequestMemories;

/// HAL 1.0 `IPreparedModel`, which 1.1 keeps.
pub trait PreparedModel: Send + Sync + Debug {
    /// HAL `execute`: launches an execution. Executions of one prepared model may overlap. Every input has
    /// exactly the bytes that its dimensions say, and every output has all the room that it needs.
    ///
    /// Returns `NONE` if it was launched; whatever comes of it is then told to the callback.
    fn execute(
        &self,
        request: &Request,
        memories: &RequestMemories,
        callback: ExecutionCallback,
    ) -> ErrorStatus;
}
