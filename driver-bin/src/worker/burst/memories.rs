//! The memories that a burst's requests name.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use nnhal::wire::{Failure, MemoryHandle, Place};

use crate::worker::memory::{Memories, Memory};
use crate::worker::run::Pools;

/// A memory that a burst has met. The client can free it at any time.
#[derive(Debug)]
pub(super) struct KnownMemory {
    handle: MemoryHandle,
    memory: Weak<Memory>,
    /// Where it was the last time among those that were held.
    place: Cell<usize>,
}

impl KnownMemory {
    pub(super) fn new(handle: MemoryHandle, memory: &Arc<Memory>) -> KnownMemory {
        KnownMemory {
            handle,
            memory: Arc::downgrade(memory),
            place: Cell::new(0),
        }
    }

    #[inline]
    fn is(&self, memory: &Arc<Memory>) -> bool {
        std::ptr::eq(Arc::as_ptr(memory), self.memory.as_ptr())
    }

    /// The memory, unless the client gave it up; other calls may hold it a moment longer.
    fn alive(&self) -> Option<Arc<Memory>> {
        self.memory.upgrade().filter(|memory| !memory.is_freed())
    }
}

/// Memories that the burst has met, so that general requests need not ask for them under a lock each time.
#[derive(Debug, Default)]
pub(super) struct KnownMemories {
    known: Vec<KnownMemory>,
}

/// Most memories that are kept in mind; beyond that the oldest is looked up anew.
const MAX_KNOWN: usize = 256;

impl KnownMemories {
    pub(super) fn get(&mut self, handle: MemoryHandle, memories: &Memories) -> Result<Arc<Memory>, Failure> {
        let met = self.known.iter().find(|known| known.handle == handle);
        if let Some(memory) = met.and_then(KnownMemory::alive) {
            return Ok(memory);
        }
        let memory = memories.get(handle)?;
        self.known.retain(|known| known.memory.strong_count() > 0);
        if self.known.len() >= MAX_KNOWN {
            self.known.remove(0);
        }
        self.known.push(KnownMemory::new(handle, &memory));
        Ok(memory)
    }
}

/// The memories of the request that is run, and of those before it in a series: taking and dropping them for each would
/// be four locked instructions.
#[derive(Debug, Default)]
pub(super) struct HeldMemories {
    held: Vec<Arc<Memory>>,
}

/// Those of one request, all of them held.
#[derive(Debug)]
pub(super) struct RequestMemories<'a> {
    held: &'a [Arc<Memory>],
    by_pool: &'a [Option<KnownMemory>],
}

/// Most memories that are held for the requests of a series; those of one request are held however many they are.
const MAX_HELD: usize = 16;

impl HeldMemories {
    /// Holds the memories of a request, which must all be there still.
    #[inline]
    pub(super) fn hold<'a>(
        &'a mut self,
        by_pool: &'a [Option<KnownMemory>],
    ) -> Result<RequestMemories<'a>, Failure> {
        if self.held.len() > MAX_HELD {
            self.held.clear();
        }
        for (index, known) in by_pool.iter().enumerate() {
            if let Some(known) = known
                && !self.has(known)
                && !self.add(known)
            {
                return Err(freed(index, known.handle));
            }
        }
        Ok(RequestMemories {
            held: &self.held,
            by_pool,
        })
    }

    /// Whether the memory is held where it was the last time, and still there.
    #[inline]
    fn has(&self, known: &KnownMemory) -> bool {
        let held = self.held.get(known.place.get());
        held.is_some_and(|held| known.is(held) && !held.is_freed())
    }

    /// Holds the memory if it is still there.
    #[cold]
    fn add(&mut self, known: &KnownMemory) -> bool {
        let Some(memory) = known.alive() else { return false };
        let place = self.held.iter().position(|held| known.is(held));
        known.place.set(place.unwrap_or(self.held.len()));
        if place.is_none() {
            self.held.push(memory);
        }
        true
    }

    /// Lets go of all of them, so that what the client frees goes.
    #[inline]
    pub(super) fn release(&mut self) {
        self.held.clear();
    }
}

impl Pools for RequestMemories<'_> {
    #[inline]
    fn memory(&self, pool: u32) -> Option<&Memory> {
        let known = self.by_pool.get(pool as usize)?.as_ref()?;
        self.held.get(known.place.get()).map(Arc::as_ref)
    }
}

fn freed(pool: usize, handle: MemoryHandle) -> Failure {
    Failure::invalid_argument(format!(
        "memory {} of generation {} was freed; register the request anew",
        handle.0.index, handle.0.generation
    ))
    .at(Place {
        pool: u32::try_from(pool).ok(),
        ..Place::default()
    })
}
