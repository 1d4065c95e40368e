//! Executions on a device of an older version.

use std::sync::Arc;
use std::time::Duration;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::versions::v1_0::{ErrorStatus as OldStatus, Request};
use nnhal_hal::{
    DataLocation, ErrorStatus, Failure, HalVersion, MeasureTiming, MemoryPool, OperandType, OutputShape,
    RequestArgument, Shape, Timing,
};

use super::RequestMemories;
use super::execution_callback::{self, Executed, Told};
use super::failure::{refused, silence};
use super::preparation_callback::Prepared;
use crate::{Control, Execution, InputSource, PreparedModel, exhaustion};

/// Room for an output whose dimensions nobody knows, in bytes; the device says if it needs more.
const FIRST_ROOM: usize = 1024;
/// How much more room such an output gets each time, if the device cannot say how much it needs.
const MORE_ROOM: usize = 8;
/// Most room that such an output gets without the device's saying how much it needs: 64 MiB.
const MOST_GUESSED_ROOM: usize = 1 << 26;
/// Most room for an output of unknown dimensions: 1 GiB.
const MOST_ROOM: usize = 1 << 30;

/// A model that a device of an older version has prepared.
#[derive(Clone, Debug)]
pub(super) struct OlderModel(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    device: String,
    version: HalVersion,
    model: Arc<ValidModel>,
    prepared: Prepared,
}

impl OlderModel {
    pub(super) fn new(
        device: &str,
        version: HalVersion,
        model: Arc<ValidModel>,
        prepared: Prepared,
    ) -> OlderModel {
        OlderModel(Arc::new(Inner {
            device: device.to_owned(),
            version,
            model,
            prepared,
        }))
    }
}

impl PreparedModel for OlderModel {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        let main = &self.0.model.model().main;
        let operands = |indexes: &[u32]| -> Vec<Argument> {
            let operands = indexes
                .iter()
                .filter_map(|&index| main.operands.get(index as usize));
            operands
                .map(|operand| Argument {
                    operand_type: operand.operand_type,
                    shape: Shape::new(&operand.dimensions).unwrap_or_default(),
                    found: Shape::SCALAR,
                    bytes: Vec::new(),
                    is_omitted: false,
                })
                .collect()
        };
        Ok(Box::new(OlderExecution {
            inputs: operands(&main.input_indexes),
            outputs: operands(&main.output_indexes),
            model: self.clone(),
        }))
    }
}

/// An input or output.
#[derive(Debug)]
struct Argument {
    operand_type: OperandType,
    /// Its dimensions; of an output those that are known before it is computed.
    shape: Shape,
    /// Of an output: the dimensions that the last run found.
    found: Shape,
    bytes: Vec<u8>,
    is_omitted: bool,
}

#[derive(Debug)]
struct OlderExecution {
    model: OlderModel,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
}

/// A failure with the place where it was seen.
fn no_such(side: &str, index: usize) -> Failure {
    Failure::invalid_argument(format!("there is no {side} {index}"))
}

fn resize(bytes: &mut Vec<u8>, size: usize) -> Result<(), Failure> {
    let more = size.saturating_sub(bytes.len());
    bytes.try_reserve_exact(more).map_err(|_| {
        let detail = format!("{size} bytes of memory cannot be had for an argument");
        Failure::new(exhaustion(size as u64), detail)
    })?;
    bytes.resize(size, 0);
    Ok(())
}

impl OlderExecution {
    /// The exact size of a value of this type with these dimensions, where 0 is an extent.
    fn exact_size(&self, ty: OperandType, shape: &Shape) -> Option<usize> {
        let layouts = self.model.0.model.layouts();
        let element = match layouts.get(ty) {
            Some(layout) => layout.element_size,
            // The one OEM type that has a size.
            None if ty == OperandType::TENSOR_OEM_BYTE => 1,
            None => return None,
        };
        shape.byte_size(element).ok()
    }

    /// Whether all dimensions of an output are known before it is computed.
    fn is_known(&self, output: &Argument) -> bool {
        let is_tensor = self.model.0.model.layouts().is_tensor(output.operand_type);
        output.shape.is_fully_specified() && (!is_tensor || output.shape.rank() > 0)
    }

