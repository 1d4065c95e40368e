//! The layout of every message: which fields travel in which order, and which numbers stand for which
//! variants.
//!
//! This is what other processes rely on. What stands here is never changed, only added to, as
//! [`wire_record!`](crate::wire_record) and [`wire_numbers!`](crate::wire_numbers) say; golden bytes hold it
//! to that. The order of fields and variants in the Rust types means nothing here, and a field or variant
//! that is not listed does not compile.

use nnhal_hal::{
    BufferDesc, BufferRole, CacheToken, Capabilities, DataLocation, DeviceInfo, DeviceStatus, DeviceType,
    ErrorStatus, Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation, ExtraParams, Failure,
    HalVersion, MeasureTiming, MemoryPool, Model, NumberOfCacheFiles, Operand, OperandLifeTime,
    OperandPerformance, OperandType, Operation, OperationSupport, OperationType, OutputShape,
    PerformanceInfo, Place, Request, RequestArgument, RequestPool, Subgraph, SymmPerChannelQuantParams,
    Timing,
};

use super::codec::{CodecError, Reader, Writer};
use super::value::{Types, Wire};
use super::*;
use crate::{wire_numbers, wire_record};

wire_record! {
    Welcome { device: DeviceInfo, worker_pid: u32, supervisor_pid: u32, has_pidfd: bool }
}

wire_numbers! {
    Call {
        0 => GetStatus,
        1 => GetSupportedOperations { model: Model, pools: Vec<MemoryHandle> },
        2 => PrepareModel(arguments: Box<PrepareModel>),
        3 => PrepareModelFromCache(arguments: PrepareModelFromCache),
        4 => Allocate {
            desc: BufferDesc,
            prepared_models: Vec<PreparedModelHandle>,
            input_roles: Vec<BufferRole>,
            output_roles: Vec<BufferRole>,
        },
        5 => CopyTo { buffer: BufferHandle, memory: MemoryHandle },
        6 => CopyFrom { buffer: BufferHandle, memory: MemoryHandle, dimensions: Vec<u32> },
        7 => RegisterMemory(memory: MemoryDescription),
        8 => RegisterFence,
        9 => Execute(arguments: Execute),
        10 => ExecuteFenced(arguments: ExecuteFenced),
        11 => GetExecutionInfo { execution: ExecutionHandle },
        12 => ConfigureBurst { prepared_model: PreparedModelHandle, polling_window_ns: Option<u64> },
        13 => Release { object: Object },
        14 => Cancel { id: u64 },
        15 since 2 => StartTrace { size: u64 },
        16 since 3 => CancelBurst { burst: BurstHandle, sequence: u32 },
        17 since 3 => GetBurstFence { burst: BurstHandle, sequence: u32 },
    }

    Message {
        0 => Reply { id: u64, result: Result<Reply, Failure> },
        1 => Event { id: u64, event: Event },
        2 => Goodbye { reason: String },
        3 => WorkerExit(worker_exit: WorkerExit),
    }

    Reply {
        0 => Done,
        1 => Status(status: DeviceStatus),
        2 => SupportedOperations(operations: Vec<OperationSupport>),
        3 => Launched,
        4 => Memory(memory: MemoryHandle),
        5 => Fence(fence: FenceHandle),
        6 => Allocated(allocated: Allocated),
        7 => Executed(result: ExecutionResult),
        8 => Fenced(started: FenceStarted),
        9 => ExecutionInfo(info: ExecutionInfo),
        10 => Burst(burst: BurstHandle),
        11 since 3 => BurstFence { has_fence: bool },
    }

    Event {
        0 => Prepared(model: Result<PreparedModelHandle, Failure>),
        1 => Executed(result: ExecutionResult),
    }

    Object {
        0 => PreparedModel(handle: PreparedModelHandle),
        1 => Memory(handle: MemoryHandle),
        2 => Burst(handle: BurstHandle),
        3 => Buffer(handle: BufferHandle),
        4 => Execution(handle: ExecutionHandle),
        5 => Fence(handle: FenceHandle),
    }

    FenceArgument {
        0 => Attached { fds: u8 },
        1 => Registered(fence: FenceHandle),
        2 => Execution(execution: ExecutionHandle),
    }

    ExecutionForm { 0 => Synchronous, 1 => Asynchronous }

    OperationSupport { 0 => Supported, 1 => Unsupported { reason: String } }

    CauseOfDeath { 0 => Exited { code: i32 }, 1 => Killed { signal: i32, core_dumped: bool } }
}

