//! Memories that the client shares.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nnhal::wire::{Handle, MemoryDescription, MemoryHandle};
use nnhal_device::exhaustion;
use nnhal_hal::{ErrorStatus, Failure, Model, OperandLifeTime, Place};
use nnhal_os::shm::{Access, Mapping, OngoingAccess, SealedBytes, SharedMemory, SharedSlice, ShmError};

use super::table::{OBJECTS, Table, no_such, over_quota, too_many};
use crate::settings::Limits;
use crate::usage::{Permit, Quotas};

/// `PROT_WRITE` of a memory's description.
const PROTECTION_WRITE: u32 = 2;

/// A memory that the client shares, mapped when it is first used.
#[derive(Debug)]
pub(crate) struct Memory {
    shared: SharedMemory,
    /// What a client calls it, as far as it has said.
    handle: Handle,
    /// Where in the file the memory starts.
    base: u64,
    size: u64,
    is_writable: bool,
    mapping: OnceLock<Mapping>,
    /// Held by whoever maps it.
    maps: Mutex<()>,
    /// The whole file, if nobody can ever change it.
    sealed: OnceLock<Option<Arc<SealedBytes>>>,
    /// Whether the client gave it up. Whoever still uses it then keeps it until that is done, a burst until
    /// its next batch of requests, or the first pause.
    is_freed: AtomicBool,
    /// The descriptor and the bytes that count among those of the user's clients.
    permits: Option<(Permit, Permit)>,
}

impl Memory {
    /// Whether other devices share it, whom an access may have to wait for.
    pub(crate) fn is_dma_buf(&self) -> bool {
        self.shared.is_dma_buf()
    }

