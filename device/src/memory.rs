//! The contents of device buffers.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use nnhal_hal::{ErrorStatus, Failure};
use nnhal_os::buffer::AlignedBuffer;
use nnhal_os::rlimit;

use super::InputSource;

/// What a device buffer holds: bytes where the device wants them, never changed once they are there.
pub trait DeviceMemory: Any + Send + Sync + fmt::Debug {
    /// How many bytes.
    fn size(&self) -> usize;

    /// Copies bytes from `offset` on to memory of the host.
    ///
    /// # Errors
    ///
    /// `GENERAL_FAILURE` beyond the end, or if the device fails.
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Failure>;
}

/// Device memory of devices that compute in the host's memory.
impl DeviceMemory for AlignedBuffer {
    fn size(&self) -> usize {
        self.bytes().len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Failure> {
        let bytes = self.bytes();
        let range = offset
            .checked_add(out.len())
            .and_then(|end| bytes.get(offset..end));
        let range = range.ok_or_else(|| {
            Failure::general(format!(
                "{} bytes from {offset} reach beyond the {} bytes of device memory",
                out.len(),
                bytes.len()
            ))
        })?;
        out.copy_from_slice(range);
        Ok(())
    }
}

/// For devices that read no device buffer in place.
impl InputSource for Arc<dyn DeviceMemory> {
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        DeviceMemory::read(&**self, usize::try_from(offset).unwrap_or(usize::MAX), bytes)
    }
}

/// Zeros in the host's memory.
///
/// # Errors
///
/// The status of [`exhaustion`] without memory.
pub(crate) fn host_memory(size: usize) -> Result<AlignedBuffer, Failure> {
    let mut memory = AlignedBuffer::new();
    memory
        .resize(size)
        .map_err(|error| Failure::new(exhaustion(error.bytes as u64), error.to_string()))?;
    Ok(memory)
}

/// The status for so many bytes of memory that cannot be had: `RESOURCE_EXHAUSTED_PERSISTENT` if they alone
/// are more than this process may ever have, else `RESOURCE_EXHAUSTED_TRANSIENT`, since somebody may free
/// what they need.
#[must_use]
pub fn exhaustion(bytes: u64) -> ErrorStatus {
    // Part of the limit is the driver's own, and no object can have more than half of the address space there
    // is.
    if bytes >= rlimit::address_space() || bytes > isize::MAX as u64 {
        ErrorStatus::ResourceExhaustedPersistent
    } else {
        ErrorStatus::ResourceExhaustedTransient
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_read_within_its_bounds_only() {
        let memory = AlignedBuffer::copy_of(b"abcdef").unwrap();
        let mut out = [0; 3];
        memory.read(3, &mut out).unwrap();
        assert_eq!(&out, b"def");
        assert!(memory.read(4, &mut out).is_err());
        assert!(memory.read(usize::MAX, &mut out).is_err());
        memory.read(6, &mut []).unwrap();
    }

    #[test]
    fn memory_that_cannot_be_had_is_refused_for_good_only_if_it_never_can() {
        let refused = host_memory(usize::MAX / 2 + 1).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedPersistent);
        assert_eq!(exhaustion(1), ErrorStatus::ResourceExhaustedTransient);
    }
}
