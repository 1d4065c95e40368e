//! Memory that this process shares with drivers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use highway::{HighwayHash, HighwayHasher, Key};
use nnhal::wire::{Call, MemoryDescription, MemoryHandle, Object, Reply};
use nnhal_os::shm::{Access, Mapping, OngoingAccess, SharedMemory, SharedSlice, ShmError};
use nnhal_os::time::Deadline;

use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Element;

/// The HAL's pool names.
mod pool_name {
    /// Anonymous shared memory.
    pub(super) const ASHMEM: &str = "ashmem";
    /// A part of a file.
    pub(super) const MMAP_FD: &str = "mmap_fd";
    /// A hardware buffer that consists of bytes.
    pub(super) const HARDWARE_BUFFER_BLOB: &str = "hardware_buffer_blob";
}

/// What digests of memories are keyed by.
pub(crate) type DigestKey = [u64; 4];
/// A digest of a memory.
pub(crate) type Digest = [u64; 4];

/// `PROT_READ`.
const PROT_READ: u32 = 1;
/// `PROT_WRITE`.
const PROT_WRITE: u32 = 2;

/// Bytes that this process and drivers share: inputs, outputs and constants. The role of the HAL's
/// `hidl_memory`.
///
/// Clones are handles on the same bytes. A device gets to know a memory with the first call that uses it,
/// once; it forgets it when the last handle is dropped, in its bursts too. What still runs on it ends first.
///
/// Other processes can write the bytes at any time, so they are copied in and out and never borrowed.
#[derive(Clone, Debug)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Tells memories apart, also after they are gone.
    id: u64,
    fd: OwnedFd,
    offset: u64,
    size: u64,
    protection: u32,
    name: &'static str,
    mapping: OnceLock<std::result::Result<Mapping, Arc<ShmError>>>,
    known_to: Mutex<Vec<Registration>>,
    /// Of bytes that cannot change any more, with the key that it was computed under.
    digest: OnceLock<(DigestKey, Digest)>,
}

/// A connection whose worker knows the memory, and under which name.
#[derive(Debug)]
struct Registration {
    connection: Weak<Connection>,
    handle: MemoryHandle,
}

impl Memory {
    /// Memory of `size` zero bytes. Its pages are there at once, so that no later access waits for them.
    ///
    /// # Errors
    /// Size 0; the system has no memory or no descriptors.
    pub fn new(size: u64) -> Result<Memory> {
        const ACTION: &str = "make shared memory";
        let memory = SharedMemory::create(size).map_err(Error::memory(ACTION))?;
        let mapping = Mapping::prefaulted(&memory, Access::ReadWrite).map_err(Error::memory(ACTION))?;
        Ok(Memory::own(memory, Some(mapping)))
    }

    /// Memory that holds these bytes, part after part, and that nobody can change any more: what constants
    /// should be in, and inputs that are used again and again, for a driver uses them in place. Inputs are
    /// read there by devices that can, as those of this project do from 4 KiB on, if they begin at a multiple
    /// of 64 bytes and are as long as the operand.
    ///
    /// # Errors
    /// No bytes; the system has no memory or no descriptors.
    pub fn sealed(parts: &[&[u8]]) -> Result<Memory> {
        let memory = SharedMemory::create_sealed_parts(parts).map_err(Error::memory("make sealed memory"))?;
        Ok(Memory::own(memory, None))
    }

    /// `size` bytes from `offset` of a file, memfd or dma-buf, which may be mapped for writing if
    /// `is_writable`. The role of the NDK's `ANeuralNetworksMemory_createFromFd`.
    ///
    /// Whether it can serve as memory is for the driver to say, at first use. If its owner cuts the file
    /// short while it is in use, the processes that use it may die of it: the worker, which the next call
    /// then reports, and this one if it reads or writes through this handle.
    ///
    /// # Errors
    /// Size 0; offset and size exceed 64 bits.
    pub fn from_fd(fd: OwnedFd, offset: u64, size: u64, is_writable: bool) -> Result<Memory> {
        Memory::of_fd(fd, (offset, size), is_writable, pool_name::MMAP_FD)
    }

