//! How the arguments of executions reach the worker, and back.

use nnhal::burst::FIRE_INLINE_BYTES;
use nnhal_client::{Buffer, BufferDesc, BufferRole, Device, Memory, PreparedModel, Request};
use serde::Serialize;

use crate::Result;

/// A way to pass arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Passing {
    /// In the cells of the rings.
    Inline,
    /// From and to memory of the application, by a copy into memory that both sides share and one out of it.
    OwnMemory,
    /// In memory that both sides share, have mapped and have touched before.
    SharedMemory,
    /// From one device buffer to another: nothing is passed.
    DeviceBuffers,
}

impl Passing {
    /// How [`nnhal_client::Burst::run`] passes an input of so many bytes, and an output of as many.
    #[must_use]
    pub const fn by_run(bytes: usize) -> Passing {
        // Results have more room.
        if bytes <= FIRE_INLINE_BYTES {
            Passing::Inline
        } else {
            Passing::OwnMemory
        }
    }

    /// As figures name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Passing::Inline => "inline",
            Passing::OwnMemory => "own_memory",
            Passing::SharedMemory => "shared_memory",
            Passing::DeviceBuffers => "device_buffers",
        }
    }
}

/// A device buffer for the input of a model, and one for its output.
#[derive(Debug)]
pub struct BufferPair {
    input: Buffer,
    output: Buffer,
    request: Request,
    /// Of the input's size and the output's, which are the same.
    memory: Memory,
}

impl BufferPair {
    /// For a model with one input and one output of so many bytes each. The input has no value yet.
    ///
    /// # Errors
    /// The device has no buffers, or no room for them.
    pub fn new(device: &Device, prepared: &PreparedModel, bytes: u64) -> Result<BufferPair> {
        let role = [BufferRole {
            model_index: 0,
            io_index: 0,
            frequency: 1.0,
        }];
        let desc = BufferDesc::default();
        let input = device.allocate(&desc, &[prepared], &role, &[])?;
        let output = device.allocate(&desc, &[prepared], &[], &role)?;
        Ok(BufferPair {
            request: Request::new().input_buffer(&input).output_buffer(&output),
            input,
            output,
            memory: Memory::new(bytes)?,
        })
    }

    /// From the one to the other.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Gives the input this value.
    ///
    /// # Errors
    /// The driver's; the values have another size.
    pub fn set(&self, values: &[f32]) -> Result<()> {
        self.memory.write(0, values)?;
        Ok(self.input.copy_from(&self.memory, &[])?)
    }

    /// Puts the output's value into `values`.
    ///
    /// # Errors
    /// The driver's; it has none yet, or another size.
    pub fn get(&self, values: &mut [f32]) -> Result<()> {
        self.output.copy_to(&self.memory)?;
        values.copy_from_slice(&self.memory.read(0, values.len())?);
        Ok(())
    }
}
