//! Two rings in one shared memory: one in each direction.

use std::sync::Arc;

use super::channel_layout::{ChannelLayout, Header, PAGE_BYTES};
use super::closer::ChannelCloser;
use super::consumer::Consumer;
use super::error::ChannelError;
use super::memory::RingMemory;
use super::parked::Parked;
use super::producer::Producer;
use super::wait::WaitSettings;
use nnhal_os::shm::{Access, Mapping, SharedMemory};

/// How many cells each direction has; powers of two up to [`super::MAX_CELLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSize {
    /// Cells from the side that creates the channel to the one that opens it.
    pub outgoing: u32,
    /// Cells in the other direction.
    pub incoming: u32,
}

/// One side of a channel.
#[derive(Debug)]
pub struct ChannelEnd {
    /// Sends to the other side.
    pub producer: Producer,
    /// Receives from the other side.
    pub consumer: Consumer,
    /// Ends the channel, from any thread.
    pub closer: ChannelCloser,
}

impl ChannelEnd {
    /// Creates a channel; the memory is for the other side to [`ChannelEnd::open`].
    ///
    /// # Errors
    /// [`ChannelError::CellCount`], or the system is out of memory or descriptors.
    pub fn create(size: ChannelSize, wait: WaitSettings) -> Result<(Self, SharedMemory), ChannelError> {
        let layout = ChannelLayout::new([size.outgoing, size.incoming])?;
        let memory = SharedMemory::create(layout.size())?;
        let page_zero = map_page_zero(&memory)?;
        page_zero
            .as_slice()
            .write_at(0, bytemuck::bytes_of(&Header::new(layout)))?;
        let end = Self::map(&memory, &layout, 0, page_zero, wait)?;
        Ok((end, memory))
    }

    /// Opens a channel that a peer created. Its header is copied, checked and not looked at again.
    ///
    /// # Errors
    /// Everything that [`ChannelError`] names. The memory must be mapped by one side once only: a second
    /// opening would be a second producer on the same ring.
    pub fn open(memory: &SharedMemory, wait: WaitSettings) -> Result<Self, ChannelError> {
        if !memory.cannot_shrink() {
            return Err(ChannelError::CanShrink);
        }
        if memory.size() < PAGE_BYTES {
            return Err(ChannelError::NotAChannel);
        }
        let page_zero = map_page_zero(memory)?;
        let mut header: Header = bytemuck::Zeroable::zeroed();
        page_zero
            .as_slice()
            .read_at(0, bytemuck::bytes_of_mut(&mut header))?;
        let layout = header.validate()?;
        if memory.size() != layout.size() {
            return Err(ChannelError::Size {
                expected: layout.size(),
                actual: memory.size(),
            });
        }
        Self::map(memory, &layout, 1, page_zero, wait)
    }

    /// The bytes that the memory of a channel of this size has.
    ///
    /// # Errors
    /// [`ChannelError::CellCount`].
    pub fn memory_size(size: ChannelSize) -> Result<u64, ChannelError> {
        Ok(ChannelLayout::new([size.outgoing, size.incoming])?.size())
    }

    /// Maps both rings, producing on ring `produced`.
    fn map(
        memory: &SharedMemory,
        layout: &ChannelLayout,
        produced: usize,
        page_zero: Arc<Mapping>,
        wait: WaitSettings,
    ) -> Result<Self, ChannelError> {
        let map = |ring, access| RingMemory::map(memory, layout, ring, access, Arc::clone(&page_zero));
        let outgoing = Arc::new(map(produced, Access::ReadWrite)?);
        let incoming = Arc::new(map(1 - produced, Access::ReadOnly)?);
        let parked = Arc::new(Parked::new());
        Ok(Self {
            producer: Producer::new(Arc::clone(&outgoing), Arc::clone(&parked)),
            consumer: Consumer::new(Arc::clone(&incoming), Arc::clone(&parked), wait),
            closer: ChannelCloser::new(outgoing, incoming, parked),
        })
    }
}

fn map_page_zero(memory: &SharedMemory) -> Result<Arc<Mapping>, ChannelError> {
    Ok(Arc::new(Mapping::prefaulted_part(
        memory,
        Access::ReadWrite,
        (0, PAGE_BYTES),
    )?))
}
