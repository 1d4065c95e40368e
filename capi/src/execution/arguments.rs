//! Arguments of executions: what the caller sets, checked against the model as far as it can be before the
//! run.

use std::sync::Arc;

use nnhal_client::TensorType;
use nnhal_client::runtime::{self, DeviceMemory, Direction, RegisteredRun};
use nnhal_hal::{Operand, OperandType, Shape};

use crate::extension;
use crate::ffi::{CallerBuffer, CallerBytes, overlap};
use crate::memory::{Memory, Shared};
use crate::result::{Failure, Outcome};

/// One argument as the caller sets it.
#[derive(Debug)]
pub(crate) enum NewArgument {
    /// Left out.
    Omitted,
    Input(CallerBytes),
    Output(CallerBuffer),
    Memory {
        memory: Arc<Memory>,
        offset: usize,
        length: usize,
    },
}

/// Where an argument is.
#[derive(Debug)]
pub(super) enum Place {
    Omitted,
    Input(CallerBytes),
    Output(CallerBuffer),
    Shared(Shared),
    Device(DeviceMemory),
}

/// An argument of an execution.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) place: Place,
    /// Those that the caller gave with it; empty for those of the model.
    pub(super) dimensions: Vec<u32>,
    /// Whether all dimensions are known.
    pub(super) is_fully_specified: bool,
}

/// What the checks of an argument need to know.
#[derive(Debug)]
pub(super) struct Checks<'a> {
    pub(super) compilation: &'a runtime::Compilation,
    pub(super) direction: Direction,
    pub(super) index: usize,
    /// Whether an argument may be longer than its value.
    pub(super) may_be_padded: bool,
}

