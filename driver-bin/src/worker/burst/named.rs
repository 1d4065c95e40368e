//! What a burst's requests name of the client's objects: memories by handle, device buffers by token.

use std::fmt::Debug;
use std::sync::{Arc, Weak};

use nnhal::wire::MemoryHandle;

use crate::worker::buffer::Buffer;
use crate::worker::memory::Memory;
use crate::worker::request_pools::Pools;

/// What the client makes, and can free at any time.
pub(super) trait Object {
    fn is_freed(&self) -> bool;
}

impl Object for Memory {
    #[inline(always)]
    fn is_freed(&self) -> bool {
        Memory::is_freed(self)
    }
}

impl Object for Buffer {
    #[inline(always)]
    fn is_freed(&self) -> bool {
        Buffer::is_freed(self)
    }
}

/// Objects that requests have named, so that none is asked for under a lock each time.
///
/// Those of the request that is run are held, and those of requests before it if each has followed at once:
/// taking and dropping each is two locked instructions.
#[derive(Debug)]
pub(super) struct Named<K, T> {
    named: Vec<Entry<K, T>>,
    /// The places of those that are held.
    held: Vec<usize>,
}

#[derive(Debug)]
struct Entry<K, T> {
    id: K,
    object: Weak<T>,
    held: Option<Arc<T>>,
}

/// An object as a request names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<K> {
    /// By which the client names it, and no other ever.
    pub(super) id: K,
    /// Where it was the last time in [`Named`].
    place: usize,
}

/// Most objects that are kept in mind. With more a request begins anew, so that they are found quickly.
const MAX_NAMED: usize = 256;

/// With more held objects than these a request begins anew, so that they do not gather.
const MAX_HELD: usize = 16;

impl<K, T> Default for Named<K, T> {
    fn default() -> Named<K, T> {
        Named {
            named: Vec::new(),
            held: Vec::new(),
        }
    }
}

impl<K: Copy + PartialEq, T: Object> Named<K, T> {
    /// To be called before the objects of a request are named.
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

    /// Names an object, which is held then; `look_up` knows all that the client has not freed.
    #[inline]
    pub(super) fn name<E>(
        &mut self,
        id: K,
        look_up: impl FnOnce(K) -> Result<Arc<T>, E>,
    ) -> Result<Name<K>, E> {
        let known = self.named.iter().position(|named| named.id == id);
        let place = known.unwrap_or(self.named.len());
        let name = Name { id, place };
        if self.get(name).is_none() {
            self.add(name, look_up)?;
        }
        Ok(name)
    }

    /// Holds what was named before; the first of which there is nothing any more is the error.
    #[inline]
    pub(super) fn hold<'n, E>(
        &mut self,
        names: impl Iterator<Item = &'n mut Name<K>>,
        look_up: impl Fn(K) -> Result<Arc<T>, E>,
    ) -> Result<(), K>
    where
        K: 'n,
    {
        self.begin();
        let mut outcome = Ok(());
        for name in names {
            if self.get(*name).is_none() {
                match self.name(name.id, &look_up) {
                    Ok(held) => *name = held,
                    Err(_) => outcome = outcome.and(Err(name.id)),
                }
            }
        }
        outcome
    }

    /// The object of a name, if it is held and not freed.
    #[inline(always)]
    pub(super) fn get(&self, name: Name<K>) -> Option<&T> {
        let named = self.named.get(name.place)?;
        let object = named.held.as_deref()?;
        (named.id == name.id && !object.is_freed()).then_some(object)
    }

    /// The object of a name that was held when the request began.
    #[inline(always)]
    fn held(&self, name: Name<K>) -> Option<&T> {
        let named = self.named.get(name.place)?;
        named.held.as_deref().filter(|_| named.id == name.id)
    }

    #[cold]
    fn add<E>(&mut self, name: Name<K>, look_up: impl FnOnce(K) -> Result<Arc<T>, E>) -> Result<(), E> {
        let known = self.named.get(name.place);
        let known = known.and_then(|named| named.object.upgrade());
        let object = match known.filter(|object| !object.is_freed()) {
            Some(object) => object,
            None => look_up(name.id)?,
        };
        let entry = Entry {
            id: name.id,
            object: Arc::downgrade(&object),
            held: Some(object),
        };
        match self.named.get_mut(name.place) {
            Some(place) => *place = entry,
            None => self.named.push(entry),
        }
        self.held.push(name.place);
        Ok(())
    }

    /// Lets go of what the client has freed, and with it of all others, to be asked for anew.
    #[inline]
    pub(super) fn forget_freed(&mut self) {
        let is_freed = |place: &usize| {
            let held = self.named.get(*place).and_then(|named| named.held.as_ref());
            held.is_some_and(|object| object.is_freed())
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

/// The names of one request.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By pool.
    pub(super) memories: Vec<Option<Name<MemoryHandle>>>,
    pub(super) buffers: Vec<Name<u32>>,
}

/// The objects that one request names, all of which are held.
#[derive(Debug)]
pub(super) struct NamedObjects<'a> {
    pub(super) names: &'a Names,
    pub(super) memories: &'a Named<MemoryHandle, Memory>,
    pub(super) buffers: &'a Named<u32, Buffer>,
}

