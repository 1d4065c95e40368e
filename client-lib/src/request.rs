//! Requests: where the inputs and outputs of an execution are.

use std::ops::Range;
use std::sync::Arc;

use nnhal::wire::{MemoryHandle, RequestWithMemories};
use nnhal_hal::{DataLocation, RequestArgument, RequestPool};
use nnhal_os::time::Deadline;
use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::connection::{Connection, wrong_connection};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// Where the inputs and outputs of an execution are: in memories that this process shares with the driver, or
/// in device buffers. The role of the HAL's `Request`.
///
/// One request may be executed any number of times, and by several executions at once as long as their
/// outputs do not overlap. Arguments are given in the order of the model's inputs and outputs. What is wrong
/// with them, the driver says, naming the argument. After an execution that failed, memories of outputs may
/// be written in part, so an output that overlaps an input spoils it; device buffers of outputs hold nothing.
///
/// ```
/// use nnhal_client::{Memory, Request};
///
/// let memory = Memory::new(64)?;
/// let request = Request::new().input(&memory, 0..16).output(&memory, 16..32);
/// # Ok::<(), nnhal_client::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Request {
    hal: nnhal_hal::Request,
    /// The memories among the pools, in their order.
    memories: SmallVec<[Memory; 2]>,
    /// The device buffers among the pools, kept alive.
    buffers: Vec<Buffer>,
    first_error: Option<Error>,
}

impl Request {
    /// A request without arguments.
    #[must_use]
    pub fn new() -> Request {
        Request::default()
    }

    /// One that gets so many inputs and outputs.
    #[cfg(feature = "runtime")]
    pub(crate) fn with_room(inputs: usize, outputs: usize) -> Request {
        let mut request = Request::new();
        request.hal.inputs.reserve_exact(inputs);
        request.hal.outputs.reserve_exact(outputs);
        request
    }

    /// A request in the HAL's own form, with a memory for each of its pools that is one. Device buffers are
    /// named by their tokens and must be kept alive by the caller.
    #[must_use]
    pub fn from_hal(request: nnhal_hal::Request, memories: Vec<Memory>) -> Request {
        Request {
            hal: request,
            memories: memories.into(),
            ..Request::default()
        }
    }

    /// Adds an input whose bytes are in a memory.
    #[must_use]
    pub fn input(self, memory: &Memory, range: Range<u64>) -> Request {
        self.input_with_dimensions(memory, range, &[])
    }

    /// Adds an input whose dimensions the model leaves open.
    #[must_use]
    pub fn input_with_dimensions(
        mut self,
        memory: &Memory,
        range: Range<u64>,
        dimensions: &[u32],
    ) -> Request {
        self.add_input(memory, range, dimensions);
        self
    }

    /// Leaves an optional input out.
    #[must_use]
    pub fn omitted_input(mut self) -> Request {
        self.hal.inputs.push(RequestArgument {
            has_no_value: true,
            ..RequestArgument::default()
        });
        self
    }

    /// Adds an input that is in a device buffer.
    #[must_use]
    pub fn input_buffer(mut self, buffer: &Buffer) -> Request {
        let argument = self.in_buffer(buffer);
        self.hal.inputs.push(argument);
        self
    }

    /// Adds an output whose bytes go into a memory.
    #[must_use]
    pub fn output(self, memory: &Memory, range: Range<u64>) -> Request {
        self.output_with_dimensions(memory, range, &[])
    }

    /// Adds an output whose dimensions are asserted beyond what the model says.
    #[must_use]
    pub fn output_with_dimensions(
        mut self,
        memory: &Memory,
        range: Range<u64>,
        dimensions: &[u32],
    ) -> Request {
        self.add_output(memory, range, dimensions);
        self
    }

    /// Adds an output that goes into a device buffer.
    #[must_use]
    pub fn output_buffer(mut self, buffer: &Buffer) -> Request {
        let argument = self.in_buffer(buffer);
        self.hal.outputs.push(argument);
        self
    }

    /// The request in the HAL's own form.
    #[must_use]
    pub fn hal(&self) -> &nnhal_hal::Request {
        &self.hal
    }

    /// The memories among its pools, in their order.
    #[must_use]
    pub fn memories(&self) -> &[Memory] {
        &self.memories
    }

    /// The device buffers among its pools.
    pub(crate) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// The request as a worker understands it, which is told of memories that it does not know.
    pub(crate) fn on_wire(
        &self,
        connection: &Arc<Connection>,
        deadline: Deadline,
    ) -> Result<RequestWithMemories> {
        self.expect_buffers_of(connection)?;
        Ok(RequestWithMemories {
            memories: self.handles(connection, deadline)?,
            request: self.checked()?.clone(),
        })
    }

