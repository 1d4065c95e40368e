//! The interfaces of HAL 1.0.

use std::fmt::Debug;

use nnhal_hal::versions::v1_0::{Capabilities, ErrorStatus, Model};
use nnhal_hal::{ConstantPools, DeviceStatus};

pub use super::prepared_model::v1_0::PreparedModel;

use super::preparation_callback::PreparedModelCallback;

/// HAL 1.0 `IDevice`.
pub trait Device: Send + Sync + Debug {
    /// HAL `getCapabilities`: the same at every call.
    ///
    /// # Errors
    ///
    /// `DEVICE_UNAVAILABLE`, `GENERAL_FAILURE`.
    fn capabilities(&self) -> Result<Capabilities, ErrorStatus>;

    /// HAL `getSupportedOperations`: for each operation whether the device can run it. `true` promises that
    /// preparing will not fail because of it.
    ///
    /// # Errors
    ///
    /// `DEVICE_UNAVAILABLE`, `GENERAL_FAILURE`, `INVALID_ARGUMENT`; nothing is supported then.
    fn supported_operations(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus>;

    /// HAL `prepareModel`: launches preparing a model. `pools` is valid during the call only: what preparing
    /// and executions need of it is copied.
    ///
    /// Returns `NONE` if it was launched; whatever comes of it is then told to the callback.
    fn prepare_model(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
        callback: PreparedModelCallback,
    ) -> ErrorStatus;

    /// HAL `getStatus`.
    fn status(&self) -> DeviceStatus {
        DeviceStatus::Available
    }
}
