//! A shared memory in this process's address space.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};

use super::access::{Access, check_range};
use super::bus_error::Name;
use super::{SharedMemory, SharedSlice, ShmError};
use crate::dma_buf;

/// A part of a [`SharedMemory`] mapped into this process, until dropped. It keeps the memory alive by itself.
#[derive(Debug)]
pub struct Mapping {
    /// Given up before the addresses are.
    name: Option<Name>,
    raw: MmapRaw,
    access: Access,
    immutable: bool,
    /// To be told of accesses.
    dma_buf: Option<OwnedFd>,
}

/// An access to mapped memory, which devices that share it wait for or are waited for, until it is dropped.
/// Of memory that no device shares it is nothing.
#[derive(Debug)]
#[must_use = "the access is over when this is dropped"]
pub struct OngoingAccess<'a> {
    dma_buf: Option<(&'a OwnedFd, bool)>,
}

impl<'a> OngoingAccess<'a> {
    #[cold]
    fn begin(fd: &'a OwnedFd, writes: bool) -> Result<OngoingAccess<'a>, ShmError> {
        dma_buf::begin_access(fd, writes)?;
        Ok(OngoingAccess {
            dma_buf: Some((fd, writes)),
        })
    }
}

impl Drop for OngoingAccess<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((fd, writes)) = self.dma_buf {
            end(fd, writes);
        }
    }
}

#[cold]
fn end(fd: &OwnedFd, writes: bool) {
    // It was begun by the same call; an exporter that does not let it end has nobody to tell.
    let _ = dma_buf::end_access(fd, writes);
}

impl Mapping {
    /// Maps the whole memory.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`] for write access to memory that does not allow it, [`ShmError::Map`] if the
    /// system refuses.
    pub fn new(memory: &SharedMemory, access: Access) -> Result<Self, ShmError> {
        Self::map(memory, access, (0, memory.size()), false)
    }

    /// As [`Mapping::new`], with every page present before it returns, so that no later access takes a page
    /// fault.
    ///
    /// For memory this process made itself: prefaulting a peer's sparse memory would fill it at this
    /// process's expense.
    pub fn prefaulted(memory: &SharedMemory, access: Access) -> Result<Self, ShmError> {
        Self::map(memory, access, (0, memory.size()), true)
    }

    /// As [`Mapping::prefaulted`] for the part `(offset, length)` in bytes; the offset is a multiple of the
    /// page size.
    ///
    /// # Errors
    /// As [`Mapping::new`], and [`ShmError::OutOfBounds`] for a part beyond the memory.
    pub fn prefaulted_part(
        memory: &SharedMemory,
        access: Access,
        range: (u64, u64),
    ) -> Result<Self, ShmError> {
        Self::map(memory, access, range, true)
    }

    fn map(
        memory: &SharedMemory,
        access: Access,
        (offset, length): (u64, u64),
        prefault: bool,
    ) -> Result<Self, ShmError> {
        check_range(offset, length, memory.size())?;
        if access == Access::ReadWrite && !memory.is_writable() {
            return Err(ShmError::ReadOnly);
        }
        let failed = |source| ShmError::Map { size: length, source };
        let length_here =
            usize::try_from(length).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        let mut options = MmapOptions::new();
        options.offset(offset).len(length_here);
        if prefault {
            options.populate();
        }
        let raw = match access {
            Access::ReadOnly => options.map_raw_read_only(memory.as_fd().as_raw_fd()),
            Access::ReadWrite => options.map_raw(memory.as_fd().as_raw_fd()),
        }
        .map_err(failed)?;
        let dma_buf = memory.is_dma_buf().then(|| memory.as_fd().try_clone_to_owned());
        Ok(Self {
            name: None,
            raw,
            access,
            immutable: memory.is_immutable(),
            dma_buf: dma_buf.transpose()?,
        })
    }

    /// The same with a name, which [`report_bus_errors`](super::report_bus_errors) tells if the memory turns
    /// out to be gone.
    #[must_use]
    pub fn named(mut self, name: u64) -> Self {
        self.name = Some(Name::new(self.raw.as_ptr() as usize, self.raw.len(), name));
        self
    }