    /// Gives every output its room.
    fn make_room(&mut self) -> Result<(), Failure> {
        for index in 0..self.outputs.len() {
            let output = &self.outputs[index];
            let room = if self.is_known(output) {
                let size = self.exact_size(output.operand_type, &output.shape);
                size.ok_or_else(|| {
                    Failure::invalid_argument(format!(
                        "output {index} is {} with dimensions {:?}, whose size is not known",
                        output.operand_type, output.shape
                    ))
                })?
            } else if self.model.0.version < HalVersion::V1_2 {
                return Err(Failure::invalid_argument(format!(
                    "output {index} has dimensions {:?}; device {} is of HAL {}, which cannot find them: the request \
                     must give every dimension of an output",
                    output.shape, self.model.0.device, self.model.0.version
                )));
            } else {
                output.bytes.len().max(FIRST_ROOM)
            };
            resize(&mut self.outputs[index].bytes, room)?;
        }
        Ok(())
    }

    /// Has the device execute once: its answer, and the arguments' bytes, which are gone if it still works on
    /// them.
    fn execute(&mut self, control: &Control<'_>) -> Result<Executed, Failure> {
        let arguments = || self.inputs.iter().chain(&self.outputs);
        let pools = arguments().map(|argument| MemoryPool {
            size: argument.bytes.len() as u64,
        });
        let mut described = arguments()
            .enumerate()
            .map(|(pool, argument)| argument.in_pool(pool));
        let request = Request {
            inputs: described.by_ref().take(self.inputs.len()).collect(),
            outputs: described.collect(),
            pools: pools.collect(),
        };
        let all = self.inputs.iter_mut().chain(&mut self.outputs);
        let memories = RequestMemories::new(all.map(|argument| std::mem::take(&mut argument.bytes)));
        let executed = self.model.0.execute(&request, &memories, control)?;
        let all = self.inputs.iter_mut().chain(&mut self.outputs);
        for (argument, bytes) in all.zip(memories.take_back()) {
            argument.bytes = bytes;
        }
        Ok(executed)
    }

    /// Takes over the shapes of a run that succeeded.
    fn take_shapes(&mut self, shapes: &[OutputShape]) -> Result<(), Failure> {
        let wrong = |detail: String| {
            Err(Failure::general(format!(
                "device {} {detail}",
                self.model.0.device
            )))
        };
        if shapes.is_empty() {
            if let Some(index) = self.outputs.iter().position(|output| !self.is_known(output)) {
                return wrong(format!("did not say which dimensions output {index} has"));
            }
            for output in &mut self.outputs {
                output.found = output.shape;
            }
            return Ok(());
        }
        if shapes.len() != self.outputs.len() {
            let expected = self.outputs.len();
            return wrong(format!("gave {} shapes for {expected} outputs", shapes.len()));
        }
        for (index, told) in shapes.iter().enumerate() {
            let output = &self.outputs[index];
            let found = Shape::new(&told.dimensions).map_err(|error| Failure::general(error.to_string()))?;
            let size = self.exact_size(output.operand_type, &found);
            let fits = told.is_sufficient && size.is_some_and(|size| size <= output.bytes.len());
            if !output.shape.allows(&found) || !fits {
                return wrong(format!(
                    "computed output {index} and says that it has dimensions {found:?}, sufficient {}; there are {} \
                     bytes of room, and it should have dimensions {:?}",
                    told.is_sufficient,
                    output.bytes.len(),
                    output.shape
                ));
            }
            self.outputs[index].found = found;
        }
        Ok(())
    }

    /// Gives more room to outputs that had too little.
    fn enlarge(&mut self, shapes: &[OutputShape]) -> Result<(), Failure> {
        let device = &self.model.0.device;
        if shapes.len() != self.outputs.len() {
            return Err(Failure::general(format!(
                "device {device} says that an output has too little room, but gave {} shapes for {} outputs",
                shapes.len(),
                self.outputs.len()
            )));
        }
        let mut has_grown = false;
        for (index, told) in shapes.iter().enumerate().filter(|(_, told)| !told.is_sufficient) {
            let output = &self.outputs[index];
            let room = output.bytes.len();
            let found = Shape::new(&told.dimensions).unwrap_or_default();
            let is_found = found.rank() > 0 && found.is_fully_specified();
            let (needed, most) = match self.exact_size(output.operand_type, &found) {
                Some(size) if is_found => (size, MOST_ROOM),
                _ => (room.saturating_mul(MORE_ROOM), MOST_GUESSED_ROOM),
            };
            if self.is_known(output) || needed <= room || needed > most {
                return Err(Failure::general(format!(
                    "device {} says that output {index} with dimensions {found:?} has too little room, but it has \
                     {room} bytes",
                    self.model.0.device
                )));
            }
            resize(&mut self.outputs[index].bytes, needed)?;
            has_grown = true;
        }
        if has_grown {
            return Ok(());
        }
        let device = &self.model.0.device;
        Err(Failure::general(format!(
            "device {device} says that an output has too little room, but not which"
        )))
    }
}

