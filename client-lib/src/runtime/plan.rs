//! The steps of a compiled model, and what lies between them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use nnhal::diag::tags;
use nnhal::diag::trace::SpanKind;
use nnhal_hal::validate::Direction;
use nnhal_hal::{
    BufferDesc, BufferRole, CacheToken, ExecutionPreference, Extension, OperandLifeTime, OperandType,
    Priority, Shape, TypeLayouts,
};
use nnhal_os::time::Deadline;

use super::caching::StepCache;
use super::device::RuntimeDevice;
use super::explanation::StepExplanation;
use super::partition::Part;
use super::result::{RuntimeError, RuntimeResult};
use super::step::{How, Prepared, Slot, Step, StepDescription};
use super::step_model::StepModel;
use super::value_store::{Backing, Description, ValueStore};
use crate::layout::Layout;
use crate::model::Model;
use crate::prepared_model::PreparedModel;
use crate::trace;

/// The smallest value between steps that is worth memory of a device's own.
const MIN_RESIDENT: u64 = 16 * 1024;

/// The steps of a compiled model, in order.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) temporaries: Vec<Temporary>,
    /// Bytes of memory for all temporaries.
    pub(super) temporary_bytes: u64,
}

/// What one step computes for others.
#[derive(Clone, Debug)]
pub(super) struct Temporary {
    /// Its place in the memory of all temporaries.
    pub(super) range: std::ops::Range<u64>,
    operand_type: OperandType,
    shape: Shape,
    /// The device in which it stays, if nobody else needs it.
    pub(super) home: Option<RuntimeDevice>,
}

/// What all steps of a plan are made from.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) model: &'a Model,
    pub(super) layouts: &'a TypeLayouts,
    pub(super) devices: &'a [RuntimeDevice],
    pub(super) extensions: Arc<[Extension]>,
    pub(super) preference: ExecutionPreference,
    pub(super) priority: Priority,
    pub(super) caching: Option<&'a (PathBuf, CacheToken)>,
    pub(super) deadline: Deadline,
}

impl Plan {
    /// The whole model as one step.
    pub(super) fn whole(source: &Source<'_>, device: &RuntimeDevice) -> RuntimeResult<Plan> {
        let main = &source.model.hal().main;
        let description = StepDescription {
            device: device.clone(),
            model: source.model.clone(),
            operations: (0..main.operations.len()).collect(),
            inputs: (0..main.input_indexes.len()).map(Slot::Input).collect(),
            outputs: (0..main.output_indexes.len()).map(Slot::Output).collect(),
        };
        let how = source.how(device, &[]);
        let _prepares = trace::span(SpanKind::CompileStep, 0);
        Ok(Plan {
            steps: vec![Step::new(description, how, source.deadline)?],
            temporaries: Vec::new(),
            temporary_bytes: 0,
        })
    }

    /// The model in parts. Without parts of several devices it is one step.
    ///
    /// # Errors
    /// [`super::ResultCode::OpFailed`] if a value between steps has no known size; what preparing fails with.
    pub(super) fn of_parts(source: &Source<'_>, parts: &[Part]) -> RuntimeResult<Plan> {
        if let [only] = parts {
            return Plan::whole(source, &source.devices[only.device]);
        }
        let mut between = Between::new(source, parts);
        let mut descriptions = Vec::with_capacity(parts.len());
        for (index, part) in parts.iter().enumerate() {
            let is_exported = |operand: u32| between.is_exported(operand, index);
            let step = StepModel::extract(source.model, &part.operations, &is_exported)?;
            let inputs = between.slots(&step.inputs)?;
            let outputs = between.slots(&step.outputs)?;
            descriptions.push(StepDescription {
                device: source.devices[part.device].clone(),
                model: step.model,
                operations: part.operations.clone(),
                inputs,
                outputs,
            });
        }
        let steps = descriptions.into_iter().enumerate().map(|(index, description)| {
            let _prepares = trace::span(SpanKind::CompileStep, index as u64);
            let how = source.how(&description.device, &description.operations);
            Step::new(description, how, source.deadline)
        });
        let mut plan = Plan {
            steps: steps.collect::<RuntimeResult<_>>()?,
            temporaries: between.temporaries,
            temporary_bytes: between.layout.end,
        };
        plan.find_homes(source.layouts);
        Ok(plan)
    }

