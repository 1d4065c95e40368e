//! Requests from the places of arguments, with copies where who executes cannot reach a device's memory.

use std::ops::Range;

use nnhal_hal::{OutputShape, Shape};

use super::arguments::Location;
use super::device::RuntimeDevice;
use super::result::{RuntimeError, RuntimeResult};
use super::value_store::{Backing, ValueStore};
use crate::memory::Memory;
use crate::request::Request;

/// Who executes a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// A driver.
    Device(&'a RuntimeDevice),
    /// The CPU of this process.
    Cpu,
    /// Nobody: it is only checked.
    Nobody,
}

impl Target<'_> {
    /// Whether it reads and writes a value where that is, without a copy.
    pub(super) fn reaches(self, location: &Location) -> bool {
        match location {
            Location::Omitted | Location::Memory { .. } => true,
            Location::Device { memory, .. } => self.reaches_store(memory.store()),
            Location::Resident(store) => self.reaches_store(store),
        }
    }

    fn reaches_store(self, store: &ValueStore) -> bool {
        match store.backing() {
            Backing::Shared(_) => true,
            Backing::Device { device, .. } => self.reaches_into(&device),
        }
    }

    fn reaches_into(self, device: &RuntimeDevice) -> bool {
        match self {
            Target::Device(target) => target == device,
            Target::Cpu => false,
            Target::Nobody => true,
        }
    }
}

/// A request that is being built.
#[derive(Debug)]
pub(super) struct RequestBuilder<'a> {
    pub(super) request: Request,
    target: Target<'a>,
    outputs: usize,
    /// Memories in place of device memories that outputs are to go to.
    staged: Vec<Staged>,
}

/// An output that is copied to a device memory afterwards.
#[derive(Debug)]
struct Staged {
    output: usize,
    memory: Memory,
    to: ValueStore,
}

impl<'a> RequestBuilder<'a> {
    pub(super) fn new(target: Target<'a>) -> RequestBuilder<'a> {
        RequestBuilder {
            request: Request::new(),
            target,
            outputs: 0,
            staged: Vec::new(),
        }
    }

    /// The same for so many inputs and outputs.
    pub(super) fn with_room(target: Target<'a>, (inputs, outputs): (usize, usize)) -> RequestBuilder<'a> {
        RequestBuilder {
            request: Request::with_room(inputs, outputs),
            ..RequestBuilder::new(target)
        }
    }

    /// Adds an input whose operand is declared with these dimensions.
    pub(super) fn input(&mut self, location: &Location, declared: &[u32]) -> RuntimeResult<()> {
        match location {
            Location::Omitted => {
                self.omitted_input();
                Ok(())
            }
            Location::Memory {
                memory,
                range,
                dimensions,
            } => {
                self.memory_input(memory, range.clone(), (declared, dimensions));
                Ok(())
            }
            Location::Device { memory, dimensions } => {
                self.stored_input(memory.store(), dimensions, declared)
            }
            Location::Resident(store) => self.stored_input(store, &[], declared),
        }
    }

    fn stored_input(
        &mut self,
        store: &ValueStore,
        dimensions: &[u32],
        declared: &[u32],
    ) -> RuntimeResult<()> {
        match store.backing() {
            Backing::Shared(shared) => {
                self.memory_input(&shared, 0..shared.size(), (declared, dimensions));
            }
            Backing::Device { buffer, device } if self.target.reaches_into(&device) => {
                self.add(|request| request.input_buffer(&buffer));
            }
            Backing::Device { .. } => {
                let size = store.byte_size().ok_or_else(|| unknown_size("input"))?;
                let copy = Memory::new(size)?;
                store.fetch(&copy)?;
                self.memory_input(&copy, 0..size, (declared, dimensions));
            }
        }
        Ok(())
    }

    /// Adds an output whose operand is declared with these dimensions.
    pub(super) fn output(&mut self, location: &Location, declared: &[u32]) -> RuntimeResult<()> {
        match location {
            Location::Omitted => return Err(RuntimeError::bad_data("an output has no place")),
            Location::Memory {
                memory,
                range,
                dimensions,
            } => self.memory_output(memory, range.clone(), (declared, dimensions)),
            Location::Device { memory, dimensions } => {
                self.stored_output(memory.store(), dimensions, declared)?;
            }
            Location::Resident(store) => self.stored_output(store, &[], declared)?,
        }
        self.outputs += 1;
        Ok(())
    }

    fn stored_output(
        &mut self,
        store: &ValueStore,
        dimensions: &[u32],
        declared: &[u32],
    ) -> RuntimeResult<()> {
        match store.backing() {
            Backing::Shared(shared) => {
                self.memory_output(&shared, 0..shared.size(), (declared, dimensions));
            }
            Backing::Device { buffer, device } if self.target.reaches_into(&device) => {
                self.add(|request| request.output_buffer(&buffer));
            }
            Backing::Device { .. } => {
                let shape =
                    [declared, dimensions].map(|dimensions| Shape::new(dimensions).unwrap_or_default());
                let shape = shape[0].combine(&shape[1]).unwrap_or_default();
                let size = store.layouts().byte_size(store.operand_type(), &shape);
                let size = size
                    .filter(|size| *size > 0)
                    .ok_or_else(|| unknown_size("output"))?;
                let stage = Memory::new(size as u64)?;
                self.memory_output(&stage, 0..stage.size(), (declared, dimensions));
                self.staged.push(Staged {
                    output: self.outputs,
                    memory: stage,
                    to: store.clone(),
                });
            }
        }
        Ok(())
    }

    /// Copies what was computed in place of device memories there, after a success.
    pub(super) fn store(&self, shapes: &[OutputShape]) -> RuntimeResult<()> {
        for staged in &self.staged {
            let dimensions = shapes.get(staged.output);
            let dimensions = dimensions.map_or(&[][..], |shape| &shape.dimensions);
            staged.to.write(&staged.memory, dimensions)?;
        }
        Ok(())
    }

    /// Leaves an optional input out.
    pub(super) fn omitted_input(&mut self) {
        self.add(Request::omitted_input);
    }

    /// Adds an input in shared memory, with the dimensions that its operand is declared with and its own.
    pub(super) fn memory_input(
        &mut self,
        memory: &Memory,
        range: Range<u64>,
        (declared, dimensions): (&[u32], &[u32]),
    ) {
        let dimensions = open_part(declared, dimensions);
        self.request.add_input(memory, range, dimensions);
    }

    /// The same of an output.
    pub(super) fn memory_output(
        &mut self,
        memory: &Memory,
        range: Range<u64>,
        (declared, dimensions): (&[u32], &[u32]),
    ) {
        let dimensions = open_part(declared, dimensions);
        self.request.add_output(memory, range, dimensions);
    }

    fn add(&mut self, argument: impl FnOnce(Request) -> Request) {
        self.request = argument(std::mem::take(&mut self.request));
    }
}

/// The dimensions of an argument, which need not be said where the model says the same.
pub(super) fn open_part<'d>(declared: &[u32], dimensions: &'d [u32]) -> &'d [u32] {
    if declared == dimensions { &[] } else { dimensions }
}

fn unknown_size(direction: &str) -> RuntimeError {
    RuntimeError::failed(format!(
        "an {direction} is in the memory of a device that does not execute this, and its size is not known"
    ))
}
