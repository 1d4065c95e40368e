//! The memories that a burst's requests name.

use std::sync::{Arc, Weak};

use nnhal::wire::MemoryHandle;
use nnhal_hal::{Failure, Place};

use crate::worker::memory::{Memories, Memory};
use crate::worker::run::Pools;

/// The memories that a burst's requests have named, so that none is asked for under a lock each time. The
/// client can free them at any time.
///
/// Those of the request that is run are held, and those of requests before it if each has followed at once:
/// taking and dropping them for each would be four locked instructions.
#[derive(Debug, Default)]
pub(super) struct NamedMemories {
    named: Vec<Named>,
    /// The places of those that are held.
    held: Vec<usize>,
}

#[derive(Debug)]
struct Named {
    handle: MemoryHandle,
    memory: Weak<Memory>,
    held: Option<Arc<Memory>>,
}

/// A memory as a request names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryName {
    handle: MemoryHandle,
    /// Where it was the last time in [`NamedMemories`].
    place: usize,
}

/// Those of one request, all of which are held.
#[derive(Debug)]
pub(super) struct RequestMemories<'a> {
    memories: &'a NamedMemories,
    by_pool: &'a [Option<MemoryName>],
}

/// Most memories that are kept in mind. With more a request begins anew, so that they are found quickly.
const MAX_NAMED: usize = 256;

/// With more held memories than these a request begins anew, so that they do not gather.
const MAX_HELD: usize = 16;

impl NamedMemories {
    /// To be called before the memories of a request are named or held.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.held.len() > MAX_HELD || self.named.len() > MAX_NAMED {
            self.begin_anew();
        }
    }

    #[cold]
    fn begin_anew(&mut self) {
        self.release();
        if self.named.len() > MAX_NAMED {
            self.named.clear();
        }
    }

    /// Names a memory, which is held then.
    #[inline]
    pub(super) fn name(&mut self, handle: MemoryHandle, memories: &Memories) -> Result<MemoryName, Failure> {
        let known = self.named.iter().position(|named| named.handle == handle);
        let name = MemoryName {
            handle,
            place: known.unwrap_or(self.named.len()),
        };
        if self.get(name).is_some() {
            return Ok(name);
        }
        self.add(name, memories)
    }

    /// Holds the memories of a request that was compiled before, which must all be there still.
    #[inline]
    pub(super) fn hold(
        &mut self,
        by_pool: &mut [Option<MemoryName>],
        memories: &Memories,
    ) -> Result<(), Box<Failure>> {
        self.begin();
        for (pool, name) in by_pool.iter_mut().enumerate() {
            let Some(name) = name else { continue };
            if self.get(*name).is_none() {
                *name = self
                    .name(name.handle, memories)
                    .map_err(|_| freed(pool, name.handle))?;
            }
        }
        Ok(())
    }

    /// Those of a request that are all held.
    #[inline(always)]
    pub(super) fn of<'a>(&'a self, by_pool: &'a [Option<MemoryName>]) -> RequestMemories<'a> {
        RequestMemories {
            memories: self,
            by_pool,
        }
    }

    /// The memory of a name that was just given, or is known to be held still.
    #[inline(always)]
    pub(super) fn get(&self, name: MemoryName) -> Option<&Memory> {
        let named = self.named.get(name.place)?;
        let memory = named.held.as_deref()?;
        (named.handle == name.handle && !memory.is_freed()).then_some(memory)
    }

    #[cold]
    fn add(&mut self, name: MemoryName, memories: &Memories) -> Result<MemoryName, Failure> {
        let known = self
            .named
            .get(name.place)
            .and_then(|named| named.memory.upgrade());
        let memory = match known.filter(|memory| !memory.is_freed()) {
            Some(memory) => memory,
            None => memories.get(name.handle)?,
        };
        let named = Named {
            handle: name.handle,
            memory: Arc::downgrade(&memory),
            held: Some(memory),
        };
        match self.named.get_mut(name.place) {
            Some(place) => *place = named,
            None => self.named.push(named),
        }
        self.held.push(name.place);
        Ok(name)
    }

    /// Lets go of what the client has freed, and with it of all others, to be asked for anew.
    #[inline]
    pub(super) fn forget_freed(&mut self) {
        let is_freed = |place: &usize| {
            let named = self.named.get(*place);
            named.is_some_and(|named| named.held.as_ref().is_some_and(|memory| memory.is_freed()))
        };
        if self.held.iter().any(is_freed) {
            self.release();
        }
    }

    /// Lets go of all of them, so that what the client frees goes.
    #[inline]
    pub(super) fn release(&mut self) {
        for place in self.held.drain(..) {
            if let Some(named) = self.named.get_mut(place) {
                named.held = None;
            }
        }
    }
}

