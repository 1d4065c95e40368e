//! Files in this process's address space, where huge pages can stand behind them.
//!
//! A huge page of a file stands behind addresses only if these begin at a multiple of its size, as does the
//! part of the file. The kernel looks for such addresses only where huge pages for shared memory are switched
//! on for all programs; here they are found by reserving more than is needed.

use std::os::fd::{AsFd, AsRawFd};

use memmap2::{MmapMut, MmapRaw};
use nix::errno::Errno;

use super::SysError;

/// Size of a huge page in bytes, and what the addresses of a [`FileMapping`] begin at a multiple of.
pub const HUGE_PAGE: usize = 2 << 20;

/// `MADV_COLLAPSE`, which not all C libraries name.
const COLLAPSE: libc::c_int = 25;

/// A file mapped from its start until this is dropped.
#[derive(Debug)]
pub struct FileMapping {
    /// Holds the addresses; the file covers a part of it.
    reserved: MmapRaw,
    start: usize,
    length: usize,
}

/// What a [`FileMapping`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reading. Pages are there before the call returns, as far as there is memory for those that nobody has
    /// touched.
    Read,
    /// Reading a part of it. Pages come when they are touched.
    ReadParts,
    /// Reading and writing. Pages come when they are touched.
    Write,
}

impl FileMapping {
    /// Maps the first `length` bytes of a file, at least one.
    ///
    /// # Errors
    /// The file cannot be mapped in this way, or there are no addresses left.
    pub fn new(file: impl AsFd, length: usize, purpose: Purpose) -> Result<FileMapping, SysError> {
        const CALL: &str = "mmap";
        let refused = |errno| SysError { call: CALL, errno };
        let total = length
            .checked_add(HUGE_PAGE)
            .filter(|_| length > 0)
            .ok_or_else(|| refused(Errno::EINVAL))?;
        // Nothing is ever touched of what the file does not cover.
        let reserved = MmapMut::map_anon(total).map_err(|error| {
            let code = error.raw_os_error();
            refused(code.map_or(Errno::ENOMEM, Errno::from_raw))
        })?;
        let reserved = MmapRaw::from(reserved);
        let address = reserved.as_ptr() as usize;
        let start = address.next_multiple_of(HUGE_PAGE) - address;
        let (protection, flags) = match purpose {
            // What is only read is never copied, so the pages are the file's; and kernels before 6.7 refuse a
            // shared mapping of memory that is sealed against writing where the descriptor might be written.
            Purpose::Read => (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_POPULATE),
            Purpose::ReadParts => (libc::PROT_READ, libc::MAP_PRIVATE),
            Purpose::Write => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
        };
        let at = reserved.as_mut_ptr().wrapping_add(start);
        // SAFETY: `length` bytes from `at` on lie within the addresses that were reserved just now, which
        // nothing else refers to; so nothing that is in use is replaced.
        let mapped = unsafe {
            libc::mmap(
                at.cast(),
                length,
                protection,
                flags | libc::MAP_FIXED,
                file.as_fd().as_raw_fd(),
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = SysError::last(CALL);
            // The kernel may have given up what was reserved before it failed, and others may have these
            // addresses now.
            std::mem::forget(reserved);
            return Err(error);
        }
        Ok(FileMapping {
            reserved,
            start,
            length,
        })
    }

    /// Where it starts, at a multiple of [`HUGE_PAGE`].
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.reserved.as_mut_ptr().wrapping_add(self.start)
    }

    /// Its length in bytes, never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Has a huge page put behind each of the first `count` times [`HUGE_PAGE`] bytes, whatever the system's
    /// settings for huge pages are. At least one page of each must be there already; the rest is zeros.
    ///
    /// # Errors
    /// `EINVAL` on kernels before 6.1 and for more than is mapped; `EAGAIN` or `ENOMEM` if there are not so
    /// many huge pages now. Then small pages stay, and some may have been replaced.
    pub fn collapse(&self, count: usize) -> Result<(), SysError> {
        const CALL: &str = "madvise(MADV_COLLAPSE)";
        let length = count
            .checked_mul(HUGE_PAGE)
            .filter(|&length| length <= self.length)
            .ok_or(SysError {
                call: CALL,
                errno: Errno::EINVAL,
            })?;
        // SAFETY: the range is mapped, and what the call does leaves its bytes as they are.
        match unsafe { libc::madvise(self.as_mut_ptr().cast(), length, COLLAPSE) } {
            0 => Ok(()),
            _ => Err(SysError::last(CALL)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::memfd;

    fn file(size: usize) -> File {
        let file = File::from(memfd::create(c"nnhal-test").unwrap());
        file.set_len(size as u64).unwrap();
        file
    }

    fn byte(mapping: &FileMapping, at: usize) -> u8 {
        assert!(at < mapping.len());
        // SAFETY: the byte is mapped for reading, and nobody writes it now.
        unsafe { mapping.as_mut_ptr().wrapping_add(at).read_volatile() }
    }

    #[test]
    fn files_are_mapped_at_huge_pages_whatever_their_size() {
        for size in [1, 4096, 5000, HUGE_PAGE, HUGE_PAGE + 1] {
            let file = file(size);
            file.write_all_at(&[9], size as u64 - 1).unwrap();
            for purpose in [Purpose::Read, Purpose::ReadParts, Purpose::Write] {
                let mapping = FileMapping::new(&file, size, purpose).unwrap();
                assert_eq!(mapping.as_mut_ptr() as usize % HUGE_PAGE, 0);
                assert_eq!((mapping.len(), byte(&mapping, size - 1)), (size, 9));
            }
        }
    }

    #[test]
    fn collapsing_keeps_what_is_there_or_says_why_not() {
        let size = 2 * HUGE_PAGE + 100;
        let file = file(size);
        file.write_all_at(&[1], 4095).unwrap();
        file.write_all_at(&[2], HUGE_PAGE as u64).unwrap();
        let mapping = FileMapping::new(&file, size, Purpose::Write).unwrap();
        // Kernels and containers may have no huge pages; the bytes are the same then.
        if let Err(error) = mapping.collapse(2) {
            println!("small pages stay: {error}");
        }
        let seen = [0, 4095, 4096, HUGE_PAGE, size - 1].map(|at| byte(&mapping, at));
        assert_eq!(seen, [0, 1, 0, 2, 0]);
        assert_eq!(mapping.collapse(3).unwrap_err().errno, Errno::EINVAL);
        assert_eq!(mapping.collapse(usize::MAX).unwrap_err().errno, Errno::EINVAL);
    }

    #[test]
    fn what_cannot_be_mapped_is_refused() {
        let file = file(4096);
        let map = |length| FileMapping::new(&file, length, Purpose::Read).unwrap_err();
        assert_eq!(map(0).errno, Errno::EINVAL);
        assert_eq!(map(usize::MAX).errno, Errno::EINVAL);
        assert_eq!(map(usize::MAX / 2).errno, Errno::ENOMEM);
        memfd::seal(&file, nix::fcntl::SealFlag::F_SEAL_WRITE).unwrap();
        let error = FileMapping::new(&file, 4096, Purpose::Write).unwrap_err();
        assert_eq!(error.errno, Errno::EPERM);
    }
}
