//! What a client asks of a worker.

use super::{BufferHandle, BurstHandle, ExecutionHandle, FenceHandle, MemoryHandle, PreparedModelHandle};
use nnhal_hal::{BufferDesc, BufferRole, CacheToken, MeasureTiming, Model, Request};

/// A call under the id by which its answers will name it. Ids are the client's choice; one that is still
/// being answered may not be used again.
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    /// The id.
    pub id: u64,
    /// The call.
    pub call: Call,
}

/// A call of the control protocol. Descriptors that belong to it travel beside it, in the order given here.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    /// HAL `getStatus`. Answer: [`super::Reply::Status`].
    GetStatus,
    /// HAL `getSupportedOperations_1_3`. Answer: [`super::Reply::SupportedOperations`].
    GetSupportedOperations {
        /// The model.
        model: Model,
        /// The memories of its pools, one each.
        pools: Vec<MemoryHandle>,
    },
    /// HAL `prepareModel_1_3`. Answer: [`super::Reply::Launched`], later [`super::Event::Prepared`].
    PrepareModel(Box<PrepareModel>),
    /// HAL `prepareModelFromCache_1_3`. Answer: [`super::Reply::Launched`], later [`super::Event::Prepared`].
    PrepareModelFromCache(PrepareModelFromCache),
    /// HAL `allocate`. Answer: [`super::Reply::Allocated`].
    Allocate {
        /// What the buffer must hold beyond what its roles say.
        desc: BufferDesc,
        /// What the roles' model indexes refer to.
        prepared_models: Vec<PreparedModelHandle>,
        /// The inputs it will be used for.
        input_roles: Vec<BufferRole>,
        /// The outputs it will be used for.
        output_roles: Vec<BufferRole>,
    },
    /// HAL `IBuffer::copyTo`. Answer: [`super::Reply::Done`].
    CopyTo {
        /// The device buffer that is read.
        buffer: BufferHandle,
        /// The memory that is written.
        memory: MemoryHandle,
    },
    /// HAL `IBuffer::copyFrom`. Answer: [`super::Reply::Done`].
    CopyFrom {
        /// The device buffer that is written.
        buffer: BufferHandle,
        /// The memory that is read.
        memory: MemoryHandle,
        /// The dimensions of what is copied; may be empty where the buffer's own are fully known.
        dimensions: Vec<u32>,
    },
    /// Shares a memory (HAL `hidl_memory`). Descriptors: [`MemoryDescription::fds`]. Answer:
    /// [`super::Reply::Memory`].
    RegisterMemory(MemoryDescription),
    /// Hands over a fence that a later execution waits for. Descriptor: one. Answer: [`super::Reply::Fence`].
    RegisterFence,
    /// HAL `execute_1_3` and `executeSynchronously_1_3`. Answer: [`super::Reply::Executed`] for the
    /// synchronous form; [`super::Reply::Launched`], later [`super::Event::Executed`], for the other.
    Execute(Execute),
    /// HAL `executeFenced`. Descriptors: those of the attached fences. Answer: [`super::Reply::Fenced`].
    ExecuteFenced(ExecuteFenced),
    /// HAL `IFencedExecutionCallback::getExecutionInfo`. Answer: [`super::Reply::ExecutionInfo`].
    GetExecutionInfo {
        /// The execution.
        execution: ExecutionHandle,
    },
    /// HAL `configureExecutionBurst`. Descriptor: the memory that holds both queues, sealed against resizing
    /// and laid out as module `burst` says. Answer: [`super::Reply::Burst`].
    ConfigureBurst {
        /// The model that the burst executes.
        prepared_model: PreparedModelHandle,
        /// How long the worker shall look for the next request before it sleeps, in nanoseconds; the worker's
        /// own setting if absent, and never more than that.
        polling_window_ns: Option<u64>,
    },
    /// Gives up an object. What still runs on it ends first. Answer: [`super::Reply::Done`].
    Release {
        /// The object.
        object: Object,
    },
    /// Asks that a call that has not ended yet shall end early. Answer: [`super::Reply::Done`]; the other
    /// call ends as it would have, or with `GENERAL_FAILURE` saying that it was cancelled.
    Cancel {
        /// The id of that call.
        id: u64,
    },
    /// Has the worker record spans of time in a memory from now on, see [`crate::diag::trace`]. Descriptor:
    /// the memory. Since version 2 of the protocol. Answer: [`super::Reply::Done`].
    StartTrace {
        /// Bytes of the memory.
        size: u64,
    },
    /// Asks that an execution of a burst that has not ended yet shall end early, whether it has begun or not.
    /// Of several such wishes a burst keeps the one for the latest sequence. Since version 3 of the protocol.
    /// Answer: [`super::Reply::Done`]; the execution ends as it would have, or with `GENERAL_FAILURE` saying
    /// that it was cancelled.
    CancelBurst {
        /// The burst.
        burst: BurstHandle,
        /// The sequence of the request.
        sequence: u32,
    },
    /// Asks for a fence that is signalled when a fenced request of a burst has ended, and fails if that has
    /// failed. Since version 3 of the protocol. Answer: [`super::Reply::BurstFence`].
    GetBurstFence {
        /// The burst.
        burst: BurstHandle,
        /// The sequence of the request.
        sequence: u32,
    },
}

