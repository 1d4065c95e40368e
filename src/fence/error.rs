//! What can go wrong with a fence.

use nnhal_os::SysError;

/// A descriptor that cannot serve as a fence.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// There is no descriptor where a fence is due.
    #[error("the fence has no descriptor")]
    Missing,
    /// Files and directories are always ready, so waiting for them means nothing.
    #[error("the fence's descriptor is {kind}, which cannot be waited for")]
    NotPollable {
        /// What the descriptor is.
        kind: &'static str,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SysError),
}
