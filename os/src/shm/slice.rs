//! A bounds-checked window on memory that another process may write at any moment.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;

use super::access::{Access, check_range};
use super::{ShmError, copy};
use crate::cpu;

/// Fewer bytes are handed to the processor that reads them. Of more, the first are on their way when the last
/// are written: handing over 64 lines at once made round trips a sixth longer.
const HANDED_OVER_BYTES: usize = 1024;

/// Of more bytes the first are written while the others are fetched: asking for 16 KiB beforehand makes every
/// hundredth round trip longer and the others no shorter.
const PREFETCHED_BYTES: u64 = 8192;

/// Bytes of shared memory, which can be copied out of and into but not borrowed.
///
/// What a copy yields while the peer writes is some mix of old and new bytes, each of which the peer chose:
/// check the private copy, never the memory.
#[derive(Clone, Copy, Debug)]
pub struct SharedSlice<'a> {
    start: *mut u8,
    length: usize,
    access: Access,
    region: PhantomData<&'a ()>,
}

// SAFETY: all access is by atomic copies, which any number of threads may make at the same time.
unsafe impl Send for SharedSlice<'_> {}
// SAFETY: as for Send; no method needs exclusive access.
unsafe impl Sync for SharedSlice<'_> {}

impl<'a> SharedSlice<'a> {
    /// # Safety
    /// For all of `'a`, `length` bytes from `start` must be mapped for reading, and for writing if `access`
    /// says so, and no `&mut` to them may exist, nor `&` unless they never change.
    #[inline]
    pub(super) unsafe fn new(start: *mut u8, length: usize, access: Access) -> Self {
        Self {
            start,
            length,
            access,
            region: PhantomData,
        }
    }

    /// Length in bytes; may be 0.
    #[inline]
    pub fn len(&self) -> u64 {
        self.length as u64
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the bytes can be written here.
    pub fn is_writable(&self) -> bool {
        self.access == Access::ReadWrite
    }

    /// The `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`], also where the sum overflows.
    #[inline]
    pub fn slice(&self, offset: u64, length: u64) -> Result<SharedSlice<'a>, ShmError> {
        let start = self.at(offset, length)?;
        Ok(Self {
            start,
            length: length as usize,
            access: self.access,
            region: PhantomData,
        })
    }

