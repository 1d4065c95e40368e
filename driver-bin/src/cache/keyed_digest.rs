//! The digest of a data file.
//!
//! It must be fast: what it takes for a network's weights is to be less than packing them takes. HighwayHash
//! reads them as fast as memory is. It is keyed: the key is drawn for each entry and kept in its model file,
//! so that nobody who has only seen or written data files can make another with the same digest.

use std::hash::{BuildHasher, RandomState};

use highway::{HighwayHash, HighwayHasher, Key};

/// A digest under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyedDigest {
    key: [u64; 4],
    digest: [u64; 4],
}

nnhal::wire_record! {
    KeyedDigest { key: [u64; 4], digest: [u64; 4] }
}

/// Computes one.
pub(super) struct KeyedHasher {
    key: [u64; 4],
    hasher: HighwayHasher,
}

impl KeyedHasher {
    /// Under a key that nobody can guess.
    pub(super) fn with_new_key() -> KeyedHasher {
        // The standard library's hashers are keyed by the system's random numbers.
        let random = RandomState::new();
        KeyedHasher::with_key(std::array::from_fn(|word| random.hash_one(word)))
    }

    fn with_key(key: [u64; 4]) -> KeyedHasher {
        KeyedHasher {
            key,
            hasher: HighwayHasher::new(Key(key)),
        }
    }

    /// To check a digest.
    pub(super) fn again(digest: &KeyedDigest) -> KeyedHasher {
        KeyedHasher::with_key(digest.key)
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.append(bytes);
    }

    pub(super) fn finish(self) -> KeyedDigest {
        KeyedDigest {
            key: self.key,
            digest: self.hasher.finalize256(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_digests_are_found_again_in_any_parts() {
        let bytes: Vec<u8> = (0..1000).map(|at| at as u8).collect();
        let digests = [(); 2].map(|()| {
            let mut hasher = KeyedHasher::with_new_key();
            hasher.update(&bytes);
            hasher.finish()
        });
        assert_ne!(digests[0], digests[1]);
        for part in [1, 7, 32, 999] {
            let mut hasher = KeyedHasher::again(&digests[0]);
            bytes.chunks(part).for_each(|part| hasher.update(part));
            assert_eq!(hasher.finish(), digests[0], "parts of {part}");
        }
    }

    /// What is saved by one processor is read by another.
    #[test]
    fn digests_are_the_same_by_whatever_instructions() {
        let mut hasher = KeyedHasher::with_key([1, 2, 3, 4]);
        hasher.update(b"constants");
        let portable = highway::PortableHash::new(Key([1, 2, 3, 4])).hash256(b"constants");
        assert_eq!(hasher.finish().digest, portable);
    }
}
