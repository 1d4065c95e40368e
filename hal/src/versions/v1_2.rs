//! NN HAL 1.2: figures for each operand type, extensions, per-channel quantisation, tensors of unknown rank,
//! timing.

use super::v1_0;
use crate::{
    ExtensionNameAndPrefix, ExtraParams, MemoryPool, OperandPerformance, Operation, PerformanceInfo,
};

/// HAL 1.2 `Capabilities`.
#[derive(Clone, Debug, PartialEq)]
pub struct Capabilities {
    /// Relaxed float32 arithmetic on scalars.
    pub relaxed_float32_to_float16_performance_scalar: PerformanceInfo,
    /// Relaxed float32 arithmetic on tensors.
    pub relaxed_float32_to_float16_performance_tensor: PerformanceInfo,
    /// By operand type, sorted by code, each type once; a type that is not listed counts as infinitely slow.
    pub operand_performance: Vec<OperandPerformance>,
}

/// HAL 1.2 `Operand`: that of 1.0 and parameters that only some types have. Tensors may have an unknown rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// What 1.0 has.
    pub base: v1_0::Operand,
    /// Parameters that only some types have.
    pub extra_params: ExtraParams,
}

/// HAL 1.2 `Model`: one graph.
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
    /// Whether float32 may be computed with the range and precision of float16.
    pub relax_computation_float32_to_float16: bool,
    /// Which extension each prefix in an operand or operation type stands for.
    pub extension_name_to_prefix: Vec<ExtensionNameAndPrefix>,
}