    /// Refuses device buffers of other connections, whose tokens may name anything on this one.
    pub(crate) fn expect_buffers_of(&self, connection: &Arc<Connection>) -> Result<()> {
        if self.buffers.iter().all(|buffer| buffer.is_of(connection)) {
            Ok(())
        } else {
            Err(wrong_connection("a device buffer"))
        }
    }

    /// The names of the memories on a connection.
    pub(crate) fn handles(
        &self,
        connection: &Arc<Connection>,
        deadline: Deadline,
    ) -> Result<Vec<MemoryHandle>> {
        self.memories
            .iter()
            .map(|memory| memory.handle_by(connection, deadline))
            .collect()
    }

    /// The HAL's form, unless building it has failed.
    pub(crate) fn checked(&self) -> Result<&nnhal_hal::Request> {
        match &self.first_error {
            None => Ok(&self.hal),
            Some(error) => Err(error.clone()),
        }
    }

    /// As [`Request::input_with_dimensions`], in place.
    pub(crate) fn add_input(&mut self, memory: &Memory, range: Range<u64>, dimensions: &[u32]) {
        let argument = self.in_memory(memory, range, dimensions);
        self.hal.inputs.push(argument);
    }

    /// As [`Request::output_with_dimensions`], in place.
    pub(crate) fn add_output(&mut self, memory: &Memory, range: Range<u64>, dimensions: &[u32]) {
        let argument = self.in_memory(memory, range, dimensions);
        self.hal.outputs.push(argument);
    }

    fn in_memory(&mut self, memory: &Memory, range: Range<u64>, dimensions: &[u32]) -> RequestArgument {
        let known = self.memories.iter().position(|known| known.is_same(memory));
        let pool = known.unwrap_or_else(|| {
            self.memories.push(memory.clone());
            self.hal.pools.push(RequestPool::Memory { size: memory.size() });
            self.memories.len() - 1
        });
        let pool_index = self.pool_index_of_memory(pool);
        let location = range.end.checked_sub(range.start).and_then(|length| {
            Some(DataLocation {
                pool_index,
                offset: u32::try_from(range.start).ok()?,
                length: u32::try_from(length).ok()?,
            })
        });
        if location.is_none() {
            self.first_error.get_or_insert(Error::argument(format!(
                "an argument is in bytes {range:?} of a memory; they must be in order and below 4 GiB"
            )));
        }
        RequestArgument {
            has_no_value: false,
            location: location.unwrap_or_default(),
            dimensions: dimensions.to_vec(),
        }
    }

    fn in_buffer(&mut self, buffer: &Buffer) -> RequestArgument {
        let token = RequestPool::Token(buffer.token());
        let known = self.hal.pools.iter().position(|pool| *pool == token);
        let pool_index = known.unwrap_or_else(|| {
            self.hal.pools.push(token);
            self.buffers.push(buffer.clone());
            self.hal.pools.len() - 1
        });
        // Each pool is an object of this process, of which there are fewer than 2^32.
        let location = DataLocation {
            pool_index: pool_index as u32,
            ..DataLocation::default()
        };
        RequestArgument {
            has_no_value: false,
            location,
            dimensions: Vec::new(),
        }
    }

    /// The index, among all pools, of a memory by its index among the memories.
    fn pool_index_of_memory(&self, memory: usize) -> u32 {
        let pools = self.hal.pools.iter().enumerate();
        let mut memories = pools.filter(|(_, pool)| matches!(pool, RequestPool::Memory { .. }));
        memories.nth(memory).map_or(u32::MAX, |(index, _)| index as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_memory_is_one_pool() {
        let (one, two) = (Memory::new(8).unwrap(), Memory::new(16).unwrap());
        let request = Request::new()
            .input(&one, 0..4)
            .omitted_input()
            .input_with_dimensions(&two, 8..16, &[2])
            .output(&one, 4..8);
        assert_eq!(
            request.hal().pools,
            [RequestPool::Memory { size: 8 }, RequestPool::Memory { size: 16 }]
        );
        assert_eq!(request.memories().len(), 2);
        let pools: Vec<u32> = request
            .hal()
            .inputs
            .iter()
            .map(|input| input.location.pool_index)
            .collect();
        assert_eq!(pools, [0, 0, 1]);
        assert!(request.hal().inputs[1].has_no_value);
        assert_eq!(
            request.hal().outputs[0].location,
            DataLocation {
                pool_index: 0,
                offset: 4,
                length: 4
            }
        );
        assert!(request.checked().is_ok());
    }

    #[test]
    fn range_that_no_location_can_say_is_refused() {
        let memory = Memory::new(8).unwrap();
        #[allow(clippy::reversed_empty_ranges)]
        for range in [4..0, 0..1 << 32, 1 << 32..(1 << 32) + 1] {
            assert!(Request::new().input(&memory, range).checked().is_err());
        }
    }
}
