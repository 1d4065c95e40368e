//! The CPU as a device, twice: `nnhal-reference` computes with the reference kernels, `nnhal-cpu` with the
//! fast ones where there are any.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use nnhal_cpu::ProgramError;
use nnhal_cpu::{
    ExecutionError, Helpers, Interrupt, Interrupted, KernelSet, ObservedOperation, Observer, Program,
    RunOptions, Threads, compiled_form,
};
use nnhal_device::{
    CACHE_FILES, Compiled, Control, Device, DeviceMemory, DeviceOptions, Execution, InputSource,
    Interruption, PrepareOptions, PreparedModel, exhaustion,
};
use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ConstantPools, DeviceInfo, DeviceType, ExecutionPreference, Failure, HalVersion, OperandType, Operation,
    OperationSupport, Place, Priority, Shape, Subgraph, SubgraphIndex, tflite,
};
use nnhal_os::buffer::{AlignedBuffer, AlignedSlice, OutOfMemory};

use super::cpu_performance;

/// The device whose results are the reference's own.
pub const REFERENCE: &str = "nnhal-reference";

/// The device that is made for speed.
pub const FAST: &str = "nnhal-cpu";

/// Makes `nnhal-reference`. It has no options.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for any option.
pub fn create_reference(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    create(REFERENCE, KernelSet::Reference, options)
}

/// Makes `nnhal-cpu`. It has no options.
///
/// # Errors
///
/// `INVALID_ARGUMENT` for any option.
pub fn create_fast(options: &DeviceOptions) -> Result<Arc<dyn Device>, Failure> {
    create(FAST, KernelSet::Fast, options)
}

fn create(
    name: &'static str,
    kernels: KernelSet,
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, Failure> {
    if let Some(key) = options.values.keys().next() {
        return Err(Failure::invalid_argument(format!(
            "device {name} has no option {key:?}"
        )));
    }
    if kernels == KernelSet::Fast {
        nnhal_cpu::permit_tiles();
    }
    Ok(Arc::new(CpuDevice {
        info: info(name, kernels)?,
        kernels,
        helpers: Arc::new(Helpers::new(most_helpers())),
        nice_helpers: Arc::new(Helpers::nice(most_helpers())),
    }))
}

/// As many threads as there are processors, with the one that runs the execution.
fn most_helpers() -> usize {
    std::thread::available_parallelism().map_or(0, |processors| processors.get() - 1)
}

fn info(name: &str, kernels: KernelSet) -> Result<DeviceInfo, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    // What was compiled for other instructions, or laid out otherwise, is stale.
    let version = match kernels {
        KernelSet::Reference => format!("reference {version}"),
        KernelSet::Fast => format!("fast {version}, {}", compiled_form()),
    };
    Ok(DeviceInfo {
        name: name.to_owned(),
        version,
        device_type: DeviceType::Cpu,
        hal_version: HalVersion::LATEST,
        capabilities: match kernels {
            KernelSet::Reference => cpu_performance::reference(),
            KernelSet::Fast => cpu_performance::fast()?,
        },
        extensions: vec![tflite::extension()],
        cache_files: CACHE_FILES,
    })
}

#[derive(Debug)]
struct CpuDevice {
    info: DeviceInfo,
    kernels: KernelSet,
    helpers: Arc<Helpers>,
    /// Those of models of low priority.
    nice_helpers: Arc<Helpers>,
}

impl CpuDevice {
    fn model(&self, program: Program, options: &PrepareOptions<'_>) -> CpuModel {
        CpuModel {
            program: Arc::new(program),
            helpers: Arc::clone(match options.priority {
                Priority::Low => &self.nice_helpers,
                Priority::Medium | Priority::High => &self.helpers,
            }),
            most_threads: match (self.kernels, options.preference) {
                (KernelSet::Reference, _) | (_, ExecutionPreference::LowPower) => 1,
                _ => usize::MAX,
            },
        }
    }
}

impl Device for CpuDevice {
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
        let checkpoints = Checkpoints(options.control);
        let program = Program::with_interrupt(model, pools, self.kernels, &checkpoints)
            .map_err(|error| program_failure(&error))?;
        options.control.checkpoint()?;
        Ok(Arc::new(self.model(program, options)))
    }

    fn restore(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        compiled: AlignedSlice,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        if self.kernels == KernelSet::Reference {
            return Err(Failure::general("this device keeps no compiled models"));
        }
        let checkpoints = Checkpoints(options.control);
        let program = Program::restore(model, pools, compiled, &checkpoints)
            .map_err(|error| program_failure(&error))?;
        options.control.checkpoint()?;
        Ok(Arc::new(self.model(program, options)))
    }
}

