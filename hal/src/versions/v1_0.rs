//! NN HAL 1.0.

use crate::{DataLocation, MemoryPool, OperandType, Operation, PerformanceInfo, RequestArgument};

/// HAL 1.0 `ErrorStatus`, which 1.1 and 1.2 keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorStatus {
    /// Success.
    None = 0,
    /// The device is not there, or cannot be reached at the moment.
    DeviceUnavailable = 1,
    /// Anything that no other code names.
    GeneralFailure = 2,
    /// At least one output buffer is too small.
    OutputInsufficientSize = 3,
    /// An argument breaks a rule of the interface.
    InvalidArgument = 4,
}

/// HAL 1.0 `Capabilities`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capabilities {
    /// For operations on 32-bit floats.
    pub float32_performance: PerformanceInfo,
    /// For operations on quantised bytes, and on integers.
    pub quantized8_performance: PerformanceInfo,
}

/// HAL 1.0 `OperandLifeTime`, which 1.1 and 1.2 keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperandLifeTime {
    /// Written by one operation, read by others, gone after the execution.
    TemporaryVariable,
    /// Given by the request.
    ModelInput,
    /// What the model returns.
    ModelOutput,
    /// A constant inside the model's `operand_values`.
    ConstantCopy,
    /// A constant inside one of the model's pools.
    ConstantReference,
    /// An optional operand that is left out.
    NoValue,
}

/// HAL 1.0 `Operand`, which 1.1 keeps. Every tensor has a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// The type.
    pub operand_type: OperandType,
    /// Dimensions; empty for scalars, 0 for an extent that is not specified.
    pub dimensions: Vec<u32>,
    /// How often the operand occurs as an operation input.
    pub number_of_consumers: u32,
    /// Real units of one step, for quantised types.
    pub scale: f32,
    /// The value that means 0.0, for asymmetric quantised types.
    pub zero_point: i32,
    /// Where the value comes from.
    pub lifetime: OperandLifeTime,
    /// Where the bytes are, for constants.
    pub location: DataLocation,
}

/// HAL 1.0 `Model`: one graph. The bytes of `CONSTANT_REFERENCE` operands are in memories beside it, in the
/// order of `pools`.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Model {
    /// All operands.
    pub operands: Vec<Operand>,
    /// All operations, each after those whose results it reads.
    pub operations: Vec<Operation>,
    /// Operand indexes of the inputs, in argument order.
    pub input_indexes: Vec<u32>,
    /// Operand indexes of the outputs, in argument order.
    pub output_indexes: Vec<u32>,
    /// The bytes of `CONSTANT_COPY` operands.
    pub operand_values: Vec<u8>,
    /// The pools of `CONSTANT_REFERENCE` operands.
    pub pools: Vec<MemoryPool>,
}

/// HAL 1.0 `Request`, which 1.1, 1.2 and bursts keep: all pools are memories.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// One for each input of the model.
    pub inputs: Vec<RequestArgument>,
    /// One for each output of the model.
    pub outputs: Vec<RequestArgument>,
    /// What the arguments' locations refer to.
    pub pools: Vec<MemoryPool>,
}