impl Pools for NamedObjects<'_> {
    #[inline(always)]
    fn memory(&self, pool: u32) -> Option<&Memory> {
        let name = self.names.memories.get(pool as usize)?.as_ref()?;
        self.memories.held(*name)
    }

    fn buffer(&self, token: u32) -> Option<&Buffer> {
        let name = self.names.buffers.iter().find(|name| name.id == token)?;
        self.buffers.held(*name)
    }
}

#[cfg(test)]
mod tests {
    use nnhal::wire::MemoryDescription;
    use nnhal_os::shm::SharedMemory;

    use super::*;
    use crate::settings::Limits;
    use crate::worker::memory::Memories;

    type Memory = crate::worker::memory::Memory;
    type Request = Vec<Name<MemoryHandle>>;

    /// Memories of 1, 2, 3 and so on bytes, and the names that requests give them.
    struct Bench {
        memories: Memories,
        handles: Vec<MemoryHandle>,
        named: Named<MemoryHandle, Memory>,
    }

    impl Bench {
        fn new(count: u64) -> Bench {
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
            Bench {
                memories,
                handles,
                named: Named::default(),
            }
        }

        /// What a request remembers that names these memories.
        fn request(&mut self, numbers: impl IntoIterator<Item = usize>) -> Request {
            self.named.begin();
            let name = |number: usize| {
                let look_up = |handle| self.memories.get(handle);
                self.named.name(self.handles[number], look_up).unwrap()
            };
            numbers.into_iter().map(name).collect()
        }

        fn hold(&mut self, request: &mut [Name<MemoryHandle>]) -> Result<(), MemoryHandle> {
            self.named
                .hold(request.iter_mut(), |handle| self.memories.get(handle))
        }

        fn sizes(&mut self, request: &mut [Name<MemoryHandle>]) -> Vec<u64> {
            self.hold(request).unwrap();
            let sizes = request.iter().map(|name| self.named.held(*name).unwrap().size());
            sizes.collect()
        }
    }

    #[test]
    fn each_name_has_its_memory_in_whatever_order_requests_name_them() {
        let mut bench = Bench::new(3);
        let mut requests = [vec![0, 1], vec![1, 0], vec![2, 2, 0], vec![1]].map(|names| bench.request(names));
        let expected = [vec![1, 2], vec![2, 1], vec![3, 3, 1], vec![2]];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for number in order {
                assert_eq!(bench.sizes(&mut requests[number]), expected[number]);
            }
            bench.named.release();
        }
    }

    #[test]
    fn any_number_of_memories_is_named_and_held() {
        let count = MAX_NAMED + 40;
        let mut bench = Bench::new(count as u64);
        let (mut many, mut one) = (bench.request(0..count), bench.request([7]));
        for _ in 0..2 {
            let expected: Vec<u64> = (1..=count as u64).collect();
            assert_eq!(bench.sizes(&mut many), expected);
            assert_eq!(bench.sizes(&mut one), [8]);
        }
    }

    #[test]
    fn memory_that_is_freed_is_refused_at_once_and_gone_before_the_next_series() {
        let mut bench = Bench::new(3);
        let freed = bench.handles[1];
        let weak = Arc::downgrade(&bench.memories.get(freed).unwrap());
        let mut request = bench.request(0..3);
        assert_eq!(bench.sizes(&mut request), [1, 2, 3]);
        bench.memories.remove(freed).unwrap();
        assert_eq!(bench.hold(&mut request), Err(freed));
        let named = bench.named.name(freed, |handle| bench.memories.get(handle));
        assert!(named.is_err() && weak.strong_count() > 0);
        // Another request goes on with what is there.
        assert_eq!(bench.sizes(&mut request[..1]), [1]);
        bench.named.forget_freed();
        assert_eq!(weak.strong_count(), 0);
        // What is there is held all the same.
        assert_eq!(bench.hold(&mut request), Err(freed));
        assert_eq!(bench.named.held(request[2]).map(Memory::size), Some(3));
        assert!(bench.named.held(request[1]).is_none());
        assert_eq!(bench.sizes(&mut request[..1]), [1]);
    }

    #[test]
    fn what_is_not_freed_is_held_until_it_is_given_up() {
        let mut bench = Bench::new(2);
        let counts = |bench: &Bench| {
            let count = |handle: &MemoryHandle| Arc::strong_count(&bench.memories.get(*handle).unwrap());
            bench.handles.iter().map(count).collect::<Vec<_>>()
        };
        let before = counts(&bench);
        let mut request = bench.request(0..2);
        assert_eq!(bench.sizes(&mut request), [1, 2]);
        bench.named.forget_freed();
        assert!(
            counts(&bench)
                .iter()
                .zip(&before)
                .all(|(count, before)| count > before)
        );
        bench.named.release();
        assert_eq!(counts(&bench), before);
    }
}
