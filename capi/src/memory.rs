//! Memories: shared ones and those of devices.

use std::os::fd::OwnedFd;

use nnhal_client::runtime::DeviceMemory;

use crate::result::{Failure, Outcome};

/// `PROT_WRITE`.
const PROT_WRITE: i32 = 2;

/// How much is copied at a time between memories.
const COPY_CHUNK: u64 = 1 << 20;

/// What is behind an `ANeuralNetworksMemory`.
#[derive(Debug)]
pub(crate) enum Memory {
    Shared(nnhal_client::Memory),
    /// Made from a description.
    Device(DeviceMemory),
}

/// A part of a shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) memory: nnhal_client::Memory,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

impl Memory {
    /// `size` bytes from `offset` of a file, memfd or dma-buf.
    pub(crate) fn from_fd(fd: OwnedFd, size: usize, protection: i32, offset: usize) -> Outcome<Memory> {
        let is_writable = protection & PROT_WRITE != 0;
        let memory = nnhal_client::Memory::from_fd(fd, offset as u64, size as u64, is_writable)?;
        Ok(Memory::Shared(memory))
    }

    /// The dimensions that it was described for, if it was made from a description.
    pub(crate) fn described_dimensions(&self) -> Option<&[u32]> {
        match self {
            Memory::Shared(_) => None,
            Memory::Device(memory) => Some(memory.described_dimensions()),
        }
    }

    /// A part of a shared memory, which must lie inside it.
    pub(crate) fn part(&self, offset: usize, length: usize) -> Outcome<Shared> {
        let Memory::Shared(memory) = self else {
            return Err(Failure::bad_data(
                "the memory was made from a description and has no bytes that could be named",
            ));
        };
        let end = offset.checked_add(length);
        if length == 0 || end.is_none_or(|end| end as u64 > memory.size()) {
            return Err(Failure::bad_data(format!(
                "{length} bytes from {offset} of a memory of {} bytes; the range must not be empty and lie inside",
                memory.size()
            )));
        }
        Ok(Shared {
            memory: memory.clone(),
            offset,
            length,
        })
    }

    /// Copies all of one memory into another of the same size.
    pub(crate) fn copy(from: &Memory, to: &Memory) -> Outcome {
        match (from, to) {
            (Memory::Shared(from), Memory::Shared(to)) => {
                if from.is_same(to) {
                    return Ok(());
                }
                if from.size() != to.size() {
                    return Err(Failure::bad_data(format!(
                        "a memory of {} bytes cannot be copied into one of {}",
                        from.size(),
                        to.size()
                    )));
                }
                copy_bytes(from, to)
            }
            (Memory::Device(from), Memory::Shared(to)) => Ok(from.copy_to(to)?),
            (Memory::Shared(from), Memory::Device(to)) => Ok(to.copy_from(from, &[])?),
            (Memory::Device(from), Memory::Device(to)) => Ok(to.copy_from_device(from)?),
        }
    }
}

fn copy_bytes(from: &nnhal_client::Memory, to: &nnhal_client::Memory) -> Outcome {
    let unmappable = |error: nnhal_client::Error| {
        Failure::new(
            crate::codes::ResultCode::ANEURALNETWORKS_UNMAPPABLE,
            error.to_string(),
        )
    };
    let mut chunk = vec![0; COPY_CHUNK.min(from.size()) as usize];
    let mut at = 0;
    while at < from.size() {
        let length = COPY_CHUNK.min(from.size() - at) as usize;
        from.read_at(at, &mut chunk[..length]).map_err(unmappable)?;
        to.write_at(at, &chunk[..length]).map_err(unmappable)?;
        at += length as u64;
    }
    Ok(())
}
