//! The memories that a burst's requests name.

use std::cell::Cell;
use std::sync::{Arc, Weak};

use nnhal::wire::MemoryHandle;
use nnhal_hal::{Failure, Place};

use crate::worker::memory::{Memories, Memory};
use crate::worker::run::Pools;

/// A memory that a burst has met. The client can free it at any time.
#[derive(Debug)]
pub(super) struct KnownMemory {
    handle: MemoryHandle,
    memory: Weak<Memory>,
    /// Where it lies, which tells it from others as long as there is `memory`.
    address: usize,
    /// Where it was the last time among those that were held.
    place: Cell<usize>,
}

impl KnownMemory {
    pub(super) fn new(handle: MemoryHandle, memory: &Arc<Memory>) -> KnownMemory {
        KnownMemory {
            handle,
            memory: Arc::downgrade(memory),
            address: Arc::as_ptr(memory).addr(),
            place: Cell::new(0),
        }
    }

    #[inline]
    fn is(&self, memory: &Arc<Memory>) -> bool {
        Arc::as_ptr(memory).addr() == self.address
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

/// The memories of the request that is run, and of those before it if each has followed at once: taking and
/// dropping them for each would be four locked instructions.
#[derive(Debug, Default)]
pub(super) struct HeldMemories {
    held: Vec<Arc<Memory>>,
}

/// Those of one request, which are held by [`HeldMemories::hold`].
#[derive(Debug)]
pub(super) struct RequestMemories<'a> {
    held: &'a HeldMemories,
    by_pool: &'a [Option<KnownMemory>],
}

/// With more memories than these a request begins anew, so that they do not gather and are found quickly.
const MAX_HELD: usize = 16;

impl HeldMemories {
    /// Holds the memories of a request, which must all be there still.
    // Always inlined, for who is handed an outcome through memory waits for it.
    #[inline(always)]
    pub(super) fn hold(&mut self, by_pool: &[Option<KnownMemory>]) -> Result<(), Failure> {
        if self.held.len() > MAX_HELD {
            self.held.clear();
        }
        for (index, known) in by_pool.iter().enumerate() {
            if let Some(known) = known
                && self.get(known).is_none()
                && !self.add(known)
            {
                return Err(freed(index, known.handle));
            }
        }
        Ok(())
    }

    /// Those of a request for which [`HeldMemories::hold`] was last called. What is held by then is looked up
    /// in place, since processors take long to copy what was stored right before in parts.
    #[inline(always)]
    pub(super) fn of<'a>(&'a self, by_pool: &'a [Option<KnownMemory>]) -> RequestMemories<'a> {
        RequestMemories { held: self, by_pool }
    }

    /// Those of a request that are held already, without a call of [`HeldMemories::hold`], and still there.
    #[inline(always)]
    pub(super) fn still<'a>(&'a self, by_pool: &'a [Option<KnownMemory>]) -> StillHeld<'a> {
        StillHeld { held: self, by_pool }
    }

    /// The memory, if it is held where it was the last time, and still there.
    #[inline(always)]
    fn get(&self, known: &KnownMemory) -> Option<&Memory> {
        let held = self.held.get(known.place.get())?;
        (known.is(held) && !held.is_freed()).then(|| &**held)
    }

    /// Holds the memory if it is still there. One behind the first [`MAX_HELD`] is held twice sooner than
    /// looked for.
    fn add(&mut self, known: &KnownMemory) -> bool {
        let Some(memory) = known.alive() else { return false };
        let place = self.held.iter().take(MAX_HELD).position(|held| known.is(held));
        known.place.set(place.unwrap_or(self.held.len()));
        if place.is_none() {
            self.held.push(memory);
        }
        true
    }

    /// Lets go of what the client has freed, and with it of all others, to be asked for anew.
    #[inline]
    pub(super) fn forget_freed(&mut self) {
        if self.held.iter().any(|memory| memory.is_freed()) {
            self.held.clear();
        }
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
        self.held.held.get(known.place.get()).map(Arc::as_ref)
    }
}

/// Those of one request that are held, as far as they are.
#[derive(Debug)]
pub(super) struct StillHeld<'a> {
    held: &'a HeldMemories,
    by_pool: &'a [Option<KnownMemory>],
}