/// Device buffers are the executor's own kind of memory, so that what one model computed is another's input
/// in place.
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
        ProgramError::OutOfMemory(OutOfMemory { bytes }) => Failure {
            status: exhaustion(bytes as u64),
            ..failure
        },
        ProgramError::Interrupted(_) | ProgramError::UnfitCompiled | ProgramError::MissingConstant { .. } => {
            failure
        }
    }
}

fn execution_failure(error: &ExecutionError) -> Failure {
    let status = error.out_of_memory().map_or_else(
        || error.status(),
        |OutOfMemory { bytes }| exhaustion(bytes as u64),
    );
    let failure = Failure::new(status, error.to_string());
    match *error {
        ExecutionError::Operation { graph, index, .. } | ExecutionError::LoopTimeout { graph, index, .. } => {
            failure.at(place(graph, index))
        }
        ExecutionError::Input { .. }
        | ExecutionError::InputMemory { .. }
        | ExecutionError::Interrupted(_) => failure,
    }
}

#[derive(Debug)]
struct CpuModel {
    program: Arc<Program>,
    helpers: Arc<Helpers>,
    most_threads: usize,
}

impl PreparedModel for CpuModel {
    fn new_execution(&self) -> Result<Box<dyn Execution>, Failure> {
        Ok(Box::new(CpuExecution {
            execution: nnhal_cpu::Execution::new(Arc::clone(&self.program)),
            spare: Vec::new(),
            helpers: Arc::clone(&self.helpers),
            most_threads: self.most_threads,
        }))
    }

    fn compiled(&self) -> Option<Compiled<'_>> {
        let compiled = self.program.compiled()?;
        Some(Compiled {
            parts: compiled.parts,
            replaced: compiled.replaced,
        })
    }
}

/// Copying fewer bytes takes less than to look whether they could be read where they are.
const LEAST_IN_PLACE: usize = 4096;

/// Most buffers that one execution keeps for its next outputs.
const MAX_SPARE: usize = 8;

#[derive(Debug)]
struct CpuExecution {
    execution: nnhal_cpu::Execution,
    /// Memory of device buffers, for the next ones.
    spare: Vec<Arc<AlignedBuffer>>,
    helpers: Arc<Helpers>,
    most_threads: usize,
}

impl CpuExecution {
    #[inline(never)]
    fn set_new_or_large_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        if self.reads_in_place(index, shape, source) {
            return Ok(());
        }
        self.execution
            .input(index, shape)
            .map_err(|error| execution_failure(&error))?;
        let threads = Threads::new(&self.helpers, control.cores(), self.most_threads);
        self.execution
            .fill_input(index, threads, |from, bytes| source.read(from as u64, bytes))
    }

    /// Has a large input read where it is, if nobody can change it any more; says whether it is.
    fn reads_in_place(&mut self, index: usize, shape: &Shape, source: &dyn InputSource) -> bool {
        let size = self.execution.input_size(index, shape);
        let Some(size) = size.filter(|size| *size >= LEAST_IN_PLACE) else {
            return false;
        };
        source
            .sealed()
            .filter(|(_, part)| part.len() == size)
            .and_then(|(memory, part)| AlignedSlice::sealed(Arc::clone(memory), part))
            .is_some_and(|memory| self.execution.bind_input(index, *shape, memory).is_ok())
    }
}

impl Execution for CpuExecution {
    #[inline]
    fn set_input(
        &mut self,
        index: usize,
        shape: &Shape,
        source: &dyn InputSource,
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        if index == 0 {
            self.execution.rouse(&self.helpers);
        }
        match self.execution.input_of_shape(index, shape) {
            Some(bytes) if bytes.len() < LEAST_IN_PLACE => source.read(0, bytes),
            _ => self.set_new_or_large_input(index, shape, source, control),
        }
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
        control: &Control<'_>,
    ) -> Result<(), Failure> {
        let Some(aligned) = aligned(Arc::clone(memory)) else {
            return self.set_input(index, &shape, memory, control);
        };
        self.execution
            .bind_input(index, shape, aligned.into())
            .map_err(|error| execution_failure(&error))
    }

    fn unbind_inputs(&mut self) {
        self.execution.unbind_inputs();
    }

