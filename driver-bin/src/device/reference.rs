//! `nnhal-reference`: the reference kernels of `nnhal-cpu` as a device.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use nnhal::hal::{
    Capabilities, ConstantPools, DeviceInfo, DeviceType, ErrorStatus, HalVersion, NumberOfCacheFiles,
    OperandPerformance, OperandType, Operation, PerformanceInfo, Shape, Subgraph, SubgraphIndex,
};
use nnhal::validate::ValidModel;
use nnhal::wire::{Failure, OperationSupport, Place};
use nnhal_cpu::executor::ProgramError;
use nnhal_cpu::{AlignedBuffer, ExecutionError, Interrupt, Interrupted, Program, RunOptions};

use super::memory::copy_range;
use super::{
    Control, Device, DeviceMemory, DeviceOptions, Execution, Interruption, PrepareOptions, PreparedModel,
};

/// The device's name.
pub const NAME: &str = "nnhal-reference";

/// Makes the device. It has no options.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for any option.
pub fn create(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    if let Some(key) = options.values.keys().next() {
        return Err(Failure::invalid_argument(format!(
            "device {NAME} has no option {key:?}"
        )));
    }
    Ok(Arc::new(ReferenceDevice { info: info() }))
}

fn info() -> DeviceInfo {
    // Figures are relative to the reference CPU implementation, which this is.
    let same = PerformanceInfo {
        exec_time: 1.0,
        power_usage: 1.0,
    };
    let operand_performance = OperandType::ALL
        .iter()
        .filter(|ty| **ty != OperandType::SUBGRAPH && !ty.is_oem())
        .map(|&operand_type| OperandPerformance {
            operand_type,
            info: same,
        })
        .collect();
    DeviceInfo {
        name: NAME.to_owned(),
        version: format!("reference {}", env!("CARGO_PKG_VERSION")),
        device_type: DeviceType::Cpu,
        hal_version: HalVersion::V1_3,
        capabilities: Capabilities {
            relaxed_float32_to_float16_performance_scalar: same,
            relaxed_float32_to_float16_performance_tensor: same,
            operand_performance,
            if_performance: same,
            while_performance: same,
        },
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    }
}

#[derive(Debug)]
struct ReferenceDevice {
    info: DeviceInfo,
}

impl Device for ReferenceDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supported_operations(&self, model: &ValidModel, _: &dyn ConstantPools) -> Vec<OperationSupport> {
        let main = &model.model().main;
        main.operations
            .iter()
            .map(|operation| match refusal(model, main, operation) {
                None => OperationSupport::Supported,
                Some(reason) => OperationSupport::Unsupported { reason },
            })
            .collect()
    }

    fn prepare(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        options.control.checkpoint()?;
        let program = Program::new(model, pools).map_err(|error| program_failure(&error))?;
        options.control.checkpoint()?;
        Ok(Arc::new(ReferenceModel {
            program: Arc::new(program),
        }))
    }

    fn upload(
        &self,
        size: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Failure>,
    ) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let mut memory = AlignedBuffer::new();
        memory
            .resize(size)
            .map_err(|error| Failure::new(ErrorStatus::ResourceExhaustedTransient, error.to_string()))?;
        fill(memory.bytes_mut())?;
        Ok(Arc::new(memory))
    }
}

