//! The objects that the caller has pointers to.
//!
//! A pointer is the address of a slot in tables that live as long as the process, and it is looked up by
//! arithmetic and never followed. So a pointer that never was one of this library, one of another kind of
//! object, and one that was freed already are told from those that are alive, as long as the slot has not
//! been used again, which takes at least [`RESTING`] objects. An object that is freed while a call uses it
//! lives until that call ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use nnhal_os::fork::PerProcess;
use once_cell::race::OnceBox;

use crate::burst::Burst;
use crate::compilation::Compilation;
use crate::device::Device;
use crate::event::Event;
use crate::execution::Execution;
use crate::ffi::{ConstHandle, Handle, Out};
use crate::memory::Memory;
use crate::memory_desc::MemoryDesc;
use crate::model::Model;
use crate::result::{Failure, Outcome};
use crate::types;

/// How many slots rest after their objects were freed, so that stale pointers to them are recognised.
const RESTING: usize = 4096;

/// Slots of the first table; each further one has as many as all before it.
const FIRST_TABLE: usize = 256;

/// Tables for 2^31 objects.
const TABLES: usize = 24;

/// A kind of object that the caller has pointers to.
pub(crate) trait Kind: Sized {
    /// The structure that the caller's pointers point to.
    type Pointee;

    /// The structure's name.
    const NAME: &'static str;

    fn into_object(this: Arc<Self>) -> Object;

    fn of(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident = $pointee:ident;)*) => {
        /// Any object.
        #[derive(Clone, Debug)]
        pub(crate) enum Object {
            $($kind(Arc<$kind>),)*
        }

        impl Object {
            fn name(&self) -> &'static str {
                match self {
                    $(Object::$kind(_) => <$kind as Kind>::NAME,)*
                }
            }
        }

        $(impl Kind for $kind {
            type Pointee = types::$pointee;

            const NAME: &'static str = stringify!($pointee);

            fn into_object(this: Arc<Self>) -> Object {
                Object::$kind(this)
            }

            fn of(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$kind(this) => Some(this),
                    _ => None,
                }
            }
        })*
    };
}

kinds! {
    Memory = ANeuralNetworksMemory;
    Model = ANeuralNetworksModel;
    Compilation = ANeuralNetworksCompilation;
    Execution = ANeuralNetworksExecution;
    Burst = ANeuralNetworksBurst;
    Event = ANeuralNetworksEvent;
    Device = ANeuralNetworksDevice;
    MemoryDesc = ANeuralNetworksMemoryDesc;
}

/// A place for an object.
#[derive(Debug, Default)]
struct Slot {
    object: ArcSwapOption<Object>,
}

/// Tables are made without a lock: a child of `fork()` would wait for ever for one that another thread held.
static TABLE: [OnceBox<Box<[Slot]>>; TABLES] = [const { OnceBox::new() }; TABLES];

/// Slots that were never used: from this index on.
static FRESH: AtomicUsize = AtomicUsize::new(0);

/// Slots whose objects were freed, the first that was freed first. A child of `fork()` leaves those of its
/// parent, where a thread may just have been changing the list.
static FREED: PerProcess<Mutex<VecDeque<usize>>> = PerProcess::new(|| Mutex::new(VecDeque::new()));

/// The table of a slot, the number of slots before it, and how many slots it has.
fn table_of(index: usize) -> (usize, usize, usize) {
    let mut start = 0;
    let mut size = FIRST_TABLE;
    for table in 0..TABLES {
        if index < start + size {
            return (table, start, size);
        }
        start += size;
        size = start;
    }
    (TABLES, start, 0)
}

fn slot(index: usize) -> Option<&'static Slot> {
    let (table, start, size) = table_of(index);
    let table = TABLE.get(table)?;
    let slots = table.get_or_init(|| Box::new((0..size).map(|_| Slot::default()).collect()));
    slots.get(index - start)
}

/// The slot at an address, and its index.
fn slot_at(address: usize) -> Option<(&'static Slot, usize)> {
    let mut start = 0;
    for table in &TABLE {
        let slots = table.get()?;
        if let Some(offset) = address.checked_sub(slots.as_ptr().addr())
            && offset.is_multiple_of(size_of::<Slot>())
            && let Some(slot) = slots.get(offset / size_of::<Slot>())
        {
            return Some((slot, start + offset / size_of::<Slot>()));
        }
        start += slots.len();
    }
    None
}

fn freed() -> MutexGuard<'static, VecDeque<usize>> {
    FREED.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds the lock of the tables, as a thread does that is about to make an object.
#[cfg(test)]
pub(crate) fn hold() -> impl Drop {
    freed()
}

/// Gives an object a pointer.
pub(crate) fn publish<K: Kind>(object: impl Into<Arc<K>>) -> Outcome<Handle<K::Pointee>> {
    let rested = {
        let mut freed = freed();
        let has_rested = freed.len() > RESTING;
        has_rested.then(|| freed.pop_front()).flatten()
    };
    let index = rested.unwrap_or_else(|| FRESH.fetch_add(1, Ordering::Relaxed));
    let slot = slot(index).ok_or_else(|| {
        Failure::new(
            crate::codes::ResultCode::ANEURALNETWORKS_OUT_OF_MEMORY,
            "this process has more objects of this library than it can count",
        )
    })?;
    slot.object.store(Some(Arc::new(K::into_object(object.into()))));
    Ok(Handle::with_address(std::ptr::from_ref(slot).addr()))
}

