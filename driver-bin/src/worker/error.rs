//! Why a worker ends before its time.

use nnhal::wire::MessageError;
use nnhal_hal::Failure;
use nnhal_os::socket::SocketError;

/// Why a worker ends before its time.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("failed to {action}: {source}")]
    Io {
        action: &'static str,
        source: std::io::Error,
    },
    #[error("the supervisor is gone or cannot be heard: {0}")]
    Supervisor(#[from] MessageError),
    #[error(transparent)]
    Handoff(#[from] SocketError),
    #[error("the supervisor said something unexpected")]
    Unexpected,
    #[error("device {name} cannot be made: {failure}")]
    Device { name: String, failure: Failure },
    #[error(
        "device {name} has started threads while it was made ({}), which would stay outside of the jail; it may \
         start them when it prepares its first model", .threads.join(", ")
    )]
    Threads { name: String, threads: Vec<String> },
    #[error("failed to give up privileges: {0}")]
    Jail(#[from] crate::jail::JailError),
    #[error(transparent)]
    System(#[from] nnhal_os::SysError),
}
