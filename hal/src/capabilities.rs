//! What a device says of itself: kind, state and relative performance.

use serde::{Deserialize, Serialize};

use super::OperandType;

/// HAL `DeviceType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum DeviceType {
    /// None of the others, or a device that stands in front of several.
    Other = 1,
    /// One or several CPU cores.
    Cpu = 2,
    /// A GPU.
    Gpu = 3,
    /// A dedicated accelerator.
    Accelerator = 4,
}

/// HAL `DeviceStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum DeviceStatus {
    /// Ready.
    Available = 0,
    /// Working on something that keeps it from new work.
    Busy = 1,
    /// Not usable now.
    Offline = 2,
    /// The driver cannot tell.
    Unknown = 3,
}

/// HAL `PerformanceInfo`: relative to the platform's reference CPU, lower is better, above 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformanceInfo {
    /// Execution time as a ratio.
    pub exec_time: f32,
    /// Energy as a ratio.
    pub power_usage: f32,
}

impl PerformanceInfo {
    /// As fast as the reference, and as hungry.
    pub const REFERENCE: PerformanceInfo = PerformanceInfo {
        exec_time: 1.0,
        power_usage: 1.0,
    };
}

/// HAL `Capabilities::OperandPerformance`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperandPerformance {
    /// The operand type, never an extension type or `SUBGRAPH`.
    pub operand_type: OperandType,
    /// How fast operations on it are.
    pub info: PerformanceInfo,
}

/// HAL `Capabilities` 1.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Relaxed float32 arithmetic on scalars.
    pub relaxed_float32_to_float16_performance_scalar: PerformanceInfo,
    /// Relaxed float32 arithmetic on tensors.
    pub relaxed_float32_to_float16_performance_tensor: PerformanceInfo,
    /// By operand type, sorted by code, each type once.
    pub operand_performance: Vec<OperandPerformance>,
    /// The overhead of IF.
    pub if_performance: PerformanceInfo,
    /// The overhead of WHILE.
    pub while_performance: PerformanceInfo,
}

impl Capabilities {
    /// Those of a device whose figures are the same for all that it does, on these operand types, sorted by
    /// code.
    #[must_use]
    pub fn uniform(
        info: PerformanceInfo,
        operand_types: impl IntoIterator<Item = OperandType>,
    ) -> Capabilities {
        let of_type = |operand_type| OperandPerformance { operand_type, info };
        Capabilities {
            relaxed_float32_to_float16_performance_scalar: info,
            relaxed_float32_to_float16_performance_tensor: info,
            operand_performance: operand_types.into_iter().map(of_type).collect(),
            if_performance: info,
            while_performance: info,
        }
    }

    /// The figures for one operand type; a type that is not listed counts as infinitely slow (`f32::MAX`).
    #[must_use]
    pub fn lookup(&self, operand_type: OperandType) -> PerformanceInfo {
        self.operand_performance
            .binary_search_by_key(&operand_type, |entry| entry.operand_type)
            .map_or(
                PerformanceInfo {
                    exec_time: f32::MAX,
                    power_usage: f32::MAX,
                },
                |at| self.operand_performance[at].info,
            )
    }
}
