//! Why sockets cannot be published.

use std::path::PathBuf;

use nnhal::wire::directory;
use nnhal_os::socket::SocketError;

/// Why sockets cannot be published.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    /// The directory cannot be made or opened.
    #[error("failed to use the runtime directory {}: {source}; set another one with --runtime-dir or {}", .path.display(), directory::RUNTIME_DIR_VARIABLE)]
    Open {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The directory is somebody else's.
    #[error("the runtime directory {} belongs to user {owner}, not to this driver's user {user}", .path.display())]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who runs the driver.
        user: u32,
    },
    /// Others have more access than they may.
    #[error("the runtime directory {} has mode {mode:04o}, so that other users can write to it; it must be 0755 at most (chmod go-w)", .path.display())]
    TooOpen {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another driver serves the device.
    #[error("device {device} is already served from {} by process {holder}", .path.display())]
    AlreadyServed {
        /// The device.
        device: String,
        /// The directory.
        path: PathBuf,
        /// The process id that the other driver wrote down.
        holder: String,
    },
    /// Something else stands where the socket should be.
    #[error("{} is in the way and is not a socket of this user; remove it", .path.display())]
    InTheWay {
        /// What.
        path: PathBuf,
    },
    /// A file there cannot be made, locked or removed.
    #[error("failed to {action} {}: {source}", .path.display())]
    File {
        /// What was attempted.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The socket cannot be made.
    #[error("failed to publish {device} in {}: {source}", .path.display())]
    Socket {
        /// The device.
        device: String,
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: SocketError,
    },
}