    /// Finds the large temporaries that one device writes and reads alone, and that it has memory of its own
    /// for.
    fn find_homes(&mut self, layouts: &TypeLayouts) {
        for index in 0..self.temporaries.len() {
            let Range { start, end } = self.temporaries[index].range;
            let home = self.the_device(index).filter(|_| end - start >= MIN_RESIDENT);
            let Some(home) = home else { continue };
            self.temporaries[index].home = Some(home);
            if let Err(error) = self.resident(index, layouts) {
                tracing::debug!(target: tags::COMPILATION, %error, "a value between steps lies in shared memory");
                self.temporaries[index].home = None;
            }
        }
    }

    /// The driver's device that alone uses a temporary.
    fn the_device(&self, index: usize) -> Option<RuntimeDevice> {
        let mut users = self.users(Slot::Temporary(index)).map(|(step, ..)| &step.device);
        let first = users.next()?;
        (!first.is_cpu() && users.all(|device| device == first)).then(|| first.clone())
    }

    /// The steps that use a value, the argument that it is there, and whether they read it.
    fn users(&self, slot: Slot) -> impl Iterator<Item = (&Step, usize, Direction)> {
        self.steps.iter().flat_map(move |step| {
            let place = |slots: &[Slot]| slots.iter().position(|known| *known == slot);
            let input = place(&step.inputs).map(|at| (step, at, Direction::Input));
            let output = place(&step.outputs).map(|at| (step, at, Direction::Output));
            input.into_iter().chain(output)
        })
    }

    /// Memory of a temporary's own device for it, if it stays there.
    ///
    /// # Errors
    /// What the device refuses it with.
    pub(super) fn resident(&self, index: usize, layouts: &TypeLayouts) -> RuntimeResult<Option<ValueStore>> {
        let temporary = &self.temporaries[index];
        let Some(device) = &temporary.home else {
            return Ok(None);
        };
        let mut prepared = Vec::new();
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        for (step, at, direction) in self.users(Slot::Temporary(index)) {
            let Prepared::Driver(model) = step.prepared() else {
                continue;
            };
            let role = BufferRole {
                model_index: prepared.len() as u32,
                io_index: at as u32,
                frequency: 1.0,
            };
            prepared.push(model);
            match direction {
                Direction::Input => inputs.push(role),
                Direction::Output => outputs.push(role),
            }
        }
        let desc = BufferDesc {
            dimensions: temporary.shape.dims().to_vec(),
        };
        let prepared: Vec<&PreparedModel> = prepared.iter().collect();
        let buffer = device.open()?.allocate(&desc, &prepared, &inputs, &outputs)?;
        let description = Description {
            operand_type: temporary.operand_type,
            layouts: layouts.clone(),
            dimensions: temporary.shape,
        };
        let device = device.clone();
        Ok(Some(ValueStore::new(
            description,
            Backing::Device { buffer, device },
        )))
    }

    /// The prepared models on a device, with the argument of each, that an input or output of the whole model
    /// is. An output may be an input of other steps.
    ///
    /// # Errors
    /// Some of them are elsewhere.
    pub(super) fn prepared_roles(
        &self,
        index: usize,
        direction: Direction,
        device: &RuntimeDevice,
    ) -> RuntimeResult<Vec<(PreparedModel, usize, Direction)>> {
        let mut found = Vec::new();
        for (step, at, side) in self.arguments(index, direction) {
            match step.prepared() {
                Prepared::Driver(prepared) if step.device == *device => found.push((prepared, at, side)),
                _ => {
                    return Err(RuntimeError::failed(format!(
                        "{direction} {index} is used on {} too, and no memory belongs to two devices",
                        step.device.name()
                    )));
                }
            }
        }
        Ok(found)
    }

    /// The steps that use an input or output of the whole model, the argument that it is there, and whether
    /// they read it: an output, too, may be read by steps after the one that writes it.
    pub(super) fn arguments(
        &self,
        index: usize,
        direction: Direction,
    ) -> impl Iterator<Item = (&Step, usize, Direction)> {
        self.users(match direction {
            Direction::Input => Slot::Input(index),
            Direction::Output => Slot::Output(index),
        })
    }

