//! Where the value of an input comes from.

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nnhal_hal::Failure;
use nnhal_os::shm::SealedBytes;

/// The value of an input, where the client has put it. Another process may be able to change it at any time,
/// so a device copies what it needs once, and uses the copy.
pub trait InputSource: Debug + Sync {
    /// Copies as many bytes as there is room for, from an offset in bytes on. Several threads may do so at
    /// once.
    ///
    /// # Errors
    ///
    /// `INVALID_ARGUMENT` if the request gives fewer bytes; `GENERAL_FAILURE` if the memory cannot be read.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure>;

    /// The memory and the part of it that has the value, if no process can change it any more. Such memory
    /// need not be copied.
    fn sealed(&self) -> Option<(&Arc<SealedBytes>, Range<usize>)> {
        None
    }

    /// The dma-buf and the part of it, in bytes, that has the value, if it is in one, for hardware that reads
    /// it by itself. The client can change it during the run: a device may then compute any values, and must
    /// not come to harm.
    fn dma_buf(&self) -> Option<(BorrowedFd<'_>, Range<u64>)> {
        None
    }
}

/// Bytes of this process.
impl InputSource for &[u8] {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        let given = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..start.checked_add(bytes.len())?));
        let given = given.ok_or_else(|| {
            Failure::invalid_argument(format!(
                "{} bytes are given, the device reads {} from byte {offset} on",
                self.len(),
                bytes.len()
            ))
        })?;
        bytes.copy_from_slice(given);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::InputSource;

    #[test]
    fn bytes_are_read_within_their_bounds_only() {
        let bytes: &[u8] = &[1, 2, 3];
        let mut read = [0; 2];
        bytes.read(1, &mut read).unwrap();
        assert_eq!(read, [2, 3]);
        assert!(bytes.read(2, &mut read).is_err() && bytes.read(u64::MAX, &mut read).is_err());
        assert!(bytes.sealed().is_none() && bytes.dma_buf().is_none());
    }
}
