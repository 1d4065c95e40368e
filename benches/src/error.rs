//! What can go wrong while measuring.

use std::fmt::Display;

use nnhal::fmq::{ChannelError, ReceiveError, SendError};
use nnhal_os::SysError;
use nnhal_os::shm::ShmError;
use nnhal_os::socket::SocketError;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver or the way to it.
    #[error(transparent)]
    Client(#[from] nnhal_client::Error),
    /// The system refused a call.
    #[error(transparent)]
    System(#[from] SysError),
    /// The connection to the other process.
    #[error("the other process of a row: {0}")]
    Socket(#[from] SocketError),
    /// Shared memory.
    #[error(transparent)]
    Memory(#[from] ShmError),
    /// A queue could not be made.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A packet could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A packet could not be received.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// Files and processes.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was attempted.
        action: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A row's own reason.
    #[error("{what}: {reason}")]
    Row {
        /// Which row, or which part of it.
        what: String,
        /// What was wrong.
        reason: String,
    },
}

impl Error {
    /// For `map_err` on input and output.
    pub fn io(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let action = action.into();
        move |source| Error::Io { action, source }
    }

    /// For `map_err` on errors that a row has for itself.
    pub fn row<E: Display>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |error| Error::Row {
            what,
            reason: error.to_string(),
        }
    }

    /// An answer that is not what was asked for.
    #[must_use]
    pub fn wrong_answer(row: &str) -> Error {
        Error::Row {
            what: row.to_owned(),
            reason: "the answer is not that of the request".to_owned(),
        }
    }
}