impl Pools for StillHeld<'_> {
    #[inline(always)]
    fn memory(&self, pool: u32) -> Option<&Memory> {
        self.held.get(self.by_pool.get(pool as usize)?.as_ref()?)
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

#[cfg(test)]
mod tests {
    use nnhal::wire::MemoryDescription;
    use nnhal_os::shm::SharedMemory;

    use super::*;
    use crate::settings::Limits;

    /// Memories of 1, 2, 3 and so on bytes.
    fn memories(count: u64) -> (Memories, Vec<MemoryHandle>) {
        let memories = Memories::new(&Limits::default(), crate::usage::Quotas::alone());
        let handles = (1..=count)
            .map(|size| {
                let description = MemoryDescription {
                    name: "ashmem".into(),
                    fds: 1,
                    size,
                    offset: 0,
                    protection: 3,
                };
                let fd = SharedMemory::create(size).unwrap().into();
                memories.register(&description, vec![fd]).unwrap()
            })
            .collect();
        (memories, handles)
    }

    /// What a request remembers that names these memories.
    fn request(memories: &Memories, handles: &[MemoryHandle]) -> Vec<Option<KnownMemory>> {
        let known = |handle: &MemoryHandle| {
            let memory = memories.get(*handle).unwrap();
            Some(KnownMemory::new(*handle, &memory))
        };
        handles.iter().map(known).collect()
    }

    fn sizes(held: &mut HeldMemories, request: &[Option<KnownMemory>]) -> Vec<u64> {
        held.hold(request).unwrap();
        let found = held.of(request);
        let pools = 0..u32::try_from(request.len()).unwrap();
        pools.map(|pool| found.memory(pool).unwrap().size()).collect()
    }

    #[test]
    fn each_pool_has_its_memory_in_whatever_order_requests_name_them() {
        let (memories, handles) = memories(3);
        let [a, b, c] = handles[..] else { unreachable!() };
        let mut held = HeldMemories::default();
        let requests =
            [vec![a, b], vec![b, a], vec![c, c, a], vec![b]].map(|names| request(&memories, &names));
        let expected = [vec![1, 2], vec![2, 1], vec![3, 3, 1], vec![2]];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for number in order {
                assert_eq!(sizes(&mut held, &requests[number]), expected[number]);
            }
            held.release();
        }
    }

    #[test]
    fn pools_that_are_no_memory_have_none() {
        let (memories, handles) = memories(1);
        let mut known = request(&memories, &handles);
        known.insert(0, None);
        let mut held = HeldMemories::default();
        held.hold(&known).unwrap();
        let found = held.of(&known);
        assert!(found.memory(0).is_none() && found.memory(2).is_none());
        assert_eq!(found.memory(1).unwrap().size(), 1);
    }

    #[test]
    fn any_number_of_memories_is_held() {
        let (memories, handles) = memories(40);
        let (many, one) = (request(&memories, &handles), request(&memories, &handles[7..8]));
        let mut held = HeldMemories::default();
        for _ in 0..2 {
            assert_eq!(sizes(&mut held, &many), (1..=40).collect::<Vec<u64>>());
            assert_eq!(sizes(&mut held, &one), [8]);
        }
    }

    #[test]
    fn memory_that_is_freed_is_refused_at_once_and_gone_before_the_next_series() {
        let (memories, handles) = memories(2);
        let known = request(&memories, &handles);
        let weak = Arc::downgrade(&memories.get(handles[1]).unwrap());
        let mut held = HeldMemories::default();
        assert_eq!(sizes(&mut held, &known), [1, 2]);
        memories.remove(handles[1]).unwrap();
        let failure = held.hold(&known).unwrap_err();
        assert!(failure.detail.contains("was freed"), "{}", failure.detail);
        assert!(weak.strong_count() > 0);
        // Another request goes on with what is there.
        assert_eq!(sizes(&mut held, &known[..1]), [1]);
        held.forget_freed();
        assert_eq!(weak.strong_count(), 0);
        assert!(held.hold(&known).is_err());
        assert_eq!(sizes(&mut held, &known[..1]), [1]);
    }

    #[test]
    fn without_holding_only_what_is_held_and_not_freed_is_found() {
        let (memories, handles) = memories(3);
        let [a, b, c] = handles[..] else { unreachable!() };
        let (known, other) = (request(&memories, &[a, b]), request(&memories, &[c, b]));
        let mut held = HeldMemories::default();
        let found = |held: &HeldMemories, request: &[Option<KnownMemory>]| {
            let still = held.still(request);
            [0, 1, 2].map(|pool| still.memory(pool).map(Memory::size))
        };
        assert_eq!(found(&held, &known), [None; 3]);
        held.hold(&known).unwrap();
        assert_eq!(found(&held, &known), [Some(1), Some(2), None]);
        // Places that others have now.
        held.release();
        held.hold(&other).unwrap();
        assert_eq!(found(&held, &known), [None, Some(2), None]);
        assert_eq!(found(&held, &other), [Some(3), Some(2), None]);
        memories.remove(b).unwrap();
        assert_eq!(found(&held, &other), [Some(3), None, None]);
    }

    #[test]
    fn what_is_not_freed_is_held_until_it_is_given_up() {
        let (memories, handles) = memories(2);
        let known = request(&memories, &handles);
        let counts = || {
            let memory = |handle: &MemoryHandle| memories.get(*handle).unwrap();
            handles
                .iter()
                .map(|handle| Arc::strong_count(&memory(handle)))
                .collect::<Vec<_>>()
        };
        let before = counts();
        let mut held = HeldMemories::default();
        assert_eq!(sizes(&mut held, &known), [1, 2]);
        held.forget_freed();
        assert!(counts().iter().zip(&before).all(|(count, before)| count > before));
        held.release();
        assert_eq!(counts(), before);
    }
}
