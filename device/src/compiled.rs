//! What devices keep of prepared models in compilation caches, and share between workers.

use nnhal_hal::NumberOfCacheFiles;

/// The files of a device whose prepared models the driver library saves and restores: one for the model, one
/// for its constants. Such a device gives this as its [`nnhal_hal::DeviceInfo::cache_files`].
pub const CACHE_FILES: NumberOfCacheFiles = NumberOfCacheFiles { model: 1, data: 1 };

/// What [`crate::Device::restore`] needs to make a model ready again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled<'a> {
    /// The compiled form, in parts. They come back in one piece, each from a multiple of
    /// [`nnhal_os::buffer::ALIGNMENT`], 64, on; the last one may be followed by zeros up to the next.
    pub parts: Vec<&'a [u8]>,
    /// Constants in pools that need not be kept beside it: index of the graph, the main graph's being 0, and
    /// of the operand in it.
    pub replaced: Vec<(usize, u32)>,
}
