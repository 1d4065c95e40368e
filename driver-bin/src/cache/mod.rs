//! Compilation caching: prepared models in files of the client's, and back.
//!
//! Contract: a device that says [`nnhal_device::CACHE_FILES`] in its [`nnhal_hal::DeviceInfo`] has what it
//! prepared saved and restored by the driver library. The data file holds the constants and the compiled form
//! that the device made of them, if it makes one: then constants that the compiled form replaces are left
//! out. The model file holds everything else, with digests of both files, the device's name and version, and
//! the token. What is read is copied into private memory once, before it is looked at, and used there; it is
//! believed only if every byte of both files is what was written together. Then the model is validated as if
//! a client had sent it, since a client can forge a digest; a forged compiled form is no more than weights
//! that the client could have sent as well. So whatever happens to the files, the answer is the right model
//! or none.
//!
//! Saving never fails a preparation: files that cannot be written leave nothing to be found.

mod entry;
mod files;
mod kept_pools;
mod keyed_digest;

pub(crate) use entry::{Kept, Key, load, save};
pub(crate) use files::{CacheHandles, HandleError};
pub(crate) use kept_pools::KeptPools;

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
