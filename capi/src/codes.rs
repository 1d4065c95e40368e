//! The numbers of the interface, other than operations.

#![allow(non_camel_case_types, reason = "the names are the public interface's own")]

use nnhal_client::{ErrorStatus, runtime};

/// How a function ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultCode {
    /// Success.
    ANEURALNETWORKS_NO_ERROR = 0,
    /// This process has no memory for it.
    ANEURALNETWORKS_OUT_OF_MEMORY = 1,
    /// What was asked for is only partly there.
    ANEURALNETWORKS_INCOMPLETE = 2,
    /// An argument that must not be NULL is.
    ANEURALNETWORKS_UNEXPECTED_NULL = 3,
    /// An argument, a model or a request breaks a rule.
    ANEURALNETWORKS_BAD_DATA = 4,
    /// The operation failed.
    ANEURALNETWORKS_OP_FAILED = 5,
    /// The object is in a state that does not allow the call.
    ANEURALNETWORKS_BAD_STATE = 6,
    /// A memory cannot be mapped.
    ANEURALNETWORKS_UNMAPPABLE = 7,
    /// The buffer of an output is too small.
    ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE = 8,
    /// The device is not there or cannot be reached.
    ANEURALNETWORKS_UNAVAILABLE_DEVICE = 9,
    /// The time limit was missed; another try may meet it.
    ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT = 10,
    /// The time limit was missed and would be again.
    ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT = 11,
    /// A resource was exhausted; another try may find it.
    ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT = 12,
    /// A resource is exhausted, now and later.
    ANEURALNETWORKS_RESOURCE_EXHAUSTED_PERSISTENT = 13,
    /// The driver's process died.
    ANEURALNETWORKS_DEAD_OBJECT = 14,
}

impl ResultCode {
    pub(crate) fn of_status(status: ErrorStatus) -> ResultCode {
        ResultCode::of_runtime(runtime::ResultCode::of_status(status))
    }

    pub(crate) fn of_runtime(code: runtime::ResultCode) -> ResultCode {
        use runtime::ResultCode as Runtime;
        match code {
            Runtime::NoError => ResultCode::ANEURALNETWORKS_NO_ERROR,
            Runtime::OutOfMemory => ResultCode::ANEURALNETWORKS_OUT_OF_MEMORY,
            Runtime::Incomplete => ResultCode::ANEURALNETWORKS_INCOMPLETE,
            Runtime::UnexpectedNull => ResultCode::ANEURALNETWORKS_UNEXPECTED_NULL,
            Runtime::BadData => ResultCode::ANEURALNETWORKS_BAD_DATA,
            Runtime::OpFailed => ResultCode::ANEURALNETWORKS_OP_FAILED,
            Runtime::BadState => ResultCode::ANEURALNETWORKS_BAD_STATE,
            Runtime::Unmappable => ResultCode::ANEURALNETWORKS_UNMAPPABLE,
            Runtime::OutputInsufficientSize => ResultCode::ANEURALNETWORKS_OUTPUT_INSUFFICIENT_SIZE,
            Runtime::UnavailableDevice => ResultCode::ANEURALNETWORKS_UNAVAILABLE_DEVICE,
            Runtime::MissedDeadlineTransient => ResultCode::ANEURALNETWORKS_MISSED_DEADLINE_TRANSIENT,
            Runtime::MissedDeadlinePersistent => ResultCode::ANEURALNETWORKS_MISSED_DEADLINE_PERSISTENT,
            Runtime::ResourceExhaustedTransient => ResultCode::ANEURALNETWORKS_RESOURCE_EXHAUSTED_TRANSIENT,
            Runtime::ResourceExhaustedPersistent => ResultCode::ANEURALNETWORKS_RESOURCE_EXHAUSTED_PERSISTENT,
            Runtime::DeadObject => ResultCode::ANEURALNETWORKS_DEAD_OBJECT,
        }
    }
}

/// What an operand is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandCode {
    /// A 32-bit float.
    ANEURALNETWORKS_FLOAT32 = 0,
    /// A signed 32-bit integer.
    ANEURALNETWORKS_INT32 = 1,
    /// An unsigned 32-bit integer.
    ANEURALNETWORKS_UINT32 = 2,
    /// A tensor of 32-bit floats.
    ANEURALNETWORKS_TENSOR_FLOAT32 = 3,
    /// A tensor of signed 32-bit integers.
    ANEURALNETWORKS_TENSOR_INT32 = 4,
    /// A tensor of unsigned bytes that mean (value - zeroPoint) * scale.
    ANEURALNETWORKS_TENSOR_QUANT8_ASYMM = 5,
    /// One byte: 0 is false, anything else true. Since feature level 29.
    ANEURALNETWORKS_BOOL = 6,
    /// A tensor of signed 16-bit integers that mean value * scale. Since feature level 29.
    ANEURALNETWORKS_TENSOR_QUANT16_SYMM = 7,
    /// A tensor of 16-bit floats. Since feature level 29.
    ANEURALNETWORKS_TENSOR_FLOAT16 = 8,
    /// A tensor of bytes: 0 is false, anything else true. Since feature level 29.
    ANEURALNETWORKS_TENSOR_BOOL8 = 9,
    /// A 16-bit float. Since feature level 29.
    ANEURALNETWORKS_FLOAT16 = 10,
    /// A tensor of signed bytes with a scale for each index of one dimension. Since feature level 29.
    ANEURALNETWORKS_TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
    /// A tensor of unsigned 16-bit integers that mean (value - zeroPoint) * scale. Since feature level 29.
    ANEURALNETWORKS_TENSOR_QUANT16_ASYMM = 12,
    /// A tensor of signed bytes that mean value * scale. Since feature level 29.
    ANEURALNETWORKS_TENSOR_QUANT8_SYMM = 13,
    /// A tensor of signed bytes that mean (value - zeroPoint) * scale. Since feature level 30.
    ANEURALNETWORKS_TENSOR_QUANT8_ASYMM_SIGNED = 14,
    /// A model, which IF and WHILE run. Since feature level 30.
    ANEURALNETWORKS_MODEL = 15,
    /// Deprecated: a scalar of a vendor, outside of extensions.
    ANEURALNETWORKS_OEM_SCALAR = 10000,
    /// Deprecated: a tensor of a vendor, outside of extensions.
    ANEURALNETWORKS_TENSOR_OEM_BYTE = 10001,
}