impl Pools for RequestMemories<'_> {
    #[inline(always)]
    fn memory(&self, pool: u32) -> Option<&Memory> {
        let name = self.by_pool.get(pool as usize)?.as_ref()?;
        self.memories.named.get(name.place)?.held.as_deref()
    }
}

#[cold]
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
    fn request(
        named: &mut NamedMemories,
        of: &Memories,
        handles: &[MemoryHandle],
    ) -> Vec<Option<MemoryName>> {
        named.begin();
        let name = |handle: &MemoryHandle| Some(named.name(*handle, of).unwrap());
        handles.iter().map(name).collect()
    }

    fn sizes(named: &mut NamedMemories, of: &Memories, request: &mut [Option<MemoryName>]) -> Vec<u64> {
        named.hold(request, of).unwrap();
        let found = named.of(request);
        let pools = 0..u32::try_from(request.len()).unwrap();
        pools.map(|pool| found.memory(pool).unwrap().size()).collect()
    }

    #[test]
    fn each_pool_has_its_memory_in_whatever_order_requests_name_them() {
        let (memories, handles) = memories(3);
        let [a, b, c] = handles[..] else { unreachable!() };
        let mut named = NamedMemories::default();
        let mut requests = [vec![a, b], vec![b, a], vec![c, c, a], vec![b]]
            .map(|names| request(&mut named, &memories, &names));
        let expected = [vec![1, 2], vec![2, 1], vec![3, 3, 1], vec![2]];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for number in order {
                assert_eq!(
                    sizes(&mut named, &memories, &mut requests[number]),
                    expected[number]
                );
            }
            named.release();
        }
    }

    #[test]
    fn pools_that_are_no_memory_have_none() {
        let (memories, handles) = memories(1);
        let mut named = NamedMemories::default();
        let mut names = request(&mut named, &memories, &handles);
        names.insert(0, None);
        named.hold(&mut names, &memories).unwrap();
        let found = named.of(&names);
        assert!(found.memory(0).is_none() && found.memory(2).is_none());
        assert_eq!(found.memory(1).unwrap().size(), 1);
    }

    #[test]
    fn any_number_of_memories_is_named_and_held() {
        let count = MAX_NAMED as u64 + 40;
        let (memories, handles) = memories(count);
        let mut named = NamedMemories::default();
        let mut many = request(&mut named, &memories, &handles);
        let mut one = request(&mut named, &memories, &handles[7..8]);
        for _ in 0..2 {
            let expected: Vec<u64> = (1..=count).collect();
            assert_eq!(sizes(&mut named, &memories, &mut many), expected);
            assert_eq!(sizes(&mut named, &memories, &mut one), [8]);
        }
    }

    #[test]
    fn memory_that_is_freed_is_refused_at_once_and_gone_before_the_next_series() {
        let (memories, handles) = memories(2);
        let mut named = NamedMemories::default();
        let mut names = request(&mut named, &memories, &handles);
        let weak = Arc::downgrade(&memories.get(handles[1]).unwrap());
        assert_eq!(sizes(&mut named, &memories, &mut names), [1, 2]);
        memories.remove(handles[1]).unwrap();
        let failure = named.hold(&mut names, &memories).unwrap_err();
        assert!(failure.detail.contains("was freed"), "{}", failure.detail);
        assert!(named.name(handles[1], &memories).is_err());
        assert!(weak.strong_count() > 0);
        // Another request goes on with what is there.
        assert_eq!(sizes(&mut named, &memories, &mut names[..1]), [1]);
        named.forget_freed();
        assert_eq!(weak.strong_count(), 0);
        assert!(named.hold(&mut names, &memories).is_err());
        assert_eq!(sizes(&mut named, &memories, &mut names[..1]), [1]);
    }

    #[test]
    fn what_is_not_freed_is_held_until_it_is_given_up() {
        let (memories, handles) = memories(2);
        let mut named = NamedMemories::default();
        let counts = || {
            let memory = |handle: &MemoryHandle| memories.get(*handle).unwrap();
            handles
                .iter()
                .map(|handle| Arc::strong_count(&memory(handle)))
                .collect::<Vec<_>>()
        };
        let before = counts();
        let mut names = request(&mut named, &memories, &handles);
        assert_eq!(sizes(&mut named, &memories, &mut names), [1, 2]);
        named.forget_freed();
        assert!(counts().iter().zip(&before).all(|(count, before)| count > before));
        named.release();
        assert_eq!(counts(), before);
    }
}
