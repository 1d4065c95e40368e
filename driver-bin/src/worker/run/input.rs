//! Where a device reads the inputs of a request.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use nnhal::burst::copy_values;
use nnhal_device::InputSource;
use nnhal_hal::Failure;
use nnhal_hal::validate::Direction;
use nnhal_os::shm::SealedBytes;

use super::super::memory::Memory;
use super::failures::{of_argument, too_short};

/// An input in the packet of a burst.
#[derive(Debug)]
pub(super) struct InPacket<'a> {
    /// Which input, and the pool that the packet is.
    pub(super) at: (usize, u32),
    pub(super) bytes: &'a [u8],
}

impl InputSource for InPacket<'_> {
    #[inline]
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        check_given(self.at.0, self.bytes.len() as u64, offset, bytes.len())?;
        // It fits, so it is no more than there is.
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(given) = self.bytes.get(start..start.saturating_add(bytes.len())) {
            copy_values(given, bytes);
        }
        Ok(())
    }
}

/// An input in a memory of the client.
#[derive(Debug)]
pub(super) struct InMemory<'a> {
    /// Which input, and the pool that the memory is.
    pub(super) at: (usize, u32),
    pub(super) memory: &'a Memory,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl InputSource for InMemory<'_> {
    #[inline]
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        check_given(self.at.0, self.length, offset, bytes.len())?;
        // Validation has seen that the end of the input fits 64 bits.
        let copied = self.memory.read(self.offset.saturating_add(offset), bytes);
        copied.map_err(|failure| *of_argument(Direction::Input, self.at.0, self.at.1, *failure))
    }

    fn sealed(&self) -> Option<(&Arc<SealedBytes>, Range<usize>)> {
        self.memory.sealed(self.offset, self.length)
    }

    fn dma_buf(&self) -> Option<(BorrowedFd<'_>, Range<u64>)> {
        self.memory.dma_buf(self.offset, self.length)
    }
}

/// Validation knows the sizes of standard types and of the device's own; of others only the device does.
#[inline]
fn check_given(index: usize, given: u64, offset: u64, needed: usize) -> Result<(), Failure> {
    match offset.checked_add(needed as u64) {
        Some(end) if end <= given => Ok(()),
        end => Err(*too_short(index, given, end.unwrap_or(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ErrorStatus;

    use super::*;

    #[test]
    fn input_shorter_than_what_the_device_asks_for_is_refused() {
        let source = InPacket {
            at: (3, 0),
            bytes: &[1, 2, 3],
        };
        let mut read = [0; 3];
        source.read(0, &mut read).unwrap();
        assert_eq!(read, [1, 2, 3]);
        let failure = source.read(1, &mut read).unwrap_err();
        assert_eq!(failure.status, ErrorStatus::InvalidArgument);
        assert_eq!(failure.detail, "input 3 has 3 bytes, the device needs 4");
        assert!(source.read(u64::MAX, &mut read).is_err());
    }
}