    /// All `size` bytes of a hardware buffer of the format BLOB, by the descriptor of its dma-buf, which may
    /// be mapped for writing if `is_writable`. The role of the NDK's
    /// `ANeuralNetworksMemory_createFromAHardwareBuffer`; buffers of other formats have no bytes that a
    /// driver could use.
    ///
    /// Accesses by this process and by drivers are told to the kernel, so that they and those of the devices
    /// that share the buffer see each other's bytes.
    ///
    /// # Errors
    /// Size 0.
    pub fn from_hardware_buffer(fd: OwnedFd, size: u64, is_writable: bool) -> Result<Memory> {
        Memory::of_fd(fd, (0, size), is_writable, pool_name::HARDWARE_BUFFER_BLOB)
    }

    fn of_fd(
        fd: OwnedFd,
        (offset, size): (u64, u64),
        is_writable: bool,
        name: &'static str,
    ) -> Result<Memory> {
        if size == 0 || offset.checked_add(size).is_none() {
            return Err(Error::argument(format!(
                "a memory of {size} bytes from offset {offset} of a file; the size must not be 0 and the sum must fit 64 bits"
            )));
        }
        let protection = if is_writable {
            PROT_READ | PROT_WRITE
        } else {
            PROT_READ
        };
        Ok(Memory::with(fd, offset, size, protection, name))
    }

    fn own(memory: SharedMemory, mapping: Option<Mapping>) -> Memory {
        let size = memory.size();
        let protection = if memory.is_writable() {
            PROT_READ | PROT_WRITE
        } else {
            PROT_READ
        };
        let own = Memory::with(memory.into(), 0, size, protection, pool_name::ASHMEM);
        if let Some(mapping) = mapping {
            // The cell has just been made.
            let _ = own.inner.mapping.set(Ok(mapping));
        }
        own
    }

