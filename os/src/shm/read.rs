//! Copying out of a shared memory that is not mapped.

use std::os::unix::fs::FileExt;

use nix::errno::Errno;

use super::access::{Access, check_range};
use super::{Mapping, SharedMemory, ShmError};
use crate::SysError;

/// How many bytes [`SharedMemory::read_to_vec`] reads at once.
const READ_AT_ONCE: usize = 256 * 1024;

impl SharedMemory {
    /// Copies bytes out of the file without mapping it, so that a file that shrinks is an error and not a
    /// fault.
    ///
    /// # Errors
    /// [`ShmError::OutOfBounds`] outside the declared size, [`ShmError::Shrunk`] if the file has become
    /// shorter.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ShmError> {
        check_range(offset, out.len() as u64, self.size())?;
        if self.is_dma_buf() {
            let mapping = Mapping::new(self, Access::ReadOnly)?;
            let _access = mapping.begin(Access::ReadOnly)?;
            return mapping.as_slice().read_at(offset, out);
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut out[done..], at) {
                Ok(0) => return Err(ShmError::Shrunk { at }),
                Ok(count) => done += count,
                Err(error) if error.raw_os_error() == Some(Errno::EINTR as i32) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Copies `length` bytes from `offset` into memory of this process; see [`SharedMemory::read_at`].
    ///
    /// # Errors
    /// As [`SharedMemory::read_at`]; an error that [is exhaustion](ShmError::is_exhaustion) if this process
    /// has no room.
    pub fn read_to_vec(&self, offset: u64, length: u64) -> Result<Vec<u8>, ShmError> {
        check_range(offset, length, self.size())?;
        let no_room = || {
            ShmError::from(SysError {
                call: "malloc",
                errno: Errno::ENOMEM,
            })
        };
        let length = usize::try_from(length).map_err(|_| no_room())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| no_room())?;
        // What is cleared is still in the cache when it is overwritten.
        while bytes.len() < length {
            let start = bytes.len();
            bytes.resize(length.min(start + READ_AT_ONCE), 0);
            self.read_at(offset + start as u64, &mut bytes[start..])?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_memory_is_read_from_its_offset_to_its_end() {
        let bytes: Vec<u8> = (0..2 * READ_AT_ONCE + 77).map(|at| (at % 251) as u8).collect();
        let memory = SharedMemory::create_sealed(&bytes).unwrap();
        let read = memory.read_to_vec(5, bytes.len() as u64 - 5).unwrap();
        assert!(read == bytes[5..]);
    }
}
