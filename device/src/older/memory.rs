//! The memories of a request, as a device of an older version gets them.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use nnhal_hal::DataLocation;
use nnhal_hal::versions::v1_0::ErrorStatus;

/// The memories of one request, by the index of their pool. They are private to the worker and to the
/// request; clones share them, for devices that execute on another thread.
#[derive(Clone)]
pub struct RequestMemories(Arc<[RwLock<Vec<u8>>]>);

impl RequestMemories {
    pub(super) fn new(memories: impl Iterator<Item = Vec<u8>>) -> RequestMemories {
        RequestMemories(memories.map(RwLock::new).collect())
    }

    /// Lets `look` see the bytes of an input.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if there are no such bytes.
    pub fn read<T>(&self, location: DataLocation, look: impl FnOnce(&[u8]) -> T) -> Result<T, ErrorStatus> {
        let memory = self
            .memory(location)?
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = memory.get(range(location)).ok_or(ErrorStatus::InvalidArgument)?;
        Ok(look(bytes))
    }

    /// Lets `fill` write the bytes of an output. Inputs can be read inside.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if there are no such bytes.
    pub fn write<T>(
        &self,
        location: DataLocation,
        fill: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, ErrorStatus> {
        let mut memory = self
            .memory(location)?
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = memory
            .get_mut(range(location))
            .ok_or(ErrorStatus::InvalidArgument)?;
        Ok(fill(bytes))
    }

    fn memory(&self, location: DataLocation) -> Result<&RwLock<Vec<u8>>, ErrorStatus> {
        self.0
            .get(location.pool_index as usize)
            .ok_or(ErrorStatus::InvalidArgument)
    }

    /// The memories, which the device has done with. They are copied if it still holds on to them.
    pub(super) fn take_back(mut self) -> Vec<Vec<u8>> {
        let into_inner = |memory: &mut RwLock<Vec<u8>>| {
            std::mem::take(memory.get_mut().unwrap_or_else(PoisonError::into_inner))
        };
        if let Some(memories) = Arc::get_mut(&mut self.0) {
            return memories.iter_mut().map(into_inner).collect();
        }
        let memories = self.0.iter();
        memories
            .map(|memory| memory.read().unwrap_or_else(PoisonError::into_inner).clone())
            .collect()
    }
}

/// The bytes of a location. Addresses have 64 bits here, which two numbers of 32 cannot exceed.
fn range(location: DataLocation) -> std::ops::Range<usize> {
    let offset = location.offset as usize;
    offset..offset + location.length as usize
}

impl fmt::Debug for RequestMemories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestMemories")
            .field("count", &self.0.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pool_index: u32, offset: u32, length: u32) -> DataLocation {
        DataLocation {
            pool_index,
            offset,
            length,
        }
    }

    #[test]
    fn memories_are_read_and_written_within_their_bounds_only() {
        let memories = RequestMemories::new([b"abcd".to_vec(), vec![0; 2]].into_iter());
        let outcome = memories.write(at(1, 0, 2), |output| {
            memories.read(at(0, 1, 2), |input| output.copy_from_slice(input))
        });
        assert_eq!(outcome, Ok(Ok(())));
        for location in [at(0, 3, 2), at(0, u32::MAX, u32::MAX), at(2, 0, 0)] {
            assert_eq!(memories.read(location, |_| ()), Err(ErrorStatus::InvalidArgument));
            assert_eq!(
                memories.write(location, |_| ()),
                Err(ErrorStatus::InvalidArgument)
            );
        }
        let kept = memories.clone();
        assert_eq!(memories.take_back(), [b"abcd".to_vec(), b"bc".to_vec()]);
        assert_eq!(kept.take_back(), [b"abcd".to_vec(), b"bc".to_vec()]);
    }
}
