//! Objects of one client, by handle.

use nnhal::wire::Handle;
use nnhal_hal::{ErrorStatus, Failure};

/// A table of objects. A handle that was given out names its object until that is removed, and nothing
/// afterwards.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    used: u32,
    limit: u32,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    object: Option<T>,
}

/// The table holds as many objects as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) limit: u32,
}

impl<T> Table<T> {
    pub(crate) fn new(limit: u32) -> Table<T> {
        Table {
            entries: Vec::new(),
            free: Vec::new(),
            used: 0,
            limit,
        }
    }

    pub(crate) fn insert(&mut self, object: T) -> Result<Handle, Full> {
        self.insert_with(|_| object)
    }

    /// Inserts an object that knows its handle.
    pub(crate) fn insert_with(&mut self, object: impl FnOnce(Handle) -> T) -> Result<Handle, Full> {
        let full = Full { limit: self.limit };
        if self.used >= self.limit {
            return Err(full);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u32::try_from(self.entries.len()).map_err(|_| full)?;
                self.entries.push(Entry {
                    generation: 0,
                    object: None,
                });
                index
            }
        };
        let entry = self.entries.get_mut(index as usize).ok_or(full)?;
        let handle = Handle {
            index,
            generation: entry.generation,
        };
        entry.object = Some(object(handle));
        self.used += 1;
        Ok(handle)
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&T> {
        let entry = self.entries.get(handle.index as usize)?;
        entry
            .object
            .as_ref()
            .filter(|_| entry.generation == handle.generation)
    }

    pub(crate) fn remove(&mut self, handle: Handle) -> Option<T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.generation != handle.generation {
            return None;
        }
        let object = entry.object.take()?;
        self.used -= 1;
        // An entry whose generations are spent is left empty for ever: its next handle would be an old one.
        if let Some(next) = entry.generation.checked_add(1) {
            entry.generation = next;
            self.free.push(handle.index);
        }
        Some(object)
    }

    /// Every object.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|entry| entry.object.as_ref())
    }
}

/// The failure for a handle that names nothing.
pub(crate) fn no_such(what: &str, handle: Handle) -> Failure {
    Failure::invalid_argument(format!(
        "there is no {what} {} of generation {}; it was released, or never made on this connection",
        handle.index, handle.generation
    ))
}

/// The setting that says how many objects there may be.
pub(crate) const OBJECTS: &str = "limits.objects";

/// The failure for an object that there is no room for, as the setting says.
pub(crate) fn too_many(what: &str, full: Full, setting: &str) -> Failure {
    Failure::new(
        over_quota(1, full.limit.into()),
        format!(
            "one client may have {} {what} at once; release some (the driver's setting {setting})",
            full.limit
        ),
    )
}

/// The status for an object that its client has no room for: another try is of no use if the object alone
/// exceeds what the client may have.
pub(crate) fn over_quota(object: u64, quota: u64) -> ErrorStatus {
    if object > quota {
        ErrorStatus::ResourceExhaustedPersistent
    } else {
        ErrorStatus::ResourceExhaustedTransient
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn handle_of_a_removed_object_names_nothing() {
        let mut table = Table::new(8);
        let first = table.insert("first").unwrap();
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second").unwrap();
        assert_eq!(second.index, first.index);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
    }

    /// T15 of the threat model asks for a million; the daemon is asked fewer by tests/tests/hostile.rs.
    #[test]
    fn none_of_a_million_guesses_hits() {
        let mut table = Table::new(64);
        let mut live: Vec<Handle> = (0..64).map(|object| table.insert(object).unwrap()).collect();
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        for guess in 0..1_000_000_usize {
            // An xorshift; small numbers are where objects are and have been.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let handle = Handle {
                index: (state % 80) as u32,
                generation: ((state >> 32) % 64) as u32,
            };
            if guess.is_multiple_of(1000) {
                let given = &mut live[guess / 1000 % 64];
                table.remove(*given).unwrap();
                *given = table.insert(guess).unwrap();
            }
            assert_eq!(table.get(handle).is_some(), live.contains(&handle), "{handle:?}");
        }
    }

    #[test]
    fn full_table_refuses_until_something_is_removed() {
        let mut table = Table::new(2);
        let first = table.insert(1).unwrap();
        table.insert(2).unwrap();
        assert_eq!(table.insert(3), Err(Full { limit: 2 }));
        table.remove(first).unwrap();
        table.insert(4).unwrap();
        assert_eq!(table.iter().sum::<i32>(), 6);
    }

    #[test]
    fn entry_with_spent_generations_is_not_used_again() {
        let mut table = Table::new(8);
        let first = table.insert(1).unwrap();
        table.entries[first.index as usize].generation = u32::MAX;
        let last = Handle {
            generation: u32::MAX,
            ..first
        };
        assert_eq!(table.remove(last), Some(1));
        let next = table.insert(2).unwrap();
        assert_ne!(next.index, first.index);
        assert_eq!(table.get(last), None);
    }

    proptest! {
        /// Against a plain list of what was inserted and not removed.
        #[test]
        fn only_live_handles_are_found(
            steps in proptest::collection::vec((any::<bool>(), any::<proptest::sample::Index>()), 1..200),
            guesses in proptest::collection::vec((0_u32..300, 0_u32..300), 100),
        ) {
            let mut table = Table::new(64);
            let mut live: Vec<(Handle, usize)> = Vec::new();
            for (number, (insert, which)) in steps.into_iter().enumerate() {
                if insert {
                    if let Ok(handle) = table.insert(number) {
                        live.push((handle, number));
                    } else {
                        prop_assert_eq!(live.len(), 64);
                    }
                } else if !live.is_empty() {
                    let (handle, value) = live.swap_remove(which.index(live.len()));
                    prop_assert_eq!(table.remove(handle), Some(value));
                }
            }
            for (handle, value) in &live {
                prop_assert_eq!(table.get(*handle), Some(value));
            }
            for (index, generation) in guesses {
                let handle = Handle { index, generation };
                let expected = live.iter().find(|entry| entry.0 == handle).map(|entry| &entry.1);
                prop_assert_eq!(table.get(handle), expected);
            }
        }
    }
}
