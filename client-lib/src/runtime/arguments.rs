//! The arguments of an execution: where they are, and bringing them where every device can reach them.

use std::ops::Range;

use nnhal_hal::validate::Direction;
use nnhal_hal::{OutputShape, Shape, TypeLayouts};

use super::compilation::Compilation;
use super::device_memory::DeviceMemory;
use super::result::{RuntimeError, RuntimeResult};
use super::shapes::known_shape;
use super::value_store::ValueStore;
use crate::layout::Layout;
use crate::memory::Memory;
use crate::tensor::{TensorType, written_bytes};

/// An input of an execution. Dimensions are those that the model leaves open, and a 0 stands for none that it
/// has. They are empty where it leaves none.
#[derive(Clone, Copy, Debug)]
pub enum RunInput<'a> {
    /// An optional input that is left out.
    Omitted,
    /// In this process's own memory.
    Bytes {
        /// The value.
        bytes: &'a [u8],
        /// Its dimensions.
        dimensions: &'a [u32],
    },
    /// In shared memory.
    Memory {
        /// The memory.
        memory: &'a Memory,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// The value's dimensions.
        dimensions: &'a [u32],
    },
    /// In device memory that was allocated for this role.
    Device {
        /// The memory.
        memory: &'a DeviceMemory,
        /// The value's dimensions.
        dimensions: &'a [u32],
    },
}

/// Room for an output of an execution.
#[derive(Debug)]
pub enum RunOutput<'a> {
    /// In this process's own memory.
    Bytes {
        /// The room; of a value that is smaller, the first bytes are written.
        bytes: &'a mut [u8],
        /// Dimensions that are asserted beyond what the model says: not a 0 where it has an extent.
        dimensions: &'a [u32],
    },
    /// In shared memory.
    Memory {
        /// The memory.
        memory: &'a Memory,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Dimensions that are asserted beyond what the model says.
        dimensions: &'a [u32],
    },
    /// In device memory that was allocated for this role.
    Device {
        /// The memory.
        memory: &'a DeviceMemory,
        /// Dimensions that are asserted beyond what the model says.
        dimensions: &'a [u32],
    },
}

/// Room for an output of an execution that goes on after the call.
#[derive(Clone, Debug)]
pub enum OutputBuffer {
    /// In memory of the execution's own, to be fetched with [`super::RunEvent::output`].
    Bytes {
        /// Number of bytes.
        length: usize,
        /// Dimensions that are asserted beyond what the model says.
        dimensions: Vec<u32>,
    },
    /// In shared memory.
    Memory {
        /// The memory.
        memory: Memory,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
        /// Dimensions that are asserted beyond what the model says.
        dimensions: Vec<u32>,
    },
    /// In device memory that was allocated for this role.
    Device {
        /// The memory.
        memory: DeviceMemory,
        /// Dimensions that are asserted beyond what the model says.
        dimensions: Vec<u32>,
    },
}

impl<'a> RunInput<'a> {
    /// An input in this process's own memory, with the model's dimensions.
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> RunInput<'a> {
        RunInput::Bytes {
            bytes,
            dimensions: &[],
        }
    }
}