    fn with(fd: OwnedFd, offset: u64, size: u64, protection: u32, name: &'static str) -> Memory {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = Inner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            fd,
            offset,
            size,
            protection,
            name,
            mapping: OnceLock::new(),
            known_to: Mutex::default(),
            digest: OnceLock::new(),
        };
        Memory {
            inner: Arc::new(inner),
        }
    }

    /// Size in bytes, never 0.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.size
    }

    /// Whether both are handles on the same memory object.
    #[must_use]
    pub fn is_same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Copies bytes out of the memory.
    ///
    /// # Errors
    /// The range lies outside; the memory cannot be mapped.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let _access = self.begin(Access::ReadOnly)?;
        self.bytes()?
            .read_at(offset, bytes)
            .map_err(Error::memory("read shared memory"))
    }

    /// Copies bytes into the memory.
    ///
    /// # Errors
    /// The range lies outside; the memory is read-only or cannot be mapped.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let _access = self.begin(Access::ReadWrite)?;
        self.bytes()?
            .write_for_peer(offset, bytes)
            .map_err(Error::memory("write shared memory"))
    }

    /// Copies `count` values out of the memory, from byte `offset` on.
    ///
    /// # Errors
    /// As [`Memory::read_at`].
    pub fn read<T: Element>(&self, offset: u64, count: usize) -> Result<Vec<T>> {
        // Checked before anything is allocated.
        let bytes = (count as u64).checked_mul(size_of::<T>() as u64);
        self.bytes()?
            .slice(offset, bytes.unwrap_or(u64::MAX))
            .map_err(Error::memory("read shared memory"))?;
        let mut values = vec![T::zeroed(); count];
        self.read_at(offset, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Copies values into the memory, from byte `offset` on.
    ///
    /// # Errors
    /// As [`Memory::write_at`].
    pub fn write<T: Element>(&self, offset: u64, values: &[T]) -> Result<()> {
        self.write_at(offset, bytemuck::cast_slice(values))
    }

    /// Sets every byte to zero.
    ///
    /// # Errors
    /// The memory is read-only or cannot be mapped.
    pub fn clear(&self) -> Result<()> {
        let _access = self.begin(Access::ReadWrite)?;
        self.bytes()?
            .clear()
            .map_err(Error::memory("clear shared memory"))
    }

    /// All bytes: in place if nobody can ever change them, else a copy.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn constant_bytes(&self) -> Result<std::borrow::Cow<'_, [u8]>> {
        let shared = self.bytes()?;
        let _access = self.begin(Access::ReadOnly)?;
        let mapped = self.inner.mapping.get().and_then(|mapping| mapping.as_ref().ok());
        let in_place = mapped.and_then(Mapping::as_bytes).and_then(|bytes| {
            let start = usize::try_from(self.inner.offset).ok()?;
            let length = usize::try_from(self.inner.size).ok()?;
            bytes.get(start..start.checked_add(length)?)
        });
        if let Some(bytes) = in_place {
            return Ok(bytes.into());
        }
        let mut bytes = vec![0; usize::try_from(self.inner.size).unwrap_or(usize::MAX)];
        shared
            .read_at(0, &mut bytes)
            .map_err(Error::memory("read shared memory"))?;
        Ok(bytes.into())
    }

    /// Whether it was given as a hardware buffer.
    pub(crate) fn is_hardware_buffer(&self) -> bool {
        self.inner.name == pool_name::HARDWARE_BUFFER_BLOB
    }

    /// Tells the memory from all others that this process ever had.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// The memory's bytes, mapped with the first access.
    pub(crate) fn bytes(&self) -> Result<SharedSlice<'_>> {
        let inner = &self.inner;
        self.mapping()?
            .slice(inner.offset, inner.size)
            .map_err(Error::memory("access shared memory"))
    }

    /// Begins an access to memory that devices may share.
    fn begin(&self, access: Access) -> Result<OngoingAccess<'_>> {
        self.mapping()?
            .begin(access)
            .map_err(Error::memory("access shared memory"))
    }

    fn mapping(&self) -> Result<&Mapping> {
        let inner = &self.inner;
        let mapping = inner.mapping.get_or_init(|| inner.map().map_err(Arc::new));
        mapping.as_ref().map_err(|error| {
            Error::from(ErrorKind::Memory {
                action: "map shared memory",
                source: Arc::clone(error),
            })
        })
    }

    /// The HighwayHash of the bytes under a key: of bytes that nobody chose knowing the key, no two have the
    /// same. Of sealed memory it is computed in place, and once for the first key.
    ///
    /// # Errors
    /// As [`Memory::read_at`].
    pub(crate) fn digest(&self, key: DigestKey) -> Result<Digest> {
        if let Some((_, digest)) = self.inner.digest.get().filter(|known| known.0 == key) {
            return Ok(*digest);
        }
        let mut hasher = HighwayHasher::new(Key(key));
        let (start, size) = (self.inner.offset as usize, self.inner.size as usize);
        let sealed = self.mapping()?.as_bytes();
        let sealed = sealed.and_then(|bytes| bytes.get(start..start.checked_add(size)?));
        if let Some(bytes) = sealed {
            let digest = hasher.hash256(bytes);
            // If another key was first, this one's digest is computed anew each time.
            let _ = self.inner.digest.set((key, digest));
            return Ok(digest);
        }
        let mut block = vec![0; 256 * 1024];
        let mut offset = 0;
        while offset < self.size() {
            let length = (self.size() - offset).min(block.len() as u64);
            let part = &mut block[..length as usize];
            self.read_at(offset, part)?;
            hasher.append(part);
            offset += length;
        }
        Ok(hasher.finalize256())
    }

    /// The name under which the connection's worker knows the memory; it is told if it does not.
    pub(crate) fn handle_on(&self, connection: &Arc<Connection>) -> Result<MemoryHandle> {
        self.handle_by(connection, connection.link().timeouts().call_deadline())
    }

    /// The same, with how long to wait for the worker.
    pub(crate) fn handle_by(&self, connection: &Arc<Connection>, deadline: Deadline) -> Result<MemoryHandle> {
        if let Some(handle) = self.inner.known_handle(connection) {
            return Ok(handle);
        }
        let description = MemoryDescription {
            name: self.inner.name.to_owned(),
            fds: 1,
            size: self.inner.size,
            offset: self.inner.offset,
            protection: self.inner.protection,
        };
        let call = Call::RegisterMemory(description);
        let name = call.name();
        let link = connection.link();
        let handle = match link.call_by(call, &[self.inner.fd.as_fd()], deadline)? {
            (Reply::Memory(handle), _) => handle,
            (other, _) => return Err(link.misplaced(name, &other)),
        };
        let mut known_to = self.inner.lock();
        // Another thread may have told the worker at the same time.
        if let Some(first) = find(&known_to, connection) {
            drop(known_to);
            link.release(Object::Memory(handle));
            return Ok(first);
        }
        known_to.retain(|registration| registration.connection.strong_count() > 0);
        known_to.push(Registration {
            connection: Arc::downgrade(connection),
            handle,
        });
        Ok(handle)
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

fn find(known_to: &[Registration], connection: &Arc<Connection>) -> Option<MemoryHandle> {
    known_to
        .iter()
        .find(|registration| std::ptr::eq(registration.connection.as_ptr(), Arc::as_ptr(connection)))
        .map(|registration| registration.handle)
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Registration>> {
        self.known_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_handle(&self, connection: &Arc<Connection>) -> Option<MemoryHandle> {
        find(&self.lock(), connection)
    }

    fn map(&self) -> std::result::Result<Mapping, ShmError> {
        let memory = SharedMemory::from_fd(self.fd.try_clone()?, self.offset + self.size, u64::MAX)?;
        let is_writable = self.protection & PROT_WRITE != 0 && memory.is_writable();
        Mapping::new(
            &memory,
            if is_writable {
                Access::ReadWrite
            } else {
                Access::ReadOnly
            },
        )
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for registration in self.lock().drain(..) {
            if let Some(connection) = registration.connection.upgrade() {
                connection.link().release(Object::Memory(registration.handle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back() {
        let memory = Memory::new(100).unwrap();
        memory.write(4, &[1.5_f32, -2.0]).unwrap();
        assert_eq!(memory.read::<f32>(4, 2).unwrap(), [1.5, -2.0]);
        assert_eq!(memory.read::<u8>(0, 4).unwrap(), [0; 4]);
        memory.clear().unwrap();
        assert_eq!(memory.read::<f32>(4, 2).unwrap(), [0.0; 2]);
    }

    #[test]
    fn access_outside_is_refused_before_anything_is_allocated() {
        let memory = Memory::new(100).unwrap();
        assert!(memory.write(97, &[0_i32]).is_err());
        assert!(memory.read::<i32>(0, usize::MAX).is_err());
        assert!(memory.read::<i32>(0, 26).is_err());
    }

    #[test]
    fn digests_are_of_the_bytes_that_are_there() {
        const KEY: DigestKey = [1, 2, 3, 4];
        let digest = |memory: &Memory| memory.digest(KEY).unwrap();
        let sealed = Memory::sealed(&[b"abc"]).unwrap();
        let open = Memory::new(3).unwrap();
        open.write_at(0, b"abc").unwrap();
        assert_eq!(digest(&sealed), digest(&open));
        assert_eq!(digest(&sealed), digest(&sealed));
        assert_ne!(sealed.digest([1, 2, 3, 5]).unwrap(), digest(&sealed));
        open.write_at(0, b"abd").unwrap();
        assert_ne!(digest(&sealed), digest(&open));
        let fd = sealed.inner.fd.try_clone().unwrap();
        let part = Memory::from_fd(fd, 1, 2, false).unwrap();
        assert_eq!(digest(&part), digest(&Memory::sealed(&[b"bc"]).unwrap()));
    }

    #[test]
    fn sealed_memory_is_read_only() {
        let memory = Memory::sealed(&[b"ab", b"c"]).unwrap();
        assert_eq!(memory.read::<u8>(0, 3).unwrap(), b"abc");
        assert!(memory.write(0, b"x").is_err());
        assert!(Memory::sealed(&[]).is_err() && Memory::new(0).is_err());
    }

    #[test]
    fn part_of_a_file_is_seen_from_its_offset() {
        use std::io::Write;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let memory = Memory::from_fd(file.try_clone().unwrap().into(), 3, 4, true).unwrap();
        assert_eq!(memory.read::<u8>(0, 4).unwrap(), b"3456");
        assert!(memory.read::<u8>(0, 5).is_err());
        let beyond = Memory::from_fd(file.into(), 8, 4, true).unwrap();
        assert!(beyond.read::<u8>(0, 1).is_err());
        let pipe = std::io::pipe().unwrap().0;
        assert!(
            Memory::from_fd(pipe.into(), 0, 1, false)
                .unwrap()
                .read::<u8>(0, 1)
                .is_err()
        );
    }
}
