//! The bytes of constants, in the order and alignment in which the model carries them.

use std::collections::HashMap;

use nnhal_hal::DataLocation;

/// Constants of at least this size begin at a multiple of it, so that kernels can use them where they lie.
const ALIGNMENT: usize = 64;

/// The `operand_values` of a model in the making.
#[derive(Debug)]
pub(crate) struct ConstantStore {
    bytes: Vec<u8>,
    /// How many bytes may still be made or stored.
    left: usize,
    /// Where data of the file went already, by address and length: several operands may use it.
    places: HashMap<(usize, usize), DataLocation>,
}

impl ConstantStore {
    /// An empty store for at most `limit` bytes, those that [`charge`](ConstantStore::charge) counts
    /// included.
    pub(crate) fn with_limit(limit: usize) -> ConstantStore {
        ConstantStore {
            bytes: Vec::new(),
            left: limit,
            places: HashMap::new(),
        }
    }

    /// Counts bytes that are about to be made. A file can ask for far more than it holds, by converting the
    /// same data again and again.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), String> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err("the constants of the model are out of all proportion to the file".to_owned()),
        }
    }

    /// Appends `data`.
    pub(crate) fn add(&mut self, data: &[u8]) -> Result<DataLocation, String> {
        let alignment = if data.len() < ALIGNMENT { 8 } else { ALIGNMENT };
        let start = self.bytes.len().next_multiple_of(alignment);
        let end = start.saturating_add(data.len());
        let (Ok(offset), Ok(_)) = (u32::try_from(start), u32::try_from(end)) else {
            return Err(
                "the constants of the model exceed 4 GiB, the most that NNAPI can address".to_owned(),
            );
        };
        self.charge(end - self.bytes.len())?;
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(data);
        Ok(DataLocation {
            pool_index: 0,
            offset,
            length: data.len() as u32,
        })
    }

    /// Appends `data`, which outlives the store, unless the same bytes are there already.
    pub(crate) fn add_shared(&mut self, data: &[u8]) -> Result<DataLocation, String> {
        let key = (data.as_ptr() as usize, data.len());
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        let place = self.add(data)?;
        self.places.insert(key, place);
        Ok(place)
    }

    /// The bytes at a place where some were added.
    pub(crate) fn bytes_at(&self, location: DataLocation) -> &[u8] {
        let (start, length) = (location.offset as usize, location.length as usize);
        let bytes = self.bytes.get(start..);
        bytes.and_then(|bytes| bytes.get(..length)).unwrap_or_default()
    }

    /// All bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::ConstantStore;

    #[test]
    fn large_constants_are_aligned_and_shared_ones_stand_once() {
        let data = [7_u8; 100];
        let mut store = ConstantStore::with_limit(1000);
        assert_eq!(store.add(&[1, 2, 3]).unwrap().offset, 0);
        let first = store.add_shared(&data).unwrap();
        assert_eq!((first.offset, first.length), (64, 100));
        assert_eq!(store.bytes_at(first), data);
        assert_eq!(store.add_shared(&data).unwrap(), first);
        assert_eq!(store.add(&[4]).unwrap().offset, 168);
        assert_eq!(store.into_bytes().len(), 169);
    }

    #[test]
    fn more_than_the_limit_is_refused() {
        let mut store = ConstantStore::with_limit(10);
        assert!(store.charge(4).is_ok());
        assert!(store.add(&[0; 7]).is_err());
        assert!(store.add(&[0; 6]).is_ok());
    }
}
