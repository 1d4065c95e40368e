//! What can go wrong with a socket, and how much fits.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// The most descriptors that one message may carry.
///
/// The largest message of the control protocol, a preparation with every cache file that the HAL allows (32 +
/// 32), the model and its overflow, needs 66. The kernel's own limit is 253.
pub const MAX_FDS: usize = 72;

/// What went wrong with a socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The name of a socket does not fit into a socket address.
    #[error("the name of the socket {} is too long", .path.display())]
    PathTooLong {
        /// The path in question.
        path: PathBuf,
    },
    /// The deadline passed first.
    #[error("timed out while trying to {action}")]
    TimedOut {
        /// What was being waited for.
        action: &'static str,
    },
    /// The peer has closed its end, or died.
    #[error("the peer closed the connection")]
    Closed,
    /// A message is longer than the receiver accepts.
    #[error("the peer sent a message longer than the {limit} bytes that are accepted")]
    MessageTooLong {
        /// The receiver's limit in bytes.
        limit: usize,
    },
    /// A message carries more descriptors than [`MAX_FDS`], or more than this process may open.
    #[error(
        "the message carries more file descriptors than can be accepted (at most {MAX_FDS}, fewer where fewer are due)"
    )]
    TooManyFds,
    /// The system refused.
    #[error("failed to {action}: {source}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl SocketError {
    pub(super) fn io(action: &'static str, errno: Errno) -> Self {
        match errno {
            Errno::EPIPE | Errno::ECONNRESET | Errno::ENOTCONN => Self::Closed,
            _ => Self::Io {
                action,
                source: errno.into(),
            },
        }
    }

    /// The system's error code, where the system was the one to refuse.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Io { source, .. } => source.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }
}
