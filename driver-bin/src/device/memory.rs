//! The contents of device buffers.

use std::any::Any;
use std::fmt;

use nnhal::wire::Failure;
use nnhal_hal::ErrorStatus;
use nnhal_os::rlimit;

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
#[derive(PartialEq, Eq)]
pub struct HostMemory {
    bytes: Vec<u8>,
}

impl HostMemory {
    /// This many zeros.
    ///
    /// # Errors
    ///
    /// The status of [`exhaustion`] without memory.
    pub fn zeroed(size: usize) -> Result<HostMemory, Failure> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| {
            Failure::new(
                exhaustion(size as u64),
                format!("{size} bytes of memory cannot be had for a device buffer"),
            )
        })?;
        bytes.resize(size, 0);
        Ok(HostMemory { bytes })
    }

    /// These bytes.
    ///
    /// # Errors
    ///
    /// As [`HostMemory::zeroed`].
    pub fn copy_of(bytes: &[u8]) -> Result<HostMemory, Failure> {
        let mut memory = HostMemory::zeroed(bytes.len())?;
        memory.bytes.copy_from_slice(bytes);
        Ok(memory)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, while nobody else has them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl DeviceMemory for HostMemory {
    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Failure> {
        copy_range(&self.bytes, offset, out)
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory")
            .field("size", &self.bytes.len())
            .finish()
    }
}

/// The status for so many bytes of memory that cannot be had: `RESOURCE_EXHAUSTED_PERSISTENT` if they alone are more than
/// this process may ever have, else `RESOURCE_EXHAUSTED_TRANSIENT`, since somebody may free what they need.
#[must_use]
pub fn exhaustion(bytes: u64) -> ErrorStatus {
    // Part of the limit is the driver's own, and no object can have more than half of the address space there is.
    if bytes >= rlimit::address_space() || bytes > isize::MAX as u64 {
        ErrorStatus::ResourceExhaustedPersistent
    } else {
        ErrorStatus::ResourceExhaustedTransient
    }
}

/// Copies `out.len()` bytes from `offset` on.
pub(super) fn copy_range(bytes: &[u8], offset: usize, out: &mut [u8]) -> Result<(), Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_memory_is_read_within_its_bounds_only() {
        let memory = HostMemory::copy_of(b"abcdef").unwrap();
        let mut out = [0; 3];
        memory.read(3, &mut out).unwrap();
        assert_eq!(&out, b"def");
        assert!(memory.read(4, &mut out).is_err());
        assert!(memory.read(usize::MAX, &mut out).is_err());
        memory.read(6, &mut []).unwrap();
    }

    #[test]
    fn memory_that_cannot_be_had_is_refused_for_good_only_if_it_never_can() {
        let refused = HostMemory::zeroed(usize::MAX / 2 + 1).unwrap_err();
        assert_eq!(refused.status, ErrorStatus::ResourceExhaustedPersistent);
        assert_eq!(exhaustion(1), ErrorStatus::ResourceExhaustedTransient);
    }
}
