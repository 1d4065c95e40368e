//! One ring of a channel, mapped into this process.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::channel_layout::{CONTROL_OFFSETS, ChannelLayout};
use super::layout::{Cell, Control};
use nnhal_os::futex;
use nnhal_os::shm::{Access, Mapping, SharedMemory, ShmError};
use nnhal_os::time::Deadline;

/// The cells and the control words of a ring.
#[derive(Debug)]
pub(super) struct RingMemory {
    page_zero: Arc<Mapping>,
    control_offset: usize,
    cells: Mapping,
    capacity: u32,
}

impl RingMemory {
    /// Maps ring `ring`. The producer's mapping of the cells is writable, the consumer's is not.
    pub(super) fn map(
        memory: &SharedMemory,
        layout: &ChannelLayout,
        ring: usize,
        cell_access: Access,
        page_zero: Arc<Mapping>,
    ) -> Result<Self, ShmError> {
        let cells = Mapping::prefaulted_part(memory, cell_access, layout.cell_range(ring))?;
        let control_offset = CONTROL_OFFSETS[ring] as usize;
        // The pointers below rest on these two; a mapping of another length never gets this far.
        page_zero.slice(control_offset as u64, size_of::<Control>() as u64)?;
        cells.slice(0, u64::from(layout.cells[ring]) * size_of::<Cell>() as u64)?;
        Ok(Self {
            page_zero,
            control_offset,
            cells,
            capacity: layout.cells[ring],
        })
    }

    /// How many cells there are: a power of two.
    #[inline(always)]
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The cell that `position` falls on.
    #[inline(always)]
    pub(super) fn cell(&self, position: u64) -> &Cell {
        let slot = position as usize & (self.capacity as usize - 1);
        // SAFETY: `map` has checked that `capacity` cells lie in the mapping, which starts on a page and
        // lives as long as `self`. A cell is atomics only, so it may be shared with a process that writes it;
        // in a read-only mapping the consumer uses relaxed loads only.
        unsafe { &*self.cells.as_ptr().cast::<Cell>().wrapping_add(slot) }
    }

    /// The words beside the cells.
    #[inline(always)]
    pub(super) fn control(&self) -> &Control {
        // SAFETY: `map` has checked that the control words lie in the mapping, which is writable, starts on a
        // page and lives as long as `self`; the offset is a multiple of their alignment. They are atomics
        // only.
        unsafe {
            &*self
                .page_zero
                .as_ptr()
                .wrapping_add(self.control_offset)
                .cast::<Control>()
        }
    }

    /// Sleeps while the doorbell word holds `expected`.
    pub(super) fn sleep(&self, expected: u32, deadline: Deadline) -> Result<futex::Wait, nnhal_os::SysError> {
        futex::wait(self.sleeper(), expected, deadline)
    }

    /// Sleeps while the doorbell words of all `rings` hold `expected`.
    pub(super) fn sleep_on_any<'a>(
        rings: impl Iterator<Item = &'a RingMemory>,
        expected: u32,
        deadline: Deadline,
    ) -> Result<futex::Wait, nnhal_os::SysError> {
        futex::wait_on_any(rings.map(|ring| (ring.sleeper(), expected)), deadline)
    }

    /// Wakes whoever sleeps on the doorbell word.
    #[cold]
    pub(super) fn wake(&self) {
        // The word is mapped and aligned, for which this call has no other error.
        let _ = futex::wake(self.sleeper(), i32::MAX);
    }

    fn sleeper(&self) -> &AtomicU32 {
        &self.control().doorbell.sleeper
    }
}