/// Device buffers are the executor's own kind of memory, so that what one model computed is another's input in place.
impl DeviceMemory for AlignedBuffer {
    fn size(&self) -> usize {
        self.bytes().len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Failure> {
        copy_range(self.bytes(), offset, out)
    }
}

fn aligned(memory: Arc<dyn DeviceMemory>) -> Option<Arc<AlignedBuffer>> {
    let memory: Arc<dyn Any + Send + Sync> = memory;
    memory.downcast().ok()
}

/// Why an operation cannot run here, everything inside its subgraphs included.
fn refusal(model: &ValidModel, graph: &Subgraph, operation: &Operation) -> Option<String> {
    if let Some(reason) = Program::refusal(operation.operation_type) {
        return Some(reason);
    }
    let mut seen = vec![false; model.model().referenced.len()];
    let mut pending = referenced(graph, operation);
    while let Some(index) = pending.pop() {
        let (Some(inner), Some(seen)) = (model.model().referenced.get(index), seen.get_mut(index)) else {
            continue;
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        for (at, operation) in inner.operations.iter().enumerate() {
            if let Some(reason) = Program::refusal(operation.operation_type) {
                return Some(format!("operation {at} of referenced graph {index}: {reason}"));
            }
            pending.extend(referenced(inner, operation));
        }
    }
    None
}

/// The subgraphs that an operation refers to.
fn referenced(graph: &Subgraph, operation: &Operation) -> Vec<usize> {
    let operands = operation
        .inputs
        .iter()
        .filter_map(|&index| graph.operands.get(index as usize));
    operands
        .filter(|operand| operand.operand_type == OperandType::SUBGRAPH)
        .map(|operand| operand.location.offset as usize)
        .collect()
}

fn place(graph: SubgraphIndex, operation: usize) -> Place {
    let subgraph = match graph {
        SubgraphIndex::Main => None,
        SubgraphIndex::Referenced(index) => u32::try_from(index).ok(),
    };
    Place {
        subgraph,
        operation: u32::try_from(operation).ok(),
        ..Place::default()
    }
}

fn program_failure(error: &ProgramError) -> Failure {
    let failure = Failure::new(error.status(), error.to_string());
    match *error {
        ProgramError::Unsupported { graph, index, .. } => failure.at(place(graph, index)),
        ProgramError::OutOfMemory(_) => failure,
    }
}

fn execution_failure(error: &ExecutionError) -> Failure {
    let failure = Failure::new(error.status(), error.to_string());
    match *error {
        ExecutionError::Operation { graph, index, .. } | ExecutionError::LoopTimeout { graph, index, .. } => {
            failure.at(place(graph, index))
        }
        ExecutionError::Input { .. } | ExecutionError::Interrupted(_) => failure,
    }
}

#[derive(Debug)]
struct ReferenceModel {
    program: Arc<Program>,
}

impl PreparedModel for ReferenceModel {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        Ok(Box::new(ReferenceExecution {
            execution: nnhal_cpu::Execution::new(Arc::clone(&self.program)),
            spare: Vec::new(),
        }))
    }
}

/// Most buffers that one execution keeps for its next outputs.
const MAX_SPARE: usize = 8;

#[derive(Debug)]
struct ReferenceExecution {
    execution: nnhal_cpu::Execution,
    /// Memory of device buffers, for the next ones.
    spare: Vec<Arc<AlignedBuffer>>,
}

impl Execution for ReferenceExecution {
    fn input(&mut self, index: usize, shape: Shape) -> Result<&mut [u8], Failure> {
        self.execution
            .input(index, shape)
            .map_err(|error| execution_failure(&error))
    }

    fn omit_input(&mut self, index: usize) -> Result<(), Failure> {
        self.execution
            .omit_input(index)
            .map_err(|error| execution_failure(&error))
    }

    fn bind_input(
        &mut self,
        index: usize,
        shape: Shape,
        memory: &Arc<dyn DeviceMemory>,
    ) -> Result<(), Failure> {
        let Some(memory) = aligned(Arc::clone(memory)) else {
            return memory.read(0, self.input(index, shape)?);
        };
        self.execution
            .bind_input(index, shape, memory)
            .map_err(|error| execution_failure(&error))
    }

    fn take_output(&mut self, index: usize) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let mut taken = self.spare.pop().unwrap_or_default();
        // Spare memory is nobody else's; if it were, it would be theirs to keep.
        if Arc::get_mut(&mut taken).is_none() {
            taken = Arc::default();
        }
        let is_taken =
            Arc::get_mut(&mut taken).is_some_and(|memory| self.execution.exchange_output(index, memory));
        if is_taken {
            Ok(taken)
        } else {
            Err(Failure::general(format!("there is no output {index}")))
        }
    }

    fn recycle(&mut self, memory: Arc<dyn DeviceMemory>) {
        let spare = aligned(memory).filter(|memory| Arc::strong_count(memory) == 1);
        self.spare.extend(spare.filter(|_| self.spare.len() < MAX_SPARE));
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let checkpoints = Checkpoints(control);
        let options = RunOptions {
            interrupt: &checkpoints,
            loop_timeout: control.loop_timeout(),
        };
        self.execution
            .run(&options)
            .map_err(|error| execution_failure(&error))?;
        Ok(None)
    }

    fn output(&self, index: usize) -> Option<(Shape, &[u8])> {
        self.execution.output(index)
    }

    fn release_memory(&mut self) {
        self.spare.clear();
        self.execution.release_memory();
    }
}

/// The driver's checkpoints as the executor asks for them.
struct Checkpoints<'a>(&'a Control<'a>);

impl Interrupt for Checkpoints<'_> {
    fn check(&self) -> Result<(), Interrupted> {
        self.0.checkpoint().map_err(|interruption| match interruption {
            Interruption::DeadlineMissed => Interrupted::DeadlineMissed,
            Interruption::Cancelled => Interrupted::Cancelled,
        })
    }
}
