//! Where the packed weights of a program come from: packed now, or kept from an earlier preparation.

use nnhal_os::buffer::{AlignedBuffer, AlignedSlice, OutOfMemory};

/// Version of the layouts that weights are packed in. Whoever changes what the kernels of
/// [`super::matmul`], [`super::recurrent`] or [`super::depthwise`] pack, which layers [`super::steps`]
/// packs at all, which of the weights are constants that are computed beforehand, or the order of the
/// parts, counts it up: programs that were kept in the old form are then not taken for the new one.
pub(crate) const LAYOUT: u32 = 15;

/// What stands for a property that weights have; zeros, or anything else, for one that they have not.
const SET: &[u8] = b"has it";

/// Why weights are not packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PackingError {
    /// They do not fit in memory.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
    /// What was kept are not the packed weights of this model.
    #[error("what was kept does not have the size of the model's packed weights")]
    Unfit,
}

/// Gives a program its packed weights, part by part in the order of its operations.
#[derive(Debug)]
pub(crate) enum Packing {
    /// Packs them.
    Now,
    /// Takes them from what was kept.
    Kept(AlignedSlice),
}

impl Packing {
    /// The next part, of so many bytes, which `fill` makes out of zeros unless they were kept.
    pub(super) fn part(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<AlignedSlice, PackingError> {
        match self {
            Packing::Now => {
                let mut buffer = AlignedBuffer::new();
                buffer.resize(bytes)?;
                fill(buffer.bytes_mut());
                Ok(buffer.into())
            }
            Packing::Kept(rest) => {
                let (part, after) = std::mem::take(rest).split(bytes).ok_or(PackingError::Unfit)?;
                *rest = after;
                Ok(part)
            }
        }
    }

    /// Whether the weights have a property that decides what is packed next, which is part of what is packed:
    /// `has` looks at weights that may be there no more when this was kept.
    pub(super) fn flag(&mut self, has: impl FnOnce() -> bool) -> Result<(bool, AlignedSlice), PackingError> {
        let part = self.part(SET.len(), |bytes| {
            if has() {
                bytes.copy_from_slice(SET);
            }
        })?;
        Ok((part.bytes() == SET, part))
    }

    /// Whether nothing that was kept is left over.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Packing::Now => true,
            Packing::Kept(rest) => rest.bytes().is_empty(),
        }
    }
}
