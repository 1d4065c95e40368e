//! Why a cache entry was not saved, or not found.

use nnhal_device::Interruption;

/// Asked now and then while an entry is loaded: whether to go on.
pub(crate) type Checkpoint<'a> = &'a dyn Fn() -> Result<(), Interruption>;

/// Why a cache entry was not saved, or not found.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error(transparent)]
    Handle(#[from] HandleError),
    #[error("failed to {action} the {file} file: {source}")]
    Io {
        action: &'static str,
        file: &'static str,
        source: std::io::Error,
    },
    #[error("the {file} file is none of this cache: {reason}")]
    Foreign { file: &'static str, reason: String },
    #[error("the {file} file has changed since it was saved, or was never whole")]
    Changed { file: &'static str },
    #[error("the files hold a model prepared {what}")]
    Stale { what: String },
    #[error("{0}")]
    TooLarge(String),
    #[error(transparent)]
    Interrupted(#[from] Interruption),
}

/// What is wrong with the handles of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandleError {
    #[error("{found} {kind} cache handles were given, the device needs {needed}")]
    Count {
        kind: &'static str,
        found: usize,
        needed: u32,
    },
    #[error("handle {index} of the {kind} cache has {found} descriptors instead of one")]
    Descriptors {
        kind: &'static str,
        index: usize,
        found: u8,
    },
}
