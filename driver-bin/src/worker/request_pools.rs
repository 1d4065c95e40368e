//! What a request names: memories, device buffers, and the packets of a burst.

use nnhal::burst::copy_values;
use nnhal_hal::validate::{ArgumentPlan, ValidRequest};
use nnhal_hal::{Failure, Shape};

use super::buffer::{Buffer, Content};
use super::memory::Memory;

/// What a request names of the client's objects.
pub(crate) trait Pools: std::fmt::Debug {
    /// The memory of this pool; none for pools that are device buffers, and for bytes in packets.
    fn memory(&self, pool: u32) -> Option<&Memory>;

    /// The device buffer of this token.
    fn buffer(&self, token: u32) -> Option<&Buffer>;
}

/// After a failure: what was to be written to device buffers holds nothing.
#[cold]
pub(crate) fn invalidate_outputs(request: &ValidRequest, pools: &impl Pools) {
    for plan in request.outputs() {
        if let ArgumentPlan::Token { token, .. } = plan
            && let Some(buffer) = pools.buffer(*token)
        {
            buffer.clear();
        }
    }
}

/// The pools of a request that are the packets of a burst, with their bytes.
#[derive(Debug, Default)]
pub(crate) struct PacketPools<'a> {
    pub(crate) inputs: Option<(u32, &'a [u8])>,
    pub(crate) outputs: Option<(u32, &'a mut [u8])>,
}

impl PacketPools<'_> {
    /// The bytes of an input in this pool, if it is the packet: as many as there are, `length` at most.
    #[inline(always)]
    pub(crate) fn input(&self, pool: u32, offset: u64, length: u64) -> Option<&[u8]> {
        let (_, bytes) = self.inputs.as_ref().filter(|(inputs, _)| *inputs == pool)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = bytes.get(start..).unwrap_or_default();
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Some(bytes.get(..length).unwrap_or(bytes))
    }

    /// Keeps the bytes of an output in this pool, if it is the packet; says whether it was.
    #[inline(always)]
    pub(crate) fn put_output(&mut self, pool: u32, offset: u64, bytes: &[u8]) -> bool {
        let Some((_, room)) = self.outputs.as_mut().filter(|(outputs, _)| *outputs == pool) else {
            return false;
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(bytes.len());
        room.get_mut(start..end)
            .map(|room| copy_values(bytes, room))
            .is_some()
    }

    #[inline(always)]
    pub(crate) fn has_outputs(&self, pool: u32) -> bool {
        self.outputs.as_ref().is_some_and(|(outputs, _)| *outputs == pool)
    }
}

/// What the device buffer of an input holds, if it fits the request.
pub(crate) fn content_of(
    pools: &impl Pools,
    (index, token): (usize, u32),
    expected: &Shape,
) -> Result<Content, Failure> {
    let buffer = pools.buffer(token);
    let buffer =
        buffer.ok_or_else(|| Failure::invalid_argument(format!("input {index} has no device buffer")))?;
    let content = buffer.content().ok_or_else(|| {
        Failure::general(format!(
            "the device buffer of input {index} holds nothing yet, or no more"
        ))
    })?;
    if *expected == content.shape || expected.combine(&content.shape) == Some(content.shape) {
        return Ok(content);
    }
    Err(Failure::invalid_argument(format!(
        "input {index} has dimensions {expected:?}, its device buffer holds {:?}",
        content.shape
    )))
}

pub(crate) fn output_buffer(pools: &impl Pools, (index, token): (usize, u32)) -> Result<&Buffer, Failure> {
    let buffer = pools.buffer(token);
    buffer.ok_or_else(|| Failure::invalid_argument(format!("output {index} has no device buffer")))
}

pub(crate) fn check_fits(index: usize, buffer: &Buffer, shape: &Shape) -> Result<(), Box<Failure>> {
    if buffer.takes(shape) {
        return Ok(());
    }
    Err(Failure::general(format!(
        "output {index} has dimensions {shape:?} when computed, for which its device buffer was not allocated"
    ))
    .into())
}
