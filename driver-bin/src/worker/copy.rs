//! Copies between device buffers and memories that the client shares.

use std::sync::Arc;

use nnhal::wire::{BufferHandle, MemoryHandle, Reply};
use nnhal_device::Device;
use nnhal_hal::{ErrorStatus, Failure, Priority, Shape};
use nnhal_os::shm::Access;

use super::buffer::{Buffer, Content};
use super::calls::OpenCall;
use super::client::Client;
use super::memory::Memory;

/// HAL `IBuffer::copyTo`.
pub(crate) fn copy_to(client: &Arc<Client>, call: OpenCall, buffer: BufferHandle, memory: MemoryHandle) {
    in_background(client, call, buffer, memory, |_, buffer, memory| {
        out_of(buffer, memory)
    });
}

/// HAL `IBuffer::copyFrom`.
pub(crate) fn copy_from(
    client: &Arc<Client>,
    call: OpenCall,
    buffer: BufferHandle,
    memory: MemoryHandle,
    dimensions: Vec<u32>,
) {
    in_background(client, call, buffer, memory, move |device, buffer, memory| {
        into(device, buffer, memory, &dimensions)
    });
}

/// Has a thread copy, since copies can be as long as memories are.
fn in_background(
    client: &Arc<Client>,
    call: OpenCall,
    buffer: BufferHandle,
    memory: MemoryHandle,
    copy: impl FnOnce(&dyn Device, &Buffer, &Memory) -> Result<(), Failure> + Send + 'static,
) {
    let found = client
        .buffers
        .get(buffer)
        .and_then(|buffer| Ok((buffer, client.memories.get(memory)?)));
    let (buffer, memory) = match found {
        Ok(found) => found,
        Err(failure) => return client.outbox.reply(call.id(), Err(failure)),
    };
    let shared = Arc::clone(client);
    client.submit(Priority::Medium, call, move |call| {
        let outcome = copy(&*shared.device, &buffer, &memory);
        shared.outbox.reply(call.id(), outcome.map(|()| Reply::Done));
    });
}

fn out_of(buffer: &Buffer, memory: &Memory) -> Result<(), Failure> {
    let content = buffer.content();
    let size = content
        .as_ref()
        .map(|content| content.memory.size())
        .or_else(|| buffer.declared_size());
    if let Some(size) = size
        && memory.size() != size as u64
    {
        return Err(wrong_size(memory, size));
    }
    let content =
        content.ok_or_else(|| Failure::general("the device buffer holds nothing yet, or no more"))?;
    if !memory.is_writable() {
        return Err(Failure::invalid_argument(
            "the memory to copy to is shared for reading only",
        ));
    }
    let _access = memory.begin(Access::ReadWrite)?;
    let target = memory.slice()?;
    let mut block = [0; 16 * 1024];
    let size = content.memory.size();
    for offset in (0..size).step_by(block.len()) {
        let length = block.len().min(size - offset);
        let Some(part) = block.get_mut(..length) else {
            break;
        };
        content.memory.read(offset, part)?;
        target
            .write_at(offset as u64, part)
            .map_err(|error| Failure::general(error.to_string()))?;
    }
    Ok(())
}

/// Whatever goes wrong leaves the buffer without content.
fn into(device: &dyn Device, buffer: &Buffer, memory: &Memory, dimensions: &[u32]) -> Result<(), Failure> {
    let content = new_content(device, buffer, memory, dimensions);
    let outcome = content.and_then(|content| buffer.set_content(content).map(drop));
    if outcome.is_err() {
        buffer.clear();
    }
    outcome
}

fn new_content(
    device: &dyn Device,
    buffer: &Buffer,
    memory: &Memory,
    dimensions: &[u32],
) -> Result<Content, Failure> {
    let shape = copied_shape(buffer, dimensions)?;
    let size = buffer.size_of(&shape).ok_or_else(|| {
        Failure::invalid_argument(format!("the size of dimensions {shape:?} does not fit 32 bits"))
    })?;
    if memory.size() != size as u64 {
        return Err(wrong_size(memory, size));
    }
    if size as u64 > buffer.limit() {
        return Err(Failure::new(
            ErrorStatus::ResourceExhaustedPersistent,
            format!(
                "{size} bytes are more than the {} that device buffers may have",
                buffer.limit()
            ),
        ));
    }
    buffer.make_room(size)?;
    let _access = memory.begin(Access::ReadOnly)?;
    let source = memory.slice()?;
    let memory = device.upload(size, &mut |bytes| {
        source
            .read_at(0, bytes)
            .map_err(|error| Failure::general(error.to_string()))
    })?;
    Ok(Content { shape, memory })
}

/// The shape of what is copied into a buffer: every extent known, none of them 0.
fn copied_shape(buffer: &Buffer, dimensions: &[u32]) -> Result<Shape, Failure> {
    let given = Shape::new(dimensions).map_err(|error| Failure::invalid_argument(error.to_string()))?;
    let declared = buffer.declared();
    if !buffer.is_tensor() && given.rank() > 0 {
        return Err(Failure::invalid_argument("a scalar has no dimensions"));
    }
    if !given.is_fully_specified() {
        return Err(Failure::invalid_argument(format!(
            "dimensions {given:?} must not contain 0"
        )));
    }
    let shape = declared.combine(&given).ok_or_else(|| {
        Failure::invalid_argument(format!(
            "dimensions {given:?} contradict those of the device buffer, {declared:?}"
        ))
    })?;
    if shape.is_fully_specified() && (shape.rank() > 0 || !buffer.is_tensor()) {
        Ok(shape)
    } else {
        Err(Failure::invalid_argument(format!(
            "the device buffer's own dimensions are {declared:?}; the rest must be given"
        )))
    }
}

fn wrong_size(memory: &Memory, size: usize) -> Failure {
    Failure::invalid_argument(format!(
        "the memory has {} bytes, the device buffer {size}",
        memory.size()
    ))
}