    pub(super) fn explanations(&self) -> Vec<StepExplanation> {
        let bytes = |slots: &[Slot]| -> usize {
            let sizes = slots.iter().map(|slot| match slot {
                Slot::Temporary(index) => {
                    let range = &self.temporaries[*index].range;
                    (range.end - range.start) as usize
                }
                _ => 0,
            });
            sizes.sum()
        };
        let kept = |slots: &[Slot]| -> usize {
            let is_kept = |slot: &Slot| match slot {
                Slot::Temporary(index) => self.temporaries[*index].home.is_some(),
                _ => false,
            };
            bytes(&slots.iter().copied().filter(is_kept).collect::<Vec<_>>())
        };
        let steps = self.steps.iter();
        steps
            .map(|step| StepExplanation {
                device: step.device.name().to_owned(),
                operations: step.operations.clone(),
                bytes_in: bytes(&step.inputs),
                bytes_out: bytes(&step.outputs),
                bytes_kept: kept(&step.outputs),
            })
            .collect()
    }
}

impl Source<'_> {
    /// How a step of these operations, none for the whole model, is prepared on a device.
    fn how(&self, device: &RuntimeDevice, operations: &[usize]) -> How {
        let codes = (self.preference, self.priority);
        How {
            preference: self.preference,
            priority: self.priority,
            cache: self.caching.map(|(directory, token)| {
                StepCache::new(directory, token, operations, &device.info(), codes)
            }),
            extensions: Arc::clone(&self.extensions),
        }
    }
}

/// The values that steps pass to each other.
struct Between<'a> {
    source: &'a Source<'a>,
    /// By operand: the part that writes it.
    writer: Vec<Option<usize>>,
    /// By operand: whether another part than its writer reads it.
    is_read_elsewhere: Vec<bool>,
    /// By operand.
    indexes: Vec<Option<usize>>,
    temporaries: Vec<Temporary>,
    layout: Layout,
}

impl<'a> Between<'a> {
    fn new(source: &'a Source<'a>, parts: &[Part]) -> Between<'a> {
        let main = &source.model.hal().main;
        let mut writer = vec![None; main.operands.len()];
        let mut is_read_elsewhere = vec![false; main.operands.len()];
        // Writers come before their readers.
        for (index, part) in parts.iter().enumerate() {
            for &operation in &part.operations {
                for &output in &main.operations[operation].outputs {
                    writer[output as usize] = Some(index);
                }
            }
        }
        for (index, part) in parts.iter().enumerate() {
            for &operation in &part.operations {
                for &input in &main.operations[operation].inputs {
                    if writer[input as usize].is_some_and(|writer| writer != index) {
                        is_read_elsewhere[input as usize] = true;
                    }
                }
            }
        }
        Between {
            source,
            writer,
            is_read_elsewhere,
            indexes: vec![None; main.operands.len()],
            temporaries: Vec::new(),
            layout: Layout::default(),
        }
    }

    /// Whether a value that a part writes is needed outside of it.
    fn is_exported(&self, operand: u32, part: usize) -> bool {
        let is_output = self.source.model.hal().main.operands[operand as usize].lifetime
            == OperandLifeTime::SubgraphOutput;
        self.writer[operand as usize] == Some(part) && (is_output || self.is_read_elsewhere[operand as usize])
    }

    fn slots(&mut self, operands: &[u32]) -> RuntimeResult<Vec<Slot>> {
        operands.iter().map(|&operand| self.slot(operand)).collect()
    }

    fn slot(&mut self, operand: u32) -> RuntimeResult<Slot> {
        let main = &self.source.model.hal().main;
        let place = |indexes: &[u32]| indexes.iter().position(|&index| index == operand);
        let found = place(&main.input_indexes)
            .map(Slot::Input)
            .or_else(|| place(&main.output_indexes).map(Slot::Output));
        if let Some(slot) = found {
            return Ok(slot);
        }
        if let Some(index) = self.indexes[operand as usize] {
            return Ok(Slot::Temporary(index));
        }
        let described = &main.operands[operand as usize];
        let shape = Shape::new(&described.dimensions).unwrap_or_default();
        let size = self.source.layouts.byte_size(described.operand_type, &shape);
        let size = size.ok_or_else(|| {
            RuntimeError::failed(format!(
                "operand {operand}, {} with dimensions {:?}, lies between two devices, and its size is not known \
                 before the execution",
                described.operand_type, described.dimensions
            ))
        })?;
        let index = self.temporaries.len();
        self.temporaries.push(Temporary {
            range: self.layout.add(size as u64),
            operand_type: described.operand_type,
            shape,
            home: None,
        });
        self.indexes[operand as usize] = Some(index);
        Ok(Slot::Temporary(index))
    }
}
