//! The NN HAL: its types ([`Model`], [`Request`], [`ErrorStatus`] and the others), the operation table
//! ([`ops`]) and the rules that make a model or a request valid ([`validate`]).
//!
//! This crate is pure: it makes no system call and knows no process, no kernel and no wire.
//!
//! The types are those of HAL 1.3, in their canonical form; NNAPI's later feature levels change none of
//! them. They are plain data: nothing is checked by construction, because these values also describe what a
//! hostile peer sent. A value becomes trustworthy by passing [`validate`], which returns a different type.
//! Older HAL versions are subsets: see [`HalVersion`], [`versions`] for the types that differ there, and
//! [`validate::ValidModel::compliant_with`].
//!
//! Source of the names, numbers and rules: the interface text of NN HAL 1.0 to 1.3, and that of NNAPI's
//! feature levels 6 and 7.
#![forbid(unsafe_code)]

mod bytes;
mod capabilities;
mod device;
mod error;
mod extension;
mod failure;
mod layouts;
mod model;
mod operand;
mod operation;
mod operation_names;
pub mod ops;
mod request;
mod shape;
pub mod tflite;
pub mod validate;
pub mod versions;

pub use capabilities::{Capabilities, DeviceStatus, DeviceType, OperandPerformance, PerformanceInfo};
pub use device::{DeviceInfo, NumberOfCacheFiles, OperationSupport};
pub use error::ErrorStatus;
pub use extension::{Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation};
pub use failure::{Failure, Place};
pub use layouts::{TypeLayout, TypeLayouts};
pub use model::{ConstantPools, MemoryPool, Model, NoPools, Subgraph, SubgraphIndex};
pub use operand::{
    DataLocation, ExtraParams, Operand, OperandLifeTime, OperandType, SymmPerChannelQuantParams,
};
pub use operation::{Operation, OperationType};
pub use request::{
    BufferDesc, BufferRole, CacheToken, ExecutionPreference, MeasureTiming, OutputShape, Priority, Request,
    RequestArgument, RequestPool, Timing,
};
pub use shape::{MAX_RANK, Shape, ShapeError};

use serde::{Deserialize, Serialize};

/// A version of the NN HAL.
///
/// After 1.3, NNAPI counts feature levels. Levels 5 and 8 add nothing to models, so there is no version of
/// theirs here: a model of level 5 is one of 1.3, one of level 8 one of level 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HalVersion {
    /// NN HAL 1.0 (feature level 27).
    V1_0,
    /// NN HAL 1.1 (feature level 28).
    V1_1,
    /// NN HAL 1.2 (feature level 29).
    V1_2,
    /// NN HAL 1.3 (feature level 30).
    V1_3,
    /// NNAPI feature level 6, version 2 of the HAL in AIDL.
    Level6,
    /// NNAPI feature level 7, version 3 of the HAL in AIDL.
    Level7,
}

impl HalVersion {
    /// The newest version, which the canonical types express in full.
    pub const LATEST: HalVersion = HalVersion::Level7;
}

impl std::fmt::Display for HalVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            HalVersion::V1_0 => "1.0",
            HalVersion::V1_1 => "1.1",
            HalVersion::V1_2 => "1.2",
            HalVersion::V1_3 => "1.3",
            HalVersion::Level6 => "feature level 6",
            HalVersion::Level7 => "feature level 7",
        })
    }
}

/// Time limits of WHILE loops: HAL `LoopTimeoutDurationNs`.
pub mod loop_timeout {
    use std::time::Duration;

    /// Used when the client names no limit.
    pub const DEFAULT: Duration = Duration::from_secs(2);
    /// Longer limits are cut to this one.
    pub const MAXIMUM: Duration = Duration::from_secs(15);
}

/// Bytes in a compilation cache token: HAL `Constant::BYTE_SIZE_OF_CACHE_TOKEN`.
pub const BYTE_SIZE_OF_CACHE_TOKEN: usize = 32;
/// Most cache files a device may ask for, of each kind: HAL `Constant::MAX_NUMBER_OF_CACHE_FILES`.
pub const MAX_NUMBER_OF_CACHE_FILES: u32 = 32;