impl Call {
    /// How many descriptors travel beside the call. A message with another number is refused.
    #[must_use]
    pub fn fd_count(&self) -> usize {
        match self {
            Call::RegisterMemory(memory) => usize::from(memory.fds),
            Call::PrepareModel(prepare) => prepare.cache.fd_count(),
            Call::PrepareModelFromCache(prepare) => prepare.cache.fd_count(),
            Call::ExecuteFenced(execute) => execute.wait_for.iter().map(FenceArgument::fd_count).sum(),
            Call::RegisterFence | Call::ConfigureBurst { .. } | Call::StartTrace { .. } => 1,
            Call::GetStatus
            | Call::GetSupportedOperations { .. }
            | Call::Allocate { .. }
            | Call::CopyTo { .. }
            | Call::CopyFrom { .. }
            | Call::Execute(_)
            | Call::GetExecutionInfo { .. }
            | Call::Release { .. }
            | Call::Cancel { .. }
            | Call::CancelBurst { .. }
            | Call::GetBurstFence { .. } => 0,
        }
    }

    /// The call's name, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Call::GetStatus => "GetStatus",
            Call::GetSupportedOperations { .. } => "GetSupportedOperations",
            Call::PrepareModel(_) => "PrepareModel",
            Call::PrepareModelFromCache(_) => "PrepareModelFromCache",
            Call::Allocate { .. } => "Allocate",
            Call::CopyTo { .. } => "CopyTo",
            Call::CopyFrom { .. } => "CopyFrom",
            Call::RegisterMemory(_) => "RegisterMemory",
            Call::RegisterFence => "RegisterFence",
            Call::Execute(_) => "Execute",
            Call::ExecuteFenced(_) => "ExecuteFenced",
            Call::GetExecutionInfo { .. } => "GetExecutionInfo",
            Call::ConfigureBurst { .. } => "ConfigureBurst",
            Call::Release { .. } => "Release",
            Call::Cancel { .. } => "Cancel",
            Call::StartTrace { .. } => "StartTrace",
            Call::CancelBurst { .. } => "CancelBurst",
            Call::GetBurstFence { .. } => "GetBurstFence",
        }
    }
}

/// Arguments of [`Call::PrepareModel`]. Descriptors: those of the cache files.
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareModel {
    /// The model.
    pub model: Model,
    /// The memories of its pools, one each. The worker keeps its own mapping or copy.
    pub pools: Vec<MemoryHandle>,
    /// HAL code of the execution preference, see [`nnhal_hal::ExecutionPreference::from_code`]; a number so
    /// that the driver is the one to refuse an unknown one.
    pub preference: i32,
    /// HAL code of the priority, see [`nnhal_hal::Priority::from_code`].
    pub priority: i32,
    /// When to give up, in nanoseconds of the monotonic clock.
    pub deadline_ns: Option<u64>,
    /// Where to save the result.
    pub cache: CacheFiles,
    /// What the saved result must be asked for with; ignored without cache files.
    pub token: CacheToken,
}

/// Arguments of [`Call::PrepareModelFromCache`]. Descriptors: those of the cache files.
#[derive(Clone, Debug, PartialEq)]
pub struct PrepareModelFromCache {
    /// When to give up, in nanoseconds of the monotonic clock.
    pub deadline_ns: Option<u64>,
    /// Where the result was saved.
    pub cache: CacheFiles,
    /// What it was saved with.
    pub token: CacheToken,
}

