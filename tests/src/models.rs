//! Small models and their requests.

use nnhal::wire::{
    CacheFiles, Execute, ExecutionForm, MemoryHandle, PrepareModel, PreparedModelHandle, RequestWithMemories,
};
use nnhal_client::{ModelBuilder, TensorType};
use nnhal_hal::{
    DataLocation, MeasureTiming, Model, Operand, OperandLifeTime, OperandType, Operation, OperationType,
    Request, RequestArgument, RequestPool, Subgraph,
};
use nnhal_os::shm::{Access, Mapping, SharedMemory};

/// The arguments that prepare `output = first + second` over `elements` float32 values.
#[must_use]
pub fn add_model(elements: u32) -> PrepareModel {
    let tensor = |lifetime| Operand::new(OperandType::TENSOR_FLOAT32, &[elements]).with_lifetime(lifetime);
    let mut activation = Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
    activation.location = DataLocation {
        pool_index: 0,
        offset: 0,
        length: 4,
    };
    let mut operands = vec![
        tensor(OperandLifeTime::SubgraphInput),
        tensor(OperandLifeTime::SubgraphInput),
        activation,
        tensor(OperandLifeTime::SubgraphOutput),
    ];
    operands
        .iter_mut()
        .take(3)
        .for_each(|operand| operand.number_of_consumers = 1);
    let model = Model {
        main: Subgraph {
            operands,
            operations: vec![Operation {
                operation_type: OperationType::ADD,
                inputs: vec![0, 1, 2],
                outputs: vec![3],
            }],
            input_indexes: vec![0, 1],
            output_indexes: vec![3],
        },
        operand_values: vec![0; 4],
        ..Model::default()
    };
    PrepareModel {
        model,
        pools: Vec::new(),
        preference: 1,
        priority: 1,
        deadline_ns: None,
        cache: CacheFiles::default(),
        token: [0; 32],
    }
}

/// A request whose arguments, `bytes` each, lie one behind the other in one memory: inputs, then outputs.
#[must_use]
pub fn request_in_one_memory(
    memory: MemoryHandle,
    inputs: u32,
    outputs: u32,
    bytes: u32,
) -> RequestWithMemories {
    let argument = |index: u32| RequestArgument {
        has_no_value: false,
        location: DataLocation {
            pool_index: 0,
            offset: index * bytes,
            length: bytes,
        },
        dimensions: Vec::new(),
    };
    RequestWithMemories {
        request: Request {
            inputs: (0..inputs).map(argument).collect(),
            outputs: (inputs..inputs + outputs).map(argument).collect(),
            pools: vec![RequestPool::Memory { size: 0 }],
        },
        memories: vec![memory],
    }
}

/// A synchronous execution of [`add_model`] on a memory that holds both inputs and the output.
#[must_use]
pub fn add_execution(prepared_model: PreparedModelHandle, memory: MemoryHandle, elements: u32) -> Execute {
    Execute {
        prepared_model,
        request: request_in_one_memory(memory, 2, 1, elements * 4),
        form: ExecutionForm::Synchronous,
        measure: MeasureTiming::No,
        deadline_ns: None,
        loop_timeout_ns: None,
    }
}

/// A memory that holds these values, and its mapping.
///
/// # Panics
///
/// If there is no memory.
#[must_use]
pub fn shared_floats(values: &[f32]) -> (SharedMemory, Mapping) {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let memory = SharedMemory::create(bytes.len() as u64).expect("memory");
    let mapping = Mapping::new(&memory, Access::ReadWrite).expect("a mapping");
    mapping.as_slice().write_at(0, &bytes).expect("room");
    (memory, mapping)
}

/// A loop whose condition always holds: it counts, from 0, to a number that it has passed already.
///
/// # Panics
///
/// Never: the model is valid.
#[must_use]
pub fn endless_loop() -> nnhal_client::Model {
    let ty = || TensorType::float32(&[1]);
    let condition = {
        let mut graph = ModelBuilder::new();
        let count = graph.input(ty());
        let limit = graph.constant(ty(), &[-1.0_f32]);
        let goes_on = graph.output(TensorType::bool8(&[1]));
        graph.operation(OperationType::GREATER, &[count, limit], &[goes_on]);
        graph
    };
    let body = {
        let mut graph = ModelBuilder::new();
        let count = graph.input(ty());
        let one = graph.constant(ty(), &[1.0_f32]);
        let no_activation = graph.scalar(0_i32);
        let next = graph.output(ty());
        graph.operation(OperationType::ADD, &[count, one, no_activation], &[next]);
        graph
    };
    let mut model = ModelBuilder::new();
    let count = model.input(ty());
    let (condition, body) = (model.graph(condition), model.graph(body));
    let last = model.output(ty());
    model.operation(OperationType::WHILE, &[condition, body, count], &[last]);
    model.finish().unwrap()
}
