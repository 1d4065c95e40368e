//! NN HAL 1.1: nine more operations, relaxed floats, execution preferences.

use super::v1_0;
use crate::PerformanceInfo;

/// HAL 1.1 `Capabilities`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capabilities {
    /// For operations on 32-bit floats.
    pub float32_performance: PerformanceInfo,
    /// For operations on quantised bytes, and on integers.
    pub quantized8_performance: PerformanceInfo,
    /// For operations on 32-bit floats that may be computed with the range and precision of 16 bits.
    pub relaxed_float32_to_float16_performance: PerformanceInfo,
}

/// HAL 1.1 `Model`: that of 1.0 and a flag.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Model {
    /// What 1.0 has.
    pub graph: v1_0::Model,
    /// Whether float32 may be computed with the range and precision of float16.
    pub relax_computation_float32_to_float16: bool,
}
