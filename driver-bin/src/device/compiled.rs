//! What devices keep of prepared models in compilation caches, and share between workers.

/// What [`crate::device::Device::restore`] needs to make a model ready again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiled<'a> {
    /// The compiled form, in parts. They come back in one piece, each from a multiple of
    /// [`nnhal_cpu::buffer::ALIGNMENT`], 64, on; the last one may be followed by zeros up to the next.
    pub parts: Vec<&'a [u8]>,
    /// Constants in pools that need not be kept beside it: index of the graph, the main graph's being 0, and of the
    /// operand in it.
    pub replaced: Vec<(usize, u32)>,
}