impl Checks<'_> {
    /// Checks an argument, which may come with a type.
    pub(super) fn argument(&self, argument: NewArgument, declared: Option<&Operand>) -> Outcome<Argument> {
        let ty = self.model_type()?;
        // What a device memory is for is known beside the model, and its value has all dimensions.
        let described = match &argument {
            NewArgument::Memory { memory, .. } => memory.described_dimensions(),
            _ => None,
        };
        let may_be_open = matches!(argument, NewArgument::Omitted) || described.is_some();
        let shape = self.shape(ty, declared, described)?;
        let is_scalar = ty.operand_type().is_scalar();
        let is_fully_specified = is_scalar || (shape.rank() > 0 && shape.is_fully_specified());
        if self.direction == Direction::Input && !may_be_open && !is_fully_specified && !self.is_opaque(ty)? {
            return Err(self.wrong(format!(
                "has dimensions {shape:?}; those that the model leaves open must come with the argument"
            )));
        }
        let size = self.size(ty, &shape)?;
        let place = match argument {
            NewArgument::Omitted => Place::Omitted,
            NewArgument::Input(bytes) => {
                let length = self.length(bytes.len(), size)?;
                Place::Input(bytes.first(length))
            }
            NewArgument::Output(room) => {
                let length = self.length(room.len(), size)?;
                Place::Output(room.first(length))
            }
            NewArgument::Memory {
                memory,
                offset,
                length,
            } => match &*memory {
                Memory::Shared(_) => {
                    let mut shared = memory.part(offset, length)?;
                    shared.length = self.length(length, size)?;
                    Place::Shared(shared)
                }
                Memory::Device(memory) => {
                    self.expect_device_memory(memory, offset, length)?;
                    Place::Device(memory.clone())
                }
            },
        };
        let dimensions = declared.map(|declared| declared.dimensions.clone());
        Ok(Argument {
            place,
            dimensions: dimensions.unwrap_or_default(),
            is_fully_specified,
        })
    }

    fn model_type(&self) -> Outcome<&TensorType> {
        let types = match self.direction {
            Direction::Input => self.compilation.inputs(),
            Direction::Output => self.compilation.outputs(),
        };
        types.get(self.index).ok_or_else(|| {
            Failure::bad_data(format!(
                "there is no {} {}, the model has {}",
                self.direction,
                self.index,
                types.len()
            ))
        })
    }

    /// The dimensions of the model, of the argument and of the memory together.
    fn shape(
        &self,
        ty: &TensorType,
        declared: Option<&Operand>,
        described: Option<&[u32]>,
    ) -> Outcome<Shape> {
        let shape = self.declared_shape(ty, declared)?;
        let Some(described) = described else {
            return Ok(shape);
        };
        let of_memory = Shape::new(described).map_err(|error| self.wrong(error.to_string()))?;
        shape.combine(&of_memory).ok_or_else(|| {
            self.wrong(format!(
                "has dimensions {shape:?}, its memory was described for {of_memory:?}"
            ))
        })
    }

    /// The dimensions of the model and of the argument together.
    fn declared_shape(&self, ty: &TensorType, declared: Option<&Operand>) -> Outcome<Shape> {
        let of = |dimensions: &[u32]| Shape::new(dimensions).map_err(|error| self.wrong(error.to_string()));
        let shape = of(ty.dimensions())?;
        let Some(declared) = declared else {
            return Ok(shape);
        };
        let layouts = extension::layouts(declared.operand_type)?;
        nnhal_hal::validate::check_declaration(declared, &layouts).map_err(|text| self.wrong(text))?;
        if declared.operand_type != ty.operand_type() {
            return Err(self.wrong(format!(
                "comes with the type {}, the model has {}",
                declared.operand_type,
                ty.operand_type()
            )));
        }
        let own = of(&declared.dimensions)?;
        // Unlike in a request of the HAL, a type without dimensions says that they are open.
        if shape.allows(&own) {
            return Ok(own);
        }
        Err(self.wrong(format!(
            "comes with dimensions {own:?}, the model has {shape:?}, where only a 0 may be replaced"
        )))
    }

    /// The exact size of the value, where it is known.
    fn size(&self, ty: &TensorType, shape: &Shape) -> Outcome<Option<usize>> {
        let layouts = extension::layouts(ty.operand_type())?;
        Ok(layouts.byte_size(ty.operand_type(), shape))
    }

    /// Whether the type's values have whatever size they have.
    fn is_opaque(&self, ty: &TensorType) -> Outcome<bool> {
        let ty = ty.operand_type();
        Ok(ty.is_oem() || ty == OperandType::SUBGRAPH || extension::layouts(ty)?.is_scalar(ty))
    }

    /// How many bytes of those given are the argument's.
    fn length(&self, length: usize, size: Option<usize>) -> Outcome<usize> {
        match size {
            Some(size) if length == size => Ok(size),
            Some(size) if length > size && self.may_be_padded => Ok(size),
            Some(size) => Err(self.wrong(format!("is given {length} bytes, its value has {size}"))),
            None => Ok(length),
        }
    }

    fn expect_device_memory(&self, memory: &DeviceMemory, offset: usize, length: usize) -> Outcome {
        if offset != 0 || length != 0 {
            return Err(self.wrong(format!(
                "is {length} bytes from {offset} of a memory that was made from a description; both must be 0"
            )));
        }
        if memory.has_role(self.compilation, self.index, self.direction) {
            return Ok(());
        }
        Err(self.wrong("is in a memory whose description does not have it"))
    }

    fn wrong(&self, text: impl AsRef<str>) -> Failure {
        Failure::bad_data(format!("{} {} {}", self.direction, self.index, text.as_ref()))
    }
}

/// All arguments of an execution.
#[derive(Debug)]
pub(super) struct Arguments {
    pub(super) inputs: Vec<Argument>,
    pub(super) outputs: Vec<Argument>,
    /// Whether outputs share bytes with each other or with inputs.
    pub(super) is_overlapping: bool,
    /// The execution with them, as the burst knows it that has computed it again.
    pub(super) registered: Option<RegisteredRun>,
}

impl Arguments {
    pub(super) fn new(inputs: Vec<Argument>, outputs: Vec<Argument>) -> Arguments {
        let read: Vec<CallerBytes> = inputs
            .iter()
            .filter_map(|argument| match argument.place {
                Place::Input(bytes) => Some(bytes),
                _ => None,
            })
            .collect();
        let written: Vec<&CallerBuffer> = outputs
            .iter()
            .filter_map(|argument| match &argument.place {
                Place::Output(room) => Some(room),
                _ => None,
            })
            .collect();
        Arguments {
            is_overlapping: overlap(&read, &written),
            registered: None,
            inputs,
            outputs,
        }
    }
}