/// The cache handles of a call: for each handle, how many descriptors it has. One is right, others are for
/// the driver to refuse. The descriptors come in this order, model files first.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CacheFiles {
    /// The handles of the model cache.
    pub model: Vec<u8>,
    /// The handles of the data cache.
    pub data: Vec<u8>,
}

impl CacheFiles {
    /// Handles with one descriptor each.
    #[must_use]
    pub fn new(model: usize, data: usize) -> CacheFiles {
        CacheFiles {
            model: vec![1; model],
            data: vec![1; data],
        }
    }

    /// Whether there is no handle at all: no caching.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.model.is_empty() && self.data.is_empty()
    }

    /// Descriptors in all handles together.
    #[must_use]
    pub fn fd_count(&self) -> usize {
        self.model
            .iter()
            .chain(&self.data)
            .map(|&fds| usize::from(fds))
            .sum()
    }
}

/// A memory that the client shares, HAL `hidl_memory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDescription {
    /// The HAL's pool name: `ashmem`, `mmap_fd`, `hardware_buffer_blob` or `hardware_buffer`.
    pub name: String,
    /// How many descriptors the handle has; one is right.
    pub fds: u8,
    /// Size in bytes.
    pub size: u64,
    /// Where in the file the memory starts; 0 unless it is `mmap_fd`.
    pub offset: u64,
    /// `PROT_READ` (1) and `PROT_WRITE` (2), as for `mmap`.
    pub protection: u32,
}

/// A request and the memories of its pools.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RequestWithMemories {
    /// The request.
    pub request: Request,
    /// The memories of those of its pools that are memories, in their order.
    pub memories: Vec<MemoryHandle>,
}

/// How the result of an execution comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionForm {
    /// As the call's reply.
    Synchronous,
    /// As an event, after a reply that says whether it was launched.
    Asynchronous,
}

/// Arguments of [`Call::Execute`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execute {
    /// The model.
    pub prepared_model: PreparedModelHandle,
    /// Its arguments.
    pub request: RequestWithMemories,
    /// How the result comes back.
    pub form: ExecutionForm,
    /// Whether to measure.
    pub measure: MeasureTiming,
    /// When to give up, in nanoseconds of the monotonic clock.
    pub deadline_ns: Option<u64>,
    /// The longest that any one WHILE may take; the HAL's default if absent.
    pub loop_timeout_ns: Option<u64>,
}

/// Arguments of [`Call::ExecuteFenced`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecuteFenced {
    /// The model.
    pub prepared_model: PreparedModelHandle,
    /// Its arguments.
    pub request: RequestWithMemories,
    /// What must have signalled before it starts.
    pub wait_for: Vec<FenceArgument>,
    /// Whether to measure.
    pub measure: MeasureTiming,
    /// When it must end.
    pub limits: FencedLimits,
}

/// The time limits of a fenced execution; the earlier one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FencedLimits {
    /// When to give up, in nanoseconds of the monotonic clock.
    pub deadline_ns: Option<u64>,
    /// The longest that any one WHILE may take; the HAL's default if absent.
    pub loop_timeout_ns: Option<u64>,
    /// The longest that it may take once all fences have signalled.
    pub duration_ns: Option<u64>,
}

/// Something to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceArgument {
    /// A handle whose descriptors travel beside this message: one that polls readable once it has signalled.
    /// Another number than one is for the driver to refuse.
    Attached {
        /// How many.
        fds: u8,
    },
    /// A fence that was handed over before.
    Registered(FenceHandle),
    /// The end of another fenced execution on this connection; its failure becomes this one's at once.
    Execution(ExecutionHandle),
}

impl FenceArgument {
    fn fd_count(&self) -> usize {
        match self {
            FenceArgument::Attached { fds } => usize::from(*fds),
            FenceArgument::Registered(_) | FenceArgument::Execution(_) => 0,
        }
    }
}

/// Anything that [`Call::Release`] can give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A prepared model. Bursts and device buffers made for it keep it alive until they go.
    PreparedModel(PreparedModelHandle),
    /// A memory. Running executions keep it mapped until they end.
    Memory(MemoryHandle),
    /// A burst.
    Burst(BurstHandle),
    /// A device buffer. Running executions keep it alive until they end.
    Buffer(BufferHandle),
    /// The outcome of a fenced execution; the execution itself goes on.
    Execution(ExecutionHandle),
    /// A fence that was handed over.
    Fence(FenceHandle),
}