impl Argument {
    /// The argument of a request, in a pool of its own.
    fn in_pool(&self, pool: usize) -> RequestArgument {
        if self.is_omitted {
            return RequestArgument {
                has_no_value: true,
                ..RequestArgument::default()
            };
        }
        RequestArgument {
            has_no_value: false,
            location: DataLocation {
                pool_index: u32::try_from(pool).unwrap_or(u32::MAX),
                offset: 0,
                length: u32::try_from(self.bytes.len()).unwrap_or(u32::MAX),
            },
            dimensions: self.shape.dims().to_vec(),
        }
    }
}

impl Inner {
    /// Has the device execute a request, and waits for the end.
    fn execute(
        &self,
        request: &Request,
        memories: &RequestMemories,
        control: &Control<'_>,
    ) -> Result<Executed, Failure> {
        let measure = if control.is_measured() {
            MeasureTiming::Yes
        } else {
            MeasureTiming::No
        };
        let deadline = control.deadline();
        let (callback, awaited) = execution_callback::executing();
        let (method, launched) = match &self.prepared {
            Prepared::V1_2(prepared) if deadline.is_none() => {
                return Ok(prepared.execute_synchronously(request, memories, measure));
            }
            // Only what runs elsewhere can be left alone when the deadline passes.
            Prepared::V1_2(prepared) => (
                "execute_1_2",
                prepared.execute_1_2(request, memories, measure, callback),
            ),
            Prepared::V1_0(prepared) => ("execute", prepared.execute(request, memories, callback)),
        };
        if launched != OldStatus::None {
            return Err(refused(&self.device, method, launched));
        }
        match awaited.wait(deadline) {
            Ok(Told::V1_2(executed)) => Ok(executed),
            // Without shapes it cannot say which output.
            Ok(Told::V1_0(status)) => Ok(Executed::failed(status)),
            Err(why) => Err(silence(&self.device, method, why)),
        }
    }
}

impl Execution for OlderExecution {
    fn set_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        _: &Control<'_>,
    ) -> Result<(), Failure> {
        let ty = self
            .inputs
            .get(index)
            .map(|input| input.operand_type)
            .ok_or_else(|| no_such("input", index))?;
        let size = self.exact_size(ty, shape).ok_or_else(|| {
            Failure::invalid_argument(format!(
                "input {index} is {ty} with dimensions {shape:?}, whose size is not known"
            ))
        })?;
        let input = &mut self.inputs[index];
        input.is_omitted = false;
        input.shape = *shape;
        resize(&mut input.bytes, size)?;
        source.read(0, &mut input.bytes)
    }

    fn omit_input(&mut self, index: usize) -> Result<(), Failure> {
        let input = self
            .inputs
            .get_mut(index)
            .ok_or_else(|| no_such("input", index))?;
        input.is_omitted = true;
        input.bytes.clear();
        Ok(())
    }

    fn expect_output(&mut self, index: usize, shape: &Shape) {
        if let Some(output) = self.outputs.get_mut(index) {
            output.shape = *shape;
        }
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        control.checkpoint()?;
        self.make_room()?;
        loop {
            let Executed {
                status,
                output_shapes,
                timing,
            } = self.execute(control)?;
            match status {
                OldStatus::None => {
                    self.take_shapes(&output_shapes)?;
                    return Ok(on_device(timing));
                }
                // Every round has more room than the last, up to a limit.
                OldStatus::OutputInsufficientSize if self.model.0.version >= HalVersion::V1_2 => {
                    self.enlarge(&output_shapes)?;
                    control.checkpoint()?;
                }
                OldStatus::OutputInsufficientSize => {
                    return Err(Failure::new(
                        ErrorStatus::GeneralFailure,
                        format!(
                            "device {} says that an output has too little room, though every output has as much as its \
                             dimensions say",
                            self.model.0.device
                        ),
                    ));
                }
                other => return Err(refused(&self.model.0.device, "the execution", other)),
            }
        }
    }

    fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        let output = self.outputs.get(index)?;
        let size = self.exact_size(output.operand_type, &output.found)?;
        Some((&output.found, output.bytes.get(..size)?))
    }

    fn release_memory(&mut self) {
        for argument in self.inputs.iter_mut().chain(&mut self.outputs) {
            argument.bytes = Vec::new();
        }
    }
}

/// The time on the device, if it was told.
fn on_device(timing: Timing) -> Option<Duration> {
    (timing.time_on_device_us != u64::MAX).then(|| Duration::from_micros(timing.time_on_device_us))
}