/// Activation functions that operations apply to their results.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseCode {
    /// None.
    ANEURALNETWORKS_FUSED_NONE = 0,
    /// At least 0.
    ANEURALNETWORKS_FUSED_RELU = 1,
    /// From -1 to 1.
    ANEURALNETWORKS_FUSED_RELU1 = 2,
    /// From 0 to 6.
    ANEURALNETWORKS_FUSED_RELU6 = 3,
}

/// Implicit padding of operations over windows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaddingCode {
    /// As much as makes the result's extent that of the input, divided by the stride and rounded up.
    ANEURALNETWORKS_PADDING_SAME = 1,
    /// None.
    ANEURALNETWORKS_PADDING_VALID = 2,
}

/// What executions shall be good at.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreferenceCode {
    /// Use little energy.
    ANEURALNETWORKS_PREFER_LOW_POWER = 0,
    /// Answer single requests fast. The default.
    ANEURALNETWORKS_PREFER_FAST_SINGLE_ANSWER = 1,
    /// Answer many requests per second.
    ANEURALNETWORKS_PREFER_SUSTAINED_SPEED = 2,
}

/// The kind of a device. Since feature level 29.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTypeCode {
    /// The device does not say.
    ANEURALNETWORKS_DEVICE_UNKNOWN = 0,
    /// None of the others.
    ANEURALNETWORKS_DEVICE_OTHER = 1,
    /// A CPU.
    ANEURALNETWORKS_DEVICE_CPU = 2,
    /// A GPU.
    ANEURALNETWORKS_DEVICE_GPU = 3,
    /// A processor for neural networks.
    ANEURALNETWORKS_DEVICE_ACCELERATOR = 4,
}

/// Which time of an execution. Since feature level 29.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationCode {
    /// Computing on the device, since the start.
    ANEURALNETWORKS_DURATION_ON_HARDWARE = 0,
    /// In the driver, since the start.
    ANEURALNETWORKS_DURATION_IN_DRIVER = 1,
    /// Computing on the device, since all dependencies were done. Since feature level 30.
    ANEURALNETWORKS_FENCED_DURATION_ON_HARDWARE = 2,
    /// In the driver, since all dependencies were done. Since feature level 30.
    ANEURALNETWORKS_FENCED_DURATION_IN_DRIVER = 3,
}

/// Which compilations of this process go first. Since feature level 30.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorityCode {
    /// After the others.
    ANEURALNETWORKS_PRIORITY_LOW = 90,
    /// In between. The default, `ANEURALNETWORKS_PRIORITY_DEFAULT`.
    ANEURALNETWORKS_PRIORITY_MEDIUM = 100,
    /// Before the others.
    ANEURALNETWORKS_PRIORITY_HIGH = 110,
}

/// Feature levels, as `ANeuralNetworks_getRuntimeFeatureLevel` and `ANeuralNetworksDevice_getFeatureLevel`
/// give them. Since feature level 31.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureLevelCode {
    /// HAL 1.0.
    ANEURALNETWORKS_FEATURE_LEVEL_1 = 27,
    /// HAL 1.1.
    ANEURALNETWORKS_FEATURE_LEVEL_2 = 28,
    /// HAL 1.2.
    ANEURALNETWORKS_FEATURE_LEVEL_3 = 29,
    /// HAL 1.3.
    ANEURALNETWORKS_FEATURE_LEVEL_4 = 30,
    /// Executions that are used again; no device has it alone.
    ANEURALNETWORKS_FEATURE_LEVEL_5 = 31,
    /// `BATCH_MATMUL` and `PACK`.
    ANEURALNETWORKS_FEATURE_LEVEL_6 = 1_000_006,
    /// `MIRROR_PAD` and `REVERSE`.
    ANEURALNETWORKS_FEATURE_LEVEL_7 = 1_000_007,
    /// This library.
    ANEURALNETWORKS_FEATURE_LEVEL_8 = 1_000_008,
}

/// Priority of compilations that set none.
pub const ANEURALNETWORKS_PRIORITY_DEFAULT: i32 = 100;

/// Values of operands up to this size are copied by `ANeuralNetworksModel_setOperandValue`.
pub const ANEURALNETWORKS_MAX_SIZE_OF_IMMEDIATELY_COPIED_VALUES: usize = 128;

/// Size of the token of `ANeuralNetworksCompilation_setCaching` in bytes.
pub const ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN: usize = 32;