wire_record! {
    PrepareModel {
        model: Model,
        pools: Vec<MemoryHandle>,
        preference: i32,
        priority: i32,
        deadline_ns: Option<u64>,
        cache: CacheFiles,
        token: CacheToken,
    }
    PrepareModelFromCache { deadline_ns: Option<u64>, cache: CacheFiles, token: CacheToken }
    CacheFiles { model: Vec<u8>, data: Vec<u8> }
    MemoryDescription { name: String, fds: u8, size: u64, offset: u64, protection: u32 }
    RequestWithMemories { request: Request, memories: Vec<MemoryHandle> }
    Execute {
        prepared_model: PreparedModelHandle,
        request: RequestWithMemories,
        form: ExecutionForm,
        measure: MeasureTiming,
        deadline_ns: Option<u64>,
        loop_timeout_ns: Option<u64>,
    }
    ExecuteFenced {
        prepared_model: PreparedModelHandle,
        request: RequestWithMemories,
        wait_for: Vec<FenceArgument>,
        measure: MeasureTiming,
        limits: FencedLimits,
    }
    FencedLimits { deadline_ns: Option<u64>, loop_timeout_ns: Option<u64>, duration_ns: Option<u64> }
    Allocated { buffer: BufferHandle, token: u32 }
    FenceStarted { execution: ExecutionHandle, has_fence: bool }
    ExecutionInfo { result: Result<(), Failure>, timing_launched: Timing, timing_fenced: Timing }
    ExecutionResult { outcome: Result<(), Failure>, output_shapes: Vec<OutputShape>, timing: Timing }
    Failure { status: ErrorStatus, detail: String, place: Place }
    Place {
        subgraph: Option<u32>,
        operation: Option<u32>,
        operand: Option<u32>,
        pool: Option<u32>,
    }
    WorkerExit { worker_pid: u32, cause: CauseOfDeath, last_words: String }
    Handle { index: u32, generation: u32 }
}

// Of the HAL.
wire_record! {
    Model {
        main: Subgraph,
        referenced: Vec<Subgraph>,
        operand_values: Vec<u8>,
        pools: Vec<MemoryPool>,
        relax_computation_float32_to_float16: bool,
        extension_name_to_prefix: Vec<ExtensionNameAndPrefix>,
    }
    Subgraph {
        operands: Vec<Operand>,
        operations: Vec<Operation>,
        input_indexes: Vec<u32>,
        output_indexes: Vec<u32>,
    }
    Operand {
        operand_type: OperandType,
        dimensions: Vec<u32>,
        number_of_consumers: u32,
        scale: f32,
        zero_point: i32,
        lifetime: OperandLifeTime,
        location: DataLocation,
        extra_params: ExtraParams,
    }
    DataLocation { pool_index: u32, offset: u32, length: u32 }
    SymmPerChannelQuantParams { scales: Vec<f32>, channel_dim: u32 }
    Operation { operation_type: OperationType, inputs: Vec<u32>, outputs: Vec<u32> }
    MemoryPool { size: u64 }
    ExtensionNameAndPrefix { name: String, prefix: u16 }
    Request { inputs: Vec<RequestArgument>, outputs: Vec<RequestArgument>, pools: Vec<RequestPool> }
    RequestArgument { has_no_value: bool, location: DataLocation, dimensions: Vec<u32> }
    OutputShape { dimensions: Vec<u32>, is_sufficient: bool }
    Timing { time_on_device_us: u64, time_in_driver_us: u64 }
    BufferDesc { dimensions: Vec<u32> }
    BufferRole { model_index: u32, io_index: u32, frequency: f32 }
    DeviceInfo {
        name: String,
        version: String,
        device_type: DeviceType,
        hal_version: HalVersion,
        capabilities: Capabilities,
        extensions: Vec<Extension>,
        cache_files: NumberOfCacheFiles,
    }
    Capabilities {
        relaxed_float32_to_float16_performance_scalar: PerformanceInfo,
        relaxed_float32_to_float16_performance_tensor: PerformanceInfo,
        operand_performance: Vec<OperandPerformance>,
        if_performance: PerformanceInfo,
        while_performance: PerformanceInfo,
    }
    PerformanceInfo { exec_time: f32, power_usage: f32 }
    OperandPerformance { operand_type: OperandType, info: PerformanceInfo }
    Extension { name: String, operand_types: Vec<ExtensionOperandTypeInformation> }
    ExtensionOperandTypeInformation { number: u16, is_tensor: bool, byte_size: u32 }
    NumberOfCacheFiles { model: u32, data: u32 }
}