    /// Copies bytes from `offset` into `out`.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`]; nothing is copied then.
    #[inline]
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ShmError> {
        let from = self.at(offset, out.len() as u64)?;
        // SAFETY: `at` has checked that out.len() bytes from `from` lie in the region, which is readable by
        // the contract of `new`.
        unsafe { copy::out_of_shared(from, out) };
        Ok(())
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`], [`ShmError::ReadOnly`]; nothing is copied then.
    #[inline]
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ShmError> {
        let to = self.at_writable(offset, bytes.len() as u64)?;
        // SAFETY: `at_writable` has checked that bytes.len() bytes from `to` lie in the region and that it is
        // writable.
        unsafe { copy::into_shared(to, bytes) };
        Ok(())
    }

    /// The same for bytes that another process reads next.
    ///
    /// # Errors
    /// As [`SharedSlice::write_at`].
    // Always inlined, for an error that is handed on through memory makes who looks at it wait.
    #[inline(always)]
    pub fn write_for_peer(&self, offset: u64, bytes: &[u8]) -> Result<(), ShmError> {
        self.write_at(offset, bytes)?;
        if bytes.len() < HANDED_OVER_BYTES {
            cpu::demote(self.at(offset, bytes.len() as u64)?, bytes.len());
        }
        Ok(())
    }

    /// Has the place of so few bytes taken from other processors' caches, while this one computes what is to
    /// be written there by [`SharedSlice::write_for_peer`].
    #[inline]
    pub fn prefetch_to_write(&self, offset: u64, length: u64) {
        if length <= PREFETCHED_BYTES
            && let Ok(at) = self.at_writable(offset, length)
        {
            cpu::prefetch_to_write(at, length as usize);
        }
    }

    /// Sets every byte to zero.
    ///
    /// # Errors
    /// [`ShmError::ReadOnly`].
    pub fn clear(&self) -> Result<(), ShmError> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut offset = 0;
        while offset < self.len() {
            let length = (self.len() - offset).min(ZEROS.len() as u64);
            self.write_at(offset, &ZEROS[..length as usize])?;
            offset += length;
        }
        Ok(())
    }

    /// The 4 bytes at `offset` as an atomic that both sides may change.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`], [`ShmError::ReadOnly`], [`ShmError::Misaligned`].
    pub fn atomic_u32(&self, offset: u64) -> Result<&'a AtomicU32, ShmError> {
        let at = self.at_writable(offset, size_of::<u32>() as u64)?;
        if !at.cast::<u32>().is_aligned() {
            return Err(ShmError::Misaligned { offset });
        }
        // SAFETY: the bytes are mapped for reading and writing for all of `'a`, the pointer is aligned, and
        // by the contract of `new` nobody in this process accesses them other than atomically.
        Ok(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    #[inline]
    fn at(&self, offset: u64, length: u64) -> Result<*mut u8, ShmError> {
        check_range(offset, length, self.len())?;
        // The offset is at most the length, which is a usize.
        Ok(self.start.wrapping_add(offset as usize))
    }

    #[inline]
    fn at_writable(&self, offset: u64, length: u64) -> Result<*mut u8, ShmError> {
        if self.access != Access::ReadWrite {
            return Err(ShmError::ReadOnly);
        }
        self.at(offset, length)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shm::{Mapping, SharedMemory};

    fn mapped(size: u64) -> Mapping {
        Mapping::new(&SharedMemory::create(size).unwrap(), Access::ReadWrite).unwrap()
    }

    #[test]
    fn access_beyond_the_slice_is_refused_at_every_edge() {
        let mapping = mapped(100);
        let slice = mapping.slice(10, 20).unwrap();
        let mut byte = [0];
        assert!(slice.read_at(19, &mut byte).is_ok());
        for offset in [20, 21, u64::MAX - 1, u64::MAX] {
            assert!(matches!(
                slice.read_at(offset, &mut byte),
                Err(ShmError::OutOfBounds { .. })
            ));
            assert!(matches!(
                slice.write_at(offset, &byte),
                Err(ShmError::OutOfBounds { .. })
            ));
        }
        assert!(slice.read_at(20, &mut []).is_ok());
        assert!(matches!(slice.slice(1, 20), Err(ShmError::OutOfBounds { .. })));
        assert!(slice.slice(20, 0).unwrap().is_empty());
    }

    #[test]
    fn atomic_is_given_only_where_aligned_and_inside() {
        let mapping = mapped(32);
        let slice = mapping.as_slice();
        slice
            .atomic_u32(24)
            .unwrap()
            .store(7, std::sync::atomic::Ordering::Relaxed);
        let mut bytes = [0; 8];
        slice.read_at(24, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 7);
        assert!(matches!(
            slice.atomic_u32(6),
            Err(ShmError::Misaligned { offset: 6 })
        ));
        assert!(matches!(slice.atomic_u32(30), Err(ShmError::OutOfBounds { .. })));
    }

    #[test]
    fn clear_zeroes_the_slice_and_nothing_else() {
        let mapping = mapped(20_000);
        mapping.as_slice().write_at(0, &[7; 20_000]).unwrap();
        mapping.slice(3, 9000).unwrap().clear().unwrap();
        let mut bytes = vec![1; 20_000];
        mapping.as_slice().read_at(0, &mut bytes).unwrap();
        assert!(bytes[..3].iter().chain(&bytes[9003..]).all(|&byte| byte == 7));
        assert!(bytes[3..9003].iter().all(|&byte| byte == 0));
    }

    proptest! {
        #[test]
        fn copies_in_and_out_at_any_alignment_match(
            offset in 0_usize..40,
            skew in 0_usize..9,
            bytes in proptest::collection::vec(any::<u8>(), 0..6000),
        ) {
            let mapping = mapped(8192);
            let slice = mapping.as_slice();
            slice.write_at(offset as u64, &bytes).unwrap();
            let mut out = vec![0xEE; bytes.len() + 16];
            slice.read_at(offset as u64, &mut out[skew..skew + bytes.len()]).unwrap();
            prop_assert_eq!(&out[skew..skew + bytes.len()], &bytes[..]);
            prop_assert!(out[..skew].iter().chain(&out[skew + bytes.len()..]).all(|&byte| byte == 0xEE));
            let mut rest = vec![0; 8192 - offset - bytes.len()];
            slice.read_at((offset + bytes.len()) as u64, &mut rest).unwrap();
            prop_assert!(rest.iter().all(|&byte| byte == 0));
        }
    }
}