    /// Takes what the client sent as a memory.
    fn new(description: &MemoryDescription, mut fds: Vec<OwnedFd>) -> Result<Memory, Failure> {
        let base = match description.name.as_str() {
            "ashmem" | "hardware_buffer_blob" if description.offset == 0 => 0,
            "ashmem" | "hardware_buffer_blob" => {
                return Err(Failure::invalid_argument(format!(
                    "a memory named {:?} starts at offset 0, not {}",
                    description.name, description.offset
                )));
            }
            "mmap_fd" => description.offset,
            other => {
                return Err(Failure::invalid_argument(format!(
                    "memories named {other:?} are not supported; use ashmem, mmap_fd or hardware_buffer_blob"
                )));
            }
        };
        let (Some(fd), true) = (fds.pop(), fds.is_empty()) else {
            return Err(Failure::invalid_argument(format!(
                "the handle of a memory has one descriptor, not {}",
                description.fds
            )));
        };
        let end = base.checked_add(description.size).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "{} bytes from offset {base} do not fit 64 bits",
                description.size
            ))
        })?;
        // The quota is looked at afterwards: a file that is not as large as said is wrong whatever the quota.
        let shared = SharedMemory::from_fd(fd, end, u64::MAX)
            .map_err(|error| memory_failure(&error, description.size))?;
        if description.size == 0 {
            return Err(memory_failure(&ShmError::Empty, 0));
        }
        let is_writable = shared.is_writable() && description.protection & PROTECTION_WRITE != 0;
        Ok(Memory {
            shared,
            handle: Handle {
                index: 0,
                generation: 0,
            },
            base,
            size: description.size,
            is_writable,
            mapping: OnceLock::new(),
            maps: Mutex::new(()),
            sealed: OnceLock::new(),
            is_freed: AtomicBool::new(false),
            permits: None,
        })
    }

    /// Whether the client has given it up.
    pub(crate) fn is_freed(&self) -> bool {
        self.is_freed.load(Ordering::Acquire)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Whether outputs can be written there.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// The memory, mapped.
    #[inline]
    pub(crate) fn slice(&self) -> Result<SharedSlice<'_>, Failure> {
        self.mapping()?
            .slice(self.base, self.size)
            .map_err(|error| mapping_failure(&error, self.size))
    }

    /// To be called before the memory is read, and written if `access` says so; see [`Mapping::begin`].
    #[inline]
    pub(crate) fn begin(&self, access: Access) -> Result<OngoingAccess<'_>, Failure> {
        self.mapping()?
            .begin(access)
            .map_err(|error| mapping_failure(&error, self.size))
    }

    /// Copies the bytes from `offset` on.
    // Failures are boxed, as those of the two below: an outcome that fits a register is there at once.
    // Whatever is not as mostly is left to the slow way.
    #[inline(always)]
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Box<Failure>> {
        if let Some(memory) = self.at_hand(offset, bytes.len())
            && memory.read_at(self.base + offset, bytes).is_ok()
        {
            return Ok(());
        }
        self.read_slowly(offset, bytes)
    }

    /// Copies `bytes` to `offset`, for the client to read next.
    #[inline(always)]
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Box<Failure>> {
        if let Some(memory) = self.at_hand(offset, bytes.len())
            && memory.write_for_peer(self.base + offset, bytes).is_ok()
        {
            return Ok(());
        }
        self.write_slowly(offset, bytes)
    }

    /// Maps the memory, and has a place that is to be written soon taken from other processors' caches.
    #[inline(always)]
    pub(crate) fn expect_write(&self, offset: u64, length: u64) -> Result<(), Box<Failure>> {
        let memory = self.mapping()?.as_slice();
        memory.prefetch_to_write(self.base.saturating_add(offset), length);
        Ok(())
    }

    /// The whole file, if nothing needs to be done before and after these bytes of the memory are copied.
    #[inline(always)]
    fn at_hand(&self, offset: u64, length: usize) -> Option<SharedSlice<'_>> {
        let end = offset.checked_add(length as u64)?;
        let mapping = self.mapping.get()?;
        (end <= self.size && !mapping.is_shared_with_devices()).then(|| mapping.as_slice())
    }

    /// Where in a dma-buf so many bytes from `offset` on are, if the memory is one.
    pub(crate) fn dma_buf(&self, offset: u64, length: u64) -> Option<(BorrowedFd<'_>, Range<u64>)> {
        let start = self.base.checked_add(offset)?;
        let end = offset.checked_add(length).filter(|end| *end <= self.size)?;
        let part = start..self.base.checked_add(end)?;
        self.is_dma_buf().then(|| (self.shared.as_fd(), part))
    }

    #[cold]
    fn read_slowly(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Box<Failure>> {
        let _access = self.begin(Access::ReadOnly)?;
        let copied = self.slice()?.read_at(offset, bytes);
        copied.map_err(|error| Box::new(Failure::general(error.to_string())))
    }

    #[cold]
    fn write_slowly(&self, offset: u64, bytes: &[u8]) -> Result<(), Box<Failure>> {
        let _access = self.begin(Access::ReadWrite)?;
        let copied = self.slice()?.write_for_peer(offset, bytes);
        copied.map_err(|error| Box::new(Failure::general(error.to_string())))
    }

    #[inline]
    fn mapping(&self) -> Result<&Mapping, Failure> {
        match self.mapping.get() {
            Some(mapping) => Ok(mapping),
            None => self.map(),
        }
    }

    #[cold]
    fn map(&self) -> Result<&Mapping, Failure> {
        let access = if self.is_writable {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        };
        // Several threads may read parts of one input: two mappings could be more than the worker may have.
        let _one = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = self.mapping.get() {
            return Ok(mapping);
        }
        let mapping = Mapping::new(&self.shared, access)
            .map_err(|error| mapping_failure(&error, self.shared.size()))?
            .named(self.handle.to_bits());
        Ok(self.mapping.get_or_init(|| mapping))
    }

    /// What holds so many bytes from `offset` on, and where they are in it, if nobody can ever change them.
    pub(crate) fn sealed(&self, offset: u64, length: u64) -> Option<(&Arc<SealedBytes>, Range<usize>)> {
        let end = offset.checked_add(length).filter(|end| *end <= self.size)?;
        let map = || {
            let is_sealed = self.shared.is_immutable();
            // Copying is left where it cannot be mapped.
            is_sealed
                .then(|| SealedBytes::map_parts(&self.shared).ok().map(Arc::new))
                .flatten()
        };
        let bytes = self.sealed.get_or_init(map).as_ref()?;
        let [start, end] = [offset, end].map(|at| usize::try_from(self.base.checked_add(at)?).ok());
        Some((bytes, start?..end?))
    }

    /// The bytes in place, if nobody can ever change them.
    fn immutable_bytes(&self) -> Option<&[u8]> {
        let (bytes, range) = self.sealed(0, self.size)?;
        bytes.bytes().get(range)
    }

    fn copy(&self, length: u64) -> Result<Vec<u8>, Failure> {
        self.shared
            .read_to_vec(self.base, length)
            .map_err(|error| memory_failure(&error, length))
    }
}

/// What is wrong with a memory of so many bytes, as the client describes it.
fn memory_failure(error: &ShmError, size: u64) -> Failure {
    let status = if error.is_exhaustion() {
        exhaustion(size)
    } else {
        ErrorStatus::InvalidArgument
    };
    Failure::new(status, error.to_string())
}

/// Why a memory of so many bytes that was valid once cannot be used.
#[cold]
fn mapping_failure(error: &ShmError, size: u64) -> Failure {
    let status = if error.is_exhaustion() {
        exhaustion(size)
    } else {
        ErrorStatus::GeneralFailure
    };
    Failure::new(status, error.to_string())
}

/// All memories of a client. Bursts look here from their own threads when they meet a handle for the first
/// time.
#[derive(Debug)]
pub(crate) struct Memories {
    state: Mutex<State>,
    limits: Limits,
    quotas: Quotas,
}

#[derive(Debug)]
struct State {
    table: Table<Arc<Memory>>,
    bytes: u64,
}