impl<'a> RunOutput<'a> {
    /// An output in this process's own memory, with the model's dimensions.
    #[must_use]
    pub fn bytes(bytes: &'a mut [u8]) -> RunOutput<'a> {
        RunOutput::Bytes {
            bytes,
            dimensions: &[],
        }
    }

    pub(super) fn room(&self) -> OutputBuffer {
        match *self {
            RunOutput::Bytes {
                ref bytes,
                dimensions,
            } => OutputBuffer::Bytes {
                length: bytes.len(),
                dimensions: dimensions.to_vec(),
            },
            RunOutput::Memory {
                memory,
                offset,
                length,
                dimensions,
            } => OutputBuffer::Memory {
                memory: memory.clone(),
                offset,
                length,
                dimensions: dimensions.to_vec(),
            },
            RunOutput::Device { memory, dimensions } => OutputBuffer::Device {
                memory: memory.clone(),
                dimensions: dimensions.to_vec(),
            },
        }
    }
}

impl OutputBuffer {
    /// Room for this many bytes, with the model's dimensions.
    #[must_use]
    pub fn bytes(length: usize) -> OutputBuffer {
        OutputBuffer::Bytes {
            length,
            dimensions: Vec::new(),
        }
    }
}

/// Where a value is while steps read and write it.
#[derive(Clone, Debug)]
pub(super) enum Location {
    /// It is left out.
    Omitted,
    /// In memory that every process can map.
    Memory {
        memory: Memory,
        range: Range<u64>,
        dimensions: Vec<u32>,
    },
    /// In device memory.
    Device {
        memory: DeviceMemory,
        dimensions: Vec<u32>,
    },
    /// In a device, where it stays between steps.
    Resident(ValueStore),
}

impl Location {
    /// The shape of an output of this type there, as far as the model and the application say.
    pub(super) fn known_shape(&self, ty: &TensorType) -> OutputShape {
        let given = match self {
            Location::Memory { dimensions, .. } | Location::Device { dimensions, .. } => {
                dimensions.as_slice()
            }
            Location::Omitted | Location::Resident(_) => &[],
        };
        known_shape(ty.dimensions(), given)
    }
}

/// The arguments of one execution, where every device can reach them.
#[derive(Clone, Debug)]
pub(super) struct BoundArguments {
    pub(super) inputs: Vec<Location>,
    pub(super) outputs: Vec<Location>,
    /// Memory of the execution's own, for arguments that are in nobody else's.
    pub(super) memory: Option<Memory>,
    /// For each output, its place in that memory, if it is there.
    pub(super) rooms: Vec<Option<Range<u64>>>,
}

impl BoundArguments {
    /// Whether a device memory among them died with its worker.
    pub(super) fn has_lost_memory(&self) -> bool {
        let mut locations = self.inputs.iter().chain(&self.outputs);
        locations
            .any(|location| matches!(location, Location::Device { memory, .. } if memory.store().is_lost()))
    }

