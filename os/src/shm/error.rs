//! What can be wrong with shared memory.

use crate::SysError;

/// A memory that cannot be used, or an access outside it.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The descriptor is not that of a file.
    #[error("a memory must be a memfd, a regular file or a dma-buf, but the descriptor is {kind}")]
    NotAFile {
        /// What the descriptor is instead.
        kind: &'static str,
    },
    /// The file's contents are served by a process, which could stall every access.
    #[error("a memory must not be a file of a FUSE file system, whose server could block the driver")]
    UserFileSystem,
    /// The descriptor was opened write-only or as a mere path.
    #[error("the descriptor of a memory must be open for reading")]
    NotReadable,
    /// The memory has no bytes.
    #[error("a memory must have at least one byte")]
    Empty,
    /// The declared size is more than is accepted.
    #[error("the memory's declared size of {declared} bytes is above the limit of {limit} bytes")]
    TooLarge {
        /// The declared size in bytes.
        declared: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file is smaller than declared.
    #[error("the memory is declared to have {declared} bytes, but its file has {actual}")]
    ShorterThanDeclared {
        /// The declared size in bytes.
        declared: u64,
        /// The size of the file in bytes.
        actual: u64,
    },
    /// The file is longer than declared.
    #[error("the memory is declared to have {declared} bytes, but its file has {actual}, which is more")]
    LongerThanDeclared {
        /// The declared size in bytes.
        declared: u64,
        /// The size of the file in bytes.
        actual: u64,
    },
    /// Somebody could still change the memory.
    #[error(
        "the memory must be a memfd with ordinary pages and the seals F_SEAL_WRITE, F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL, so that nobody can change it"
    )]
    NotSealed,
    /// An access reaches beyond the memory.
    #[error("bytes {offset} to {offset} + {length} reach beyond the memory's {size} bytes")]
    OutOfBounds {
        /// First byte of the access.
        offset: u64,
        /// Length of the access in bytes.
        length: u64,
        /// Size of the memory, or of the part that was asked for, in bytes.
        size: u64,
    },
    /// A word that does not start at a multiple of its size.
    #[error("the word at byte {offset} of the memory is not aligned")]
    Misaligned {
        /// Where the word starts in bytes.
        offset: u64,
    },
    /// A write to memory that is read-only here.
    #[error("the memory is read-only")]
    ReadOnly,
    /// The file ended before its declared size: its owner shrank it.
    #[error("the memory's file ended at byte {at}; its owner shrank it while it was in use")]
    Shrunk {
        /// Where the file ended, in bytes.
        at: u64,
    },
    /// The system refused the mapping.
    #[error("mapping {size} bytes of shared memory failed: {source}")]
    Map {
        /// Size of the mapping in bytes.
        size: u64,
        /// The reason.
        source: std::io::Error,
    },
    /// Reading or writing the file failed.
    #[error("shared memory could not be read or written: {0}")]
    Io(#[from] std::io::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] SysError),
}

impl ShmError {
    /// Whether the system was out of memory or descriptors, so that the same call may succeed later;
    /// everything else is wrong with the memory itself.
    pub fn is_exhaustion(&self) -> bool {
        match self {
            ShmError::System(error) => error.is_exhaustion(),
            ShmError::Map { source, .. } | ShmError::Io(source) => {
                matches!(
                    source.raw_os_error(),
                    Some(libc::ENOMEM | libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::EAGAIN)
                )
            }
            _ => false,
        }
    }
}
