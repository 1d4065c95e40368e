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
mod error;
mod files;
mod kept_pools;
mod keyed_digest;

#[cfg(any(test, fuzzing))]
pub(crate) use entry::fuzzing;
pub(crate) use entry::{Kept, Key, load, save};
pub(crate) use error::{CacheError, Checkpoint};
pub(crate) use files::CacheHandles;
pub(crate) use kept_pools::KeptPools;