    /// Places the arguments; those in this process's own memory are copied to shared memory, which `make`
    /// provides.
    pub(super) fn new(
        compilation: &Compilation,
        inputs: &[RunInput<'_>],
        outputs: &[OutputBuffer],
        make: impl FnOnce(u64) -> RuntimeResult<Memory>,
    ) -> RuntimeResult<BoundArguments> {
        expect_count("inputs", inputs.len(), compilation.inputs().len())?;
        expect_count("outputs", outputs.len(), compilation.outputs().len())?;
        let mut layout = Layout::default();
        let own_inputs: Vec<Option<Range<u64>>> = inputs
            .iter()
            .map(|input| match input {
                RunInput::Bytes { bytes, .. } => Some(layout.add(bytes.len() as u64)),
                _ => None,
            })
            .collect();
        let rooms: Vec<Option<Range<u64>>> = outputs
            .iter()
            .map(|room| match room {
                OutputBuffer::Bytes { length, .. } => Some(layout.add(*length as u64)),
                _ => None,
            })
            .collect();
        let memory = if layout.end > 0 {
            Some(make(layout.end)?)
        } else {
            None
        };
        let mut placed = BoundArguments {
            inputs: Vec::with_capacity(inputs.len()),
            outputs: Vec::with_capacity(outputs.len()),
            memory,
            rooms,
        };
        for (index, (input, own)) in inputs.iter().zip(own_inputs).enumerate() {
            let location = placed.input(compilation, index, input, own)?;
            placed.inputs.push(location);
        }
        for (index, room) in outputs.iter().enumerate() {
            let location = placed.output(compilation, index, room)?;
            placed.outputs.push(location);
        }
        Ok(placed)
    }

    fn input(
        &self,
        compilation: &Compilation,
        index: usize,
        input: &RunInput<'_>,
        own: Option<Range<u64>>,
    ) -> RuntimeResult<Location> {
        match (*input, own, &self.memory) {
            (RunInput::Bytes { bytes, dimensions }, Some(range), Some(memory)) => {
                memory.write_at(range.start, bytes)?;
                Ok(Location::Memory {
                    memory: memory.clone(),
                    range,
                    dimensions: dimensions.to_vec(),
                })
            }
            (
                RunInput::Memory {
                    memory,
                    offset,
                    length,
                    dimensions,
                },
                ..,
            ) => in_memory(("input", index), memory, (offset, length), dimensions),
            (RunInput::Device { memory, dimensions }, ..) => {
                memory.expect_role(compilation, index, Direction::Input)?;
                let dimensions = memory.readable_dimensions(index, dimensions)?;
                let memory = memory.clone();
                Ok(Location::Device { memory, dimensions })
            }
            _ => Ok(Location::Omitted),
        }
    }

    fn output(
        &self,
        compilation: &Compilation,
        index: usize,
        room: &OutputBuffer,
    ) -> RuntimeResult<Location> {
        match (room, &self.rooms[index], &self.memory) {
            (OutputBuffer::Bytes { dimensions, .. }, Some(range), Some(memory)) => Ok(Location::Memory {
                memory: memory.clone(),
                range: range.clone(),
                dimensions: dimensions.clone(),
            }),
            (
                OutputBuffer::Memory {
                    memory,
                    offset,
                    length,
                    dimensions,
                },
                ..,
            ) => in_memory(("output", index), memory, (*offset, *length), dimensions),
            (OutputBuffer::Device { memory, dimensions }, ..) => {
                memory.expect_role(compilation, index, Direction::Output)?;
                memory.expect_described(Direction::Output, index, dimensions)?;
                Ok(Location::Device {
                    memory: memory.clone(),
                    dimensions: dimensions.clone(),
                })
            }
            (OutputBuffer::Bytes { .. }, ..) => Ok(Location::Omitted),
        }
    }

    /// Copies the value of output `index` out of the execution's own memory, as far as it was written.
    pub(super) fn read_output(
        &self,
        index: usize,
        types: (&[TensorType], &TypeLayouts),
        shapes: &[OutputShape],
        out: &mut [u8],
    ) -> RuntimeResult<()> {
        let (Some(Some(range)), Some(memory)) = (self.rooms.get(index), &self.memory) else {
            return Err(RuntimeError::bad_data(format!(
                "output {index} is not in memory of the execution's own"
            )));
        };
        let room = (range.end - range.start).min(out.len() as u64);
        let (types, layouts) = types;
        let written = types.get(index).zip(shapes.get(index)).and_then(|(ty, shape)| {
            let shape = Shape::new(&shape.dimensions).ok()?;
            written_bytes(layouts.get(ty.operand_type()), &shape)
        });
        let length = written.map_or(room, |written| room.min(written as u64)) as usize;
        memory.read_at(range.start, &mut out[..length])?;
        Ok(())
    }
}

fn in_memory(
    argument: (&str, usize),
    memory: &Memory,
    part: (u64, u64),
    dimensions: &[u32],
) -> RuntimeResult<Location> {
    Ok(Location::Memory {
        range: range_in(argument, memory, part)?,
        memory: memory.clone(),
        dimensions: dimensions.to_vec(),
    })
}

/// The bytes of an argument in a memory, which must be there.
pub(super) fn range_in(
    (direction, index): (&str, usize),
    memory: &Memory,
    (offset, length): (u64, u64),
) -> RuntimeResult<Range<u64>> {
    let end = offset.checked_add(length).filter(|end| *end <= memory.size());
    match end {
        Some(end) if end > 0 => Ok(offset..end),
        _ => Err(RuntimeError::bad_data(format!(
            "{direction} {index} is {length} bytes from byte {offset} of a memory of {} bytes; it must lie inside, \
             and offset and length must not both be 0",
            memory.size()
        ))),
    }
}

pub(super) fn expect_count(what: &str, count: usize, expected: usize) -> RuntimeResult<()> {
    if count == expected {
        return Ok(());
    }
    Err(RuntimeError::bad_data(format!(
        "{count} {what} were given, the model has {expected}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_offset_and_length_is_refused() {
        let memory = Memory::new(16).unwrap();
        let place = |offset, length| in_memory(("input", 0), &memory, (offset, length), &[]);
        assert!(place(0, 16).is_ok() && place(4, 0).is_ok());
        assert!(place(0, 0).is_err() && place(8, 9).is_err() && place(u64::MAX, 2).is_err());
    }
}
