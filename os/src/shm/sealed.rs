//! Memory whose contents are final: made once, sealed, and read in place by any number of processes.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use super::memory::{FINAL, NAME};
use super::{Access, SharedMemory, SharedSlice, ShmError};
use crate::file_mapping::{FileMapping, HUGE_PAGE, Purpose};
use crate::memfd;

const HUGE: u64 = HUGE_PAGE as u64;

/// At most so much of a memory's last huge page is beyond its contents. Weights of a megabyte or two are what
/// a second-level cache holds, and a huge page has as many lines for each place of such a cache as it has
/// places of its own.
const MOST_PADDING: u64 = HUGE / 2;

/// Bytes that no process can ever change, mapped into this one until dropped. They begin at a page.
#[derive(Debug)]
pub struct SealedBytes {
    mapping: FileMapping,
}

impl SealedBytes {
    /// Maps sealed memory. Its pages are there afterwards as far as there is memory, at this process's
    /// expense where nobody has touched them.
    ///
    /// # Errors
    /// [`ShmError::NotSealed`] for memory that can still be changed or shrunk, or has huge pages of its own;
    /// what the system refuses.
    pub fn map(memory: &SharedMemory) -> Result<SealedBytes, ShmError> {
        SealedBytes::map_for(memory, Purpose::Read)
    }

    /// The same for memory of which only parts may be read: pages come when they are touched, so that nobody
    /// pays for those that are not.
    ///
    /// # Errors
    /// As [`SealedBytes::map`].
    pub fn map_parts(memory: &SharedMemory) -> Result<SealedBytes, ShmError> {
        SealedBytes::map_for(memory, Purpose::ReadParts)
    }

    fn map_for(memory: &SharedMemory, purpose: Purpose) -> Result<SealedBytes, ShmError> {
        if !memory.is_immutable() || !memory.has_ordinary_pages()? {
            return Err(ShmError::NotSealed);
        }
        let failed = |source| ShmError::Map {
            size: memory.size(),
            source,
        };
        let length =
            usize::try_from(memory.size()).map_err(|_| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        let mapping = FileMapping::new(memory, length, purpose)?;
        Ok(SealedBytes { mapping })
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the region is mapped for reading for as long as `self` lives. The memory carries
        // F_SEAL_WRITE, which the kernel grants only while no writable mapping exists and after which none
        // can be made, and F_SEAL_SHRINK, so its bytes neither change nor vanish. Seals cannot be removed.
        unsafe { std::slice::from_raw_parts(self.mapping.as_mut_ptr(), self.mapping.len()) }
    }
}

impl SharedMemory {
    /// Size of the memory that [`SharedMemory::create_sealed_aligned`] makes for contents of `length` bytes:
    /// whole huge pages where the contents fill at least half of the last one.
    #[must_use]
    pub fn sealed_aligned_size(length: u64) -> u64 {
        match length.checked_next_multiple_of(HUGE) {
            Some(whole) if whole - length <= MOST_PADDING => whole,
            _ => length,
        }
    }

    /// As [`SharedMemory::create_sealed_parts`], each part from a multiple of `alignment` on, with zeros
    /// between and behind them, and in huge pages if the system has them: also where it gives none to shared
    /// memory by itself.
    ///
    /// # Errors
    /// As [`SharedMemory::create_sealed`].
    pub fn create_sealed_aligned(parts: &[&[u8]], alignment: u64) -> Result<SharedMemory, ShmError> {
        let mut places = Vec::with_capacity(parts.len());
        let mut length: u64 = 0;
        for part in parts {
            length = length.next_multiple_of(alignment);
            places.push((length, *part));
            length += part.len() as u64;
        }
        if length == 0 {
            return Err(ShmError::Empty);
        }
        let size = Self::sealed_aligned_size(length.next_multiple_of(alignment));
        let file = File::from(memfd::create(NAME)?);
        memfd::set_size(&file, size)?;
        match in_huge_pages(&file, size) {
            Some(mapping) => {
                // SAFETY: the region is mapped for reading and writing until the end of this block, and
                // nobody has a reference to it.
                let bytes =
                    unsafe { SharedSlice::new(mapping.as_mut_ptr(), mapping.len(), Access::ReadWrite) };
                for (at, part) in places {
                    bytes.write_at(at, part)?;
                }
            }
            None => {
                for (at, part) in places {
                    file.write_all_at(part, at)?;
                }
            }
        }
        Self::finish(file.into(), size, FINAL, false)
    }
}

/// An empty file of this size mapped to be written, with huge pages behind it. None if it is too small for
/// any, or there are none: writing it as a file is faster then than by pages that come one by one.
fn in_huge_pages(file: &File, size: u64) -> Option<FileMapping> {
    let count = size / HUGE;
    if count == 0 {
        return None;
    }
    // What is completely empty stays so.
    for page in 0..count {
        file.write_all_at(&[0], page * HUGE).ok()?;
    }
    let mapping = FileMapping::new(file.as_fd(), usize::try_from(size).ok()?, Purpose::Write).ok()?;
    mapping.collapse(usize::try_from(count).ok()?).ok()?;
    Some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALIGNMENT: u64 = 64;

    #[test]
    fn parts_are_found_at_their_places_and_nobody_can_change_them() {
        let small = vec![1; 3000];
        let large = vec![2; HUGE_PAGE + 5];
        let larger = vec![3; 2 * HUGE_PAGE - 7 * 1024];
        for parts in [
            &[&small[..]][..],
            &[&small, &[], &small[..64], &small[..1]],
            &[&small, &large],
            &[&larger, &small],
            &[&larger, &small, &large[..1 << 20]],
        ] {
            let mut expected: Vec<u8> = Vec::new();
            for part in parts {
                expected.resize(expected.len().next_multiple_of(ALIGNMENT as usize), 0);
                expected.extend(*part);
            }
            let length = expected.len().next_multiple_of(ALIGNMENT as usize) as u64;
            expected.resize(SharedMemory::sealed_aligned_size(length) as usize, 0);
            let memory = SharedMemory::create_sealed_aligned(parts, ALIGNMENT).unwrap();
            assert_eq!(memory.size(), expected.len() as u64);
            let seen = SealedBytes::map(&memory).unwrap();
            assert!(seen.bytes() == expected);
            let again = SharedMemory::from_sealed_fd(memory.into(), expected.len() as u64).unwrap();
            assert!(SealedBytes::map(&again).unwrap().bytes() == expected);
        }
    }

    #[test]
    fn half_a_huge_page_at_most_is_added_to_fill_it() {
        for (length, size) in [
            (64, 64),
            (HUGE / 2 - 1, HUGE / 2 - 1),
            (HUGE / 2, HUGE),
            (HUGE, HUGE),
            (HUGE + 1, HUGE + 1),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(SharedMemory::sealed_aligned_size(length), size);
        }
    }

    #[test]
    fn memory_without_contents_or_seals_is_refused() {
        for parts in [&[][..], &[&[][..]]] {
            let error = SharedMemory::create_sealed_aligned(parts, ALIGNMENT).unwrap_err();
            assert!(matches!(error, ShmError::Empty), "{error}");
        }
        let open = SharedMemory::create(100).unwrap();
        let error = SealedBytes::map(&open).unwrap_err();
        assert!(matches!(error, ShmError::NotSealed), "{error}");
    }
}