    /// To be called before the bytes are read, and written if `access` says so, and kept as long as that
    /// takes: where devices share the memory (a dma-buf), what they wrote is then seen here, and what is
    /// written here is seen by them afterwards. For other memory this costs nothing.
    ///
    /// # Errors
    /// [`ShmError::System`] if the exporter of a dma-buf refuses.
    #[inline]
    pub fn begin(&self, access: Access) -> Result<OngoingAccess<'_>, ShmError> {
        let Some(fd) = &self.dma_buf else {
            return Ok(OngoingAccess { dma_buf: None });
        };
        OngoingAccess::begin(fd, access == Access::ReadWrite)
    }

    /// Whether devices may share the memory, so that accesses are to be told by [`Mapping::begin`].
    #[inline]
    pub fn is_shared_with_devices(&self) -> bool {
        self.dma_buf.is_some()
    }

    /// Size in bytes, never 0.
    pub fn size(&self) -> u64 {
        self.raw.len() as u64
    }

    /// What the mapping may be used for.
    pub fn access(&self) -> Access {
        self.access
    }

    /// All of the mapped memory.
    #[inline]
    pub fn as_slice(&self) -> SharedSlice<'_> {
        // SAFETY: the region is mapped for reading, and for writing if access says so, for as long as `self`
        // lives, which the slice's lifetime is bound to; no reference to its bytes exists unless the memory
        // is immutable.
        unsafe { SharedSlice::new(self.raw.as_mut_ptr(), self.raw.len(), self.access) }
    }

    /// `length` bytes from `offset`.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`], also where the sum overflows.
    #[inline]
    pub fn slice(&self, offset: u64, length: u64) -> Result<SharedSlice<'_>, ShmError> {
        self.as_slice().slice(offset, length)
    }

    /// The bytes in place, if nobody can ever change them; `None` for memory that can be written or shrunk.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        if !self.immutable {
            return None;
        }
        // SAFETY: the region is mapped for reading for as long as `self` lives. The memory carries
        // F_SEAL_WRITE, which the kernel grants only while no writable mapping exists and after which none
        // can be made, and F_SEAL_SHRINK, so its bytes neither change nor vanish. Seals cannot be removed.
        Some(unsafe { std::slice::from_raw_parts(self.raw.as_ptr(), self.raw.len()) })
    }

    /// The start of the mapping, page-aligned if the mapping's offset is. For structures of atomics only.
    pub fn as_ptr(&self) -> *mut u8 {
        self.raw.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_of_one_memory_share_their_bytes() {
        let memory = SharedMemory::create(10_000).unwrap();
        let writer = Mapping::prefaulted(&memory, Access::ReadWrite).unwrap();
        let reader = Mapping::new(&memory, Access::ReadOnly).unwrap();
        drop(memory);
        writer.slice(5000, 3).unwrap().write_at(0, b"abc").unwrap();
        let mut seen = [0; 4];
        reader.as_slice().read_at(4999, &mut seen).unwrap();
        assert_eq!(&seen, b"\0abc");
        assert!(reader.as_bytes().is_none());
    }

    #[test]
    fn read_only_mapping_refuses_writes() {
        let memory = SharedMemory::create(16).unwrap();
        let reader = Mapping::new(&memory, Access::ReadOnly).unwrap();
        assert!(matches!(
            reader.as_slice().write_at(0, b"x"),
            Err(ShmError::ReadOnly)
        ));
    }

    #[test]
    fn sealed_memory_is_seen_in_place_and_not_writable() {
        let memory = SharedMemory::create_sealed(b"weights").unwrap();
        assert!(matches!(
            Mapping::new(&memory, Access::ReadWrite),
            Err(ShmError::ReadOnly)
        ));
        let mapping = Mapping::new(&memory, Access::ReadOnly).unwrap();
        assert_eq!(mapping.as_bytes().unwrap(), b"weights");
    }

    #[test]
    fn part_beyond_the_memory_is_refused() {
        let memory = SharedMemory::create(8192).unwrap();
        let part = Mapping::prefaulted_part(&memory, Access::ReadOnly, (4096, 4096)).unwrap();
        assert_eq!(part.size(), 4096);
        let beyond = Mapping::prefaulted_part(&memory, Access::ReadOnly, (4096, 4097));
        assert!(matches!(beyond, Err(ShmError::OutOfBounds { .. })));
    }
}