/// Gives an object a pointer and writes that where the caller wants it.
pub(crate) fn create<K: Kind>(place: Out<Handle<K::Pointee>>, object: impl Into<Arc<K>>) -> Outcome {
    place.write(publish(object)?);
    Ok(())
}

fn find<K: Kind, T>(address: usize, name: &str, body: impl FnOnce(&Arc<K>) -> Outcome<T>) -> Outcome<T> {
    if address == 0 {
        return Err(Failure::null(name));
    }
    let Some((slot, _)) = slot_at(address) else {
        return Err(Failure::bad_data(format!(
            "{name} is {address:#x}, which is no object of this library; a {} is expected",
            K::NAME
        )));
    };
    let object = slot.object.load();
    let object = object
        .as_deref()
        .ok_or_else(|| Failure::bad_state(format!("{name}, a {}, was freed already", K::NAME)))?;
    let found = K::of(object).ok_or_else(|| {
        Failure::bad_data(format!(
            "{name} is a {}, a {} is expected",
            object.name(),
            K::NAME
        ))
    })?;
    body(found)
}

/// Calls `body` with the object behind a pointer: [`get`] where every nanosecond counts.
pub(crate) fn with<K: Kind, T>(
    handle: &Handle<K::Pointee>,
    name: &str,
    body: impl FnOnce(&Arc<K>) -> Outcome<T>,
) -> Outcome<T> {
    find(handle.address(), name, body)
}

/// The object behind a pointer.
pub(crate) fn get<K: Kind>(handle: &Handle<K::Pointee>, name: &str) -> Outcome<Arc<K>> {
    find(handle.address(), name, |object| Ok(Arc::clone(object)))
}

/// The object behind a pointer that says that it stays as it is.
pub(crate) fn get_const<K: Kind>(handle: &ConstHandle<K::Pointee>, name: &str) -> Outcome<Arc<K>> {
    find(handle.address(), name, |object| Ok(Arc::clone(object)))
}

/// Ends a pointer, if `may_end` agrees, and gives the object; NULL is no object.
pub(crate) fn take<K: Kind>(
    handle: &Handle<K::Pointee>,
    may_end: impl FnOnce(&K) -> Outcome,
) -> Outcome<Option<Arc<K>>> {
    let address = handle.address();
    if address == 0 {
        return Ok(None);
    }
    find::<K, _>(address, "the object", |object| may_end(object))?;
    let Some((slot, index)) = slot_at(address) else {
        return Ok(None);
    };
    let taken = slot.object.swap(None);
    if taken.is_some() {
        freed().push_back(index);
    }
    Ok(taken.as_deref().and_then(K::of).cloned())
}

/// Ends a pointer. What the object holds goes with the last call that uses it.
pub(crate) fn free<K: Kind>(handle: &Handle<K::Pointee>) -> Outcome {
    take::<K>(handle, |_| Ok(())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::ResultCode;

    fn code<T>(outcome: Outcome<T>) -> Option<ResultCode> {
        outcome.err().map(|failure| failure.code)
    }

    #[test]
    fn stale_foreign_and_mistaken_pointers_are_told_from_live_ones() {
        let handle = publish::<MemoryDesc>(MemoryDesc::default()).unwrap();
        assert!(get::<MemoryDesc>(&handle, "desc").is_ok());
        let mistaken = Handle::with_address(handle.address());
        assert_eq!(
            code(get::<Model>(&mistaken, "model")),
            Some(ResultCode::ANEURALNETWORKS_BAD_DATA)
        );
        let inside = Handle::with_address(handle.address() + 1);
        assert_eq!(
            code(get::<MemoryDesc>(&inside, "desc")),
            Some(ResultCode::ANEURALNETWORKS_BAD_DATA)
        );
        let null = Handle::with_address(0);
        assert_eq!(
            code(get::<MemoryDesc>(&null, "desc")),
            Some(ResultCode::ANEURALNETWORKS_UNEXPECTED_NULL)
        );
        assert!(free::<MemoryDesc>(&null).is_ok());
        assert!(free::<MemoryDesc>(&handle).is_ok());
        assert_eq!(
            code(get::<MemoryDesc>(&handle, "desc")),
            Some(ResultCode::ANEURALNETWORKS_BAD_STATE)
        );
        assert_eq!(
            code(free::<MemoryDesc>(&handle)),
            Some(ResultCode::ANEURALNETWORKS_BAD_STATE)
        );
    }

    #[test]
    fn slots_are_used_again_and_tables_grow() {
        let mut handles = Vec::new();
        for _ in 0..3 * RESTING {
            handles.push(publish::<MemoryDesc>(MemoryDesc::default()).unwrap());
        }
        let addresses: std::collections::HashSet<_> = handles.iter().map(Handle::address).collect();
        assert_eq!(addresses.len(), handles.len());
        for handle in &handles {
            free::<MemoryDesc>(handle).unwrap();
        }
        let again = publish::<MemoryDesc>(MemoryDesc::default()).unwrap();
        assert!(addresses.contains(&again.address()));
        free::<MemoryDesc>(&again).unwrap();
    }

    #[test]
    fn tables_follow_one_another() {
        assert_eq!(table_of(0), (0, 0, FIRST_TABLE));
        assert_eq!(table_of(FIRST_TABLE), (1, FIRST_TABLE, FIRST_TABLE));
        assert_eq!(table_of(2 * FIRST_TABLE), (2, 2 * FIRST_TABLE, 2 * FIRST_TABLE));
    }
}
