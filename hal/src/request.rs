//! Executions: requests, results, timing, device buffers and quality of service.

use serde::{Deserialize, Serialize};

use super::{BYTE_SIZE_OF_CACHE_TOKEN, DataLocation};

/// HAL `RequestArgument`: where one input or output of an execution is.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RequestArgument {
    /// Whether an optional input is left out; then the other fields are empty.
    pub has_no_value: bool,
    /// The bytes; offset 0 and length 0 for a device buffer.
    pub location: DataLocation,
    /// Dimensions that the model leaves open; empty to take the operand's own.
    pub dimensions: Vec<u32>,
}

/// HAL `Request::MemoryPool` 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RequestPool {
    /// A memory that the client shares; its size in bytes.
    Memory {
        /// Size in bytes.
        size: u64,
    },
    /// A device buffer, by the token that allocating it gave.
    Token(u32),
}

/// HAL `Request` 1.3. The memories themselves travel beside it, in the order of `pools`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Request {
    /// One for each input of the main graph.
    pub inputs: Vec<RequestArgument>,
    /// One for each output of the main graph.
    pub outputs: Vec<RequestArgument>,
    /// What the arguments' locations refer to.
    pub pools: Vec<RequestPool>,
}

/// HAL `OutputShape`: what an execution found of one output.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OutputShape {
    /// The dimensions, 0 where they could not be determined.
    pub dimensions: Vec<u32>,
    /// Whether the buffer was large enough.
    pub is_sufficient: bool,
}

/// HAL `Timing`, in microseconds; `u64::MAX` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Time that the device computed.
    pub time_on_device_us: u64,
    /// Time between the driver's seeing the request and its answer.
    pub time_in_driver_us: u64,
}

impl Timing {
    /// No measurement.
    pub const NONE: Timing = Timing {
        time_on_device_us: u64::MAX,
        time_in_driver_us: u64::MAX,
    };
}

impl Default for Timing {
    fn default() -> Timing {
        Timing::NONE
    }
}

/// HAL `MeasureTiming`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MeasureTiming {
    /// Report [`Timing::NONE`].
    #[default]
    No,
    /// Measure this execution.
    Yes,
}

/// HAL `ExecutionPreference`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[repr(u32)]
pub enum ExecutionPreference {
    /// Save energy.
    LowPower = 0,
    /// Answer a single request as soon as possible.
    #[default]
    FastSingleAnswer = 1,
    /// Most executions per second over time.
    SustainedSpeed = 2,
}

/// HAL `Priority`, relative among one client's prepared models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[repr(u32)]
pub enum Priority {
    /// Yields to the others.
    Low = 0,
    /// The default.
    #[default]
    Medium = 1,
    /// Before the others.
    High = 2,
}

impl ExecutionPreference {
    /// The preference with this HAL code.
    #[must_use]
    pub fn from_code(code: i32) -> Option<ExecutionPreference> {
        match code {
            0 => Some(ExecutionPreference::LowPower),
            1 => Some(ExecutionPreference::FastSingleAnswer),
            2 => Some(ExecutionPreference::SustainedSpeed),
            _ => None,
        }
    }
}

impl Priority {
    /// The priority with this HAL code.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Priority> {
        match code {
            0 => Some(Priority::Low),
            1 => Some(Priority::Medium),
            2 => Some(Priority::High),
            _ => None,
        }
    }
}

/// HAL `CacheToken`: identifies a compilation in the cache.
pub type CacheToken = [u8; BYTE_SIZE_OF_CACHE_TOKEN];

/// HAL `BufferDesc`: what a device buffer must hold.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BufferDesc {
    /// Dimensions; may be empty or partly 0.
    pub dimensions: Vec<u32>,
}

/// HAL `BufferRole`: one input or output that a device buffer will be used for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BufferRole {
    /// Index into the prepared models given with the roles.
    pub model_index: u32,
    /// Index of the input or output in that model.
    pub io_index: u32,
    /// How often the buffer will have this role, above 0 and at most 1.
    pub frequency: f32,
}