impl Memories {
    pub(crate) fn new(limits: &Limits, quotas: Quotas) -> Memories {
        Memories {
            state: Mutex::new(State {
                table: Table::new(limits.objects),
                bytes: 0,
            }),
            limits: limits.clone(),
            quotas,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between any two statements of this module.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(
        &self,
        description: &MemoryDescription,
        fds: Vec<OwnedFd>,
    ) -> Result<MemoryHandle, Failure> {
        let mut memory = Memory::new(description, fds)?;
        let mut state = self.lock();
        let bytes = self.bytes_with(&state, memory.size)?;
        memory.permits = Some((self.quotas.descriptor()?, self.quotas.shared_bytes(memory.size)?));
        let handle = state
            .table
            .insert_with(|handle| {
                memory.handle = handle;
                Arc::new(memory)
            })
            .map_err(|full| too_many("memories", full, OBJECTS))?;
        state.bytes = bytes;
        Ok(handle.into())
    }

    /// Counts a memory that has no handle, and that is there for as long as this worker lives.
    pub(crate) fn count_for_good(&self, size: u64) -> Result<Permit, Failure> {
        let mut state = self.lock();
        let bytes = self.bytes_with(&state, size)?;
        let permit = self.quotas.shared_bytes(size)?;
        state.bytes = bytes;
        Ok(permit)
    }

    /// How many bytes the client shares with so many more.
    fn bytes_with(&self, state: &State, more: u64) -> Result<u64, Failure> {
        let bytes = state.bytes.saturating_add(more);
        if bytes <= self.limits.shared_bytes {
            return Ok(bytes);
        }
        Err(Failure::new(
            over_quota(more, self.limits.shared_bytes),
            format!(
                "{more} bytes more of shared memory exceed the {} bytes that one client may share; it shares {} (the \
                 driver's setting limits.shared_bytes)",
                self.limits.shared_bytes, state.bytes
            ),
        ))
    }

    pub(crate) fn remove(&self, handle: MemoryHandle) -> Result<(), Failure> {
        let mut state = self.lock();
        let memory = state
            .table
            .remove(handle.0)
            .ok_or_else(|| no_such("memory", handle.0))?;
        memory.is_freed.store(true, Ordering::Release);
        state.bytes = state.bytes.saturating_sub(memory.size);
        Ok(())
    }

    pub(crate) fn get(&self, handle: MemoryHandle) -> Result<Arc<Memory>, Failure> {
        self.lock()
            .table
            .get(handle.0)
            .cloned()
            .ok_or_else(|| no_such("memory", handle.0))
    }

    pub(crate) fn get_all(&self, handles: &[MemoryHandle]) -> Result<Vec<Arc<Memory>>, Failure> {
        let of_pool = |(index, &handle): (usize, &MemoryHandle)| {
            let place = Place {
                pool: u32::try_from(index).ok(),
                ..Place::default()
            };
            self.get(handle).map_err(|failure| failure.at(place))
        };
        handles.iter().enumerate().map(of_pool).collect()
    }
}

/// The constants of a model in memories, in a form that nobody else can change.
#[derive(Debug)]
pub(crate) enum ConstantPool {
    /// Sealed: used where it is.
    InPlace(Arc<Memory>),
    Copied(Vec<u8>),
}

impl AsRef<[u8]> for ConstantPool {
    fn as_ref(&self) -> &[u8] {
        match self {
            ConstantPool::InPlace(memory) => memory.immutable_bytes().unwrap_or_default(),
            ConstantPool::Copied(bytes) => bytes,
        }
    }
}

/// Makes a model's pools safe to read. Sealed memories are used in place; of others, what the model refers to
/// is copied, once, by reading the file: a file that its owner cuts short is an error then and not a fault.
pub(crate) fn constant_pools(
    model: &Model,
    memories: &[Arc<Memory>],
    limits: &Limits,
) -> Result<Vec<ConstantPool>, Failure> {
    let mut used = vec![0_u64; memories.len()];
    let operands = model.subgraphs().flat_map(|(_, graph)| &graph.operands);
    for operand in operands.filter(|operand| operand.lifetime == OperandLifeTime::ConstantReference) {
        let location = operand.location;
        if let Some(used) = used.get_mut(location.pool_index as usize) {
            *used = (*used).max(u64::from(location.offset) + u64::from(location.length));
        }
    }
    let mut left = limits.constant_bytes;
    let mut pools = Vec::with_capacity(memories.len());
    for (memory, used) in memories.iter().zip(used) {
        if memory.immutable_bytes().is_some() {
            pools.push(ConstantPool::InPlace(Arc::clone(memory)));
            continue;
        }
        // Beyond its end is for validation to refuse.
        let length = used.min(memory.size);
        left = left.checked_sub(length).ok_or_else(|| {
            Failure::new(
                ErrorStatus::ResourceExhaustedPersistent,
                format!(
                    "the model's constants outside of sealed memory exceed {} bytes; seal their memories",
                    limits.constant_bytes
                ),
            )
        })?;
        pools.push(ConstantPool::Copied(memory.copy(length)?));
    }
    Ok(pools)
}

#[cfg(test)]
mod tests;