    fn take_output(&mut self, index: usize) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let mut taken = self.spare.pop().unwrap_or_default();
        let is_taken = match Arc::get_mut(&mut taken) {
            Some(memory) => self.execution.exchange_output(index, memory),
            // Spare memory is nobody else's; if it were, it would be theirs to keep.
            None => {
                let mut memory = AlignedBuffer::new();
                let is_taken = self.execution.exchange_output(index, &mut memory);
                taken = Arc::new(memory);
                is_taken
            }
        };
        if is_taken {
            Ok(taken)
        } else {
            Err(no_output(index))
        }
    }

    fn recycle(&mut self, memory: Arc<dyn DeviceMemory>) {
        let spare = aligned(memory).filter(|memory| Arc::strong_count(memory) == 1);
        self.spare.extend(spare.filter(|_| self.spare.len() < MAX_SPARE));
    }

    fn run(&mut self, control: &Control<'_>) -> Result<Option<Duration>, Failure> {
        let checkpoints = Checkpoints(control);
        let operations = control.is_traced().then_some(Operations(control));
        let options = RunOptions {
            interrupt: &checkpoints,
            loop_timeout: control.loop_timeout(),
            observer: operations.as_ref().map(|operations| operations as &dyn Observer),
            threads: Threads::new(&self.helpers, control.cores(), self.most_threads),
        };
        self.execution
            .run(&options)
            .map_err(|error| execution_failure(&error))?;
        Ok(None)
    }

    fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        self.execution.output(index)
    }

    fn reserve_memory(&mut self) {
        self.execution.reserve();
    }

    fn release_memory(&mut self) {
        self.spare.clear();
        self.helpers.end_idle();
        self.execution.release_memory();
    }
}

/// Operations for the client's trace.
struct Operations<'a>(&'a Control<'a>);

impl Observer for Operations<'_> {
    fn operation_ended(&self, observed: &ObservedOperation) {
        let from_to = (observed.started, observed.ended);
        self.0
            .record_operation(observed.index, observed.operation, from_to);
    }
}

#[cold]
fn no_output(index: usize) -> Failure {
    Failure::general(format!("there is no output {index}"))
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use nnhal_hal::{Model, NoPools, Operand, OperandLifeTime, OperationType};
    use nnhal_os::shm::{SealedBytes, SharedMemory};

    use super::*;

    const BYTES: usize = 4096;

    /// An execution of RELU of as many bytes.
    fn execution() -> CpuExecution {
        let tensor =
            |lifetime| Operand::new(OperandType::TENSOR_FLOAT32, &[BYTES as u32 / 4]).with_lifetime(lifetime);
        let mut input = tensor(OperandLifeTime::SubgraphInput);
        input.number_of_consumers = 1;
        let model = Model {
            main: Subgraph {
                operands: vec![input, tensor(OperandLifeTime::SubgraphOutput)],
                operations: vec![Operation {
                    operation_type: OperationType::RELU,
                    inputs: vec![0],
                    outputs: vec![1],
                }],
                input_indexes: vec![0],
                output_indexes: vec![1],
            },
            ..Model::default()
        };
        let valid = ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap();
        let program = Program::with_kernels(Arc::new(valid), &NoPools, KernelSet::Fast).unwrap();
        CpuExecution {
            execution: nnhal_cpu::Execution::new(Arc::new(program)),
            spare: Vec::new(),
            helpers: Arc::new(Helpers::new(0)),
            most_threads: 1,
        }
    }

    /// A part of a memory that nobody can change.
    #[derive(Debug)]
    struct Sealed(Arc<SealedBytes>, Range<usize>);

    impl InputSource for Sealed {
        fn read(&self, _: u64, _: &mut [u8]) -> Result<(), Failure> {
            Err(Failure::general("not to be copied"))
        }

        fn sealed(&self) -> Option<(&Arc<SealedBytes>, Range<usize>)> {
            Some((&self.0, self.1.clone()))
        }
    }

    #[test]
    fn sealed_memory_is_held_while_it_is_read_in_place_and_only_where_it_can_be() {
        let memory = SharedMemory::create_sealed(&[0; 2 * BYTES]).unwrap();
        let memory = Arc::new(SealedBytes::map_parts(&memory).unwrap());
        let shape = Shape::new(&[BYTES as u32 / 4]).unwrap();
        let mut execution = execution();
        let mut reads_in_place = |index, part: Range<usize>| {
            execution.reads_in_place(index, &shape, &Sealed(Arc::clone(&memory), part))
        };
        for part in [
            4..4 + BYTES,
            0..BYTES - 4,
            0..BYTES + 64,
            BYTES + 64..2 * BYTES + 64,
        ] {
            assert!(!reads_in_place(0, part.clone()), "{part:?}");
        }
        assert!(!reads_in_place(1, 0..BYTES), "there is one input");
        assert_eq!(Arc::strong_count(&memory), 1);
        assert!(reads_in_place(0, 64..64 + BYTES));
        assert_eq!(Arc::strong_count(&memory), 2, "nothing was copied");
        execution.unbind_inputs();
        assert_eq!(Arc::strong_count(&memory), 1);
    }
}