wire_numbers! {
    OperandLifeTime {
        0 => TemporaryVariable,
        1 => SubgraphInput,
        2 => SubgraphOutput,
        3 => ConstantCopy,
        4 => ConstantReference,
        5 => NoValue,
        6 => Subgraph,
    }
    ExtraParams {
        0 => None,
        1 => ChannelQuant(params: SymmPerChannelQuantParams),
        2 => Extension(params: Vec<u8>),
    }
    RequestPool { 0 => Memory { size: u64 }, 1 => Token(token: u32) }
    MeasureTiming { 0 => No, 1 => Yes }
    DeviceStatus { 0 => Available, 1 => Busy, 2 => Offline, 3 => Unknown }
    DeviceType { 0 => Other, 1 => Cpu, 2 => Gpu, 3 => Accelerator }
    HalVersion { 0 => V1_0, 1 => V1_1, 2 => V1_2, 3 => V1_3, 4 since 3 => Level6, 5 since 3 => Level7 }
    ErrorStatus {
        0 => None,
        1 => DeviceUnavailable,
        2 => GeneralFailure,
        3 => OutputInsufficientSize,
        4 => InvalidArgument,
        5 => MissedDeadlineTransient,
        6 => MissedDeadlinePersistent,
        7 => ResourceExhaustedTransient,
        8 => ResourceExhaustedPersistent,
    }
}

/// Types that are a single value of another.
macro_rules! transparent {
    ($($name:ident($ty:ty))*) => {$(
        impl Wire for $name {
            const LEAST: usize = <$ty>::LEAST;

            #[inline]
            fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
                self.0.put(to)
            }

            #[inline]
            fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                <$ty>::get(from).map($name)
            }

            fn describe(types: &mut Types) -> String {
                <$ty>::describe(types);
                stringify!($name).to_owned()
            }
        }
    )*};
}

transparent! {
    OperandType(u32)
    OperationType(u32)
    PreparedModelHandle(Handle)
    MemoryHandle(Handle)
    BurstHandle(Handle)
    BufferHandle(Handle)
    ExecutionHandle(Handle)
    FenceHandle(Handle)
}

/// The id, and behind it the call. A call that the version lacks is told from what is no message.
impl Wire for Envelope {
    const LEAST: usize = 12;

    fn put(&self, to: &mut Writer<'_>) -> Result<(), CodecError> {
        self.id.put(to)?;
        self.call.put(to)
    }

    fn get(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let id = u64::get(from)?;
        match Call::get(from) {
            Ok(call) => Ok(Envelope { id, call }),
            Err(CodecError::Number {
                what: "Call",
                number,
                version,
            }) => Err(CodecError::UnknownCall { id, number, version }),
            Err(error) => Err(error),
        }
    }

    fn describe(types: &mut Types) -> String {
        Call::describe(types)
    }
}
