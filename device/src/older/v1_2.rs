//! The interfaces of HAL 1.2: [`super::v1_1`] and what came with 1.2.
//!
//! `configureExecutionBurst`, `getNumberOfCacheFilesNeeded`, `prepareModelFromCache` and the cache arguments
//! of `prepareModel_1_2` have no counterpart here: bursts and caching are the driver library's.

use nnhal_hal::versions::v1_0::ErrorStatus;
use nnhal_hal::versions::v1_2::{Capabilities, Model};
use nnhal_hal::{ConstantPools, DeviceType, ExecutionPreference, Extension};

pub use super::execution_callback::Executed;
pub use super::prepared_model::v1_2::PreparedModel;

use super::preparation_callback::PreparedModelCallback;
use super::v1_1;

/// HAL 1.2 `IDevice`. Of its methods and those of 1.0 and 1.1 that say the same, only its own are called.
pub trait Device: v1_1::Device {
    /// HAL `getVersionString`: names the release; not empty, another one whenever compiled results could
    /// change.
    ///
    /// # Errors
    ///
    /// `DEVICE_UNAVAILABLE`, `GENERAL_FAILURE`.
    fn version_string(&self) -> Result<String, ErrorStatus>;

    /// HAL `getType`.
    ///
    /// # Errors
    ///
    /// `DEVICE_UNAVAILABLE`, `GENERAL_FAILURE`.
    fn device_type(&self) -> Result<DeviceType, ErrorStatus>;

    /// HAL `getCapabilities_1_2`: the same at every call.
    ///
    /// # Errors
    ///
    /// As [`super::v1_0::Device::capabilities`].
    fn capabilities_1_2(&self) -> Result<Capabilities, ErrorStatus>;

    /// HAL `getSupportedExtensions`.
    ///
    /// # Errors
    ///
    /// `DEVICE_UNAVAILABLE`, `GENERAL_FAILURE`.
    fn supported_extensions(&self) -> Result<Vec<Extension>, ErrorStatus> {
        Ok(Vec::new())
    }

    /// HAL `getSupportedOperations_1_2`.
    ///
    /// # Errors
    ///
    /// As [`super::v1_0::Device::supported_operations`].
    fn supported_operations_1_2(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus>;

    /// HAL `prepareModel_1_2`, without the cache's arguments: as [`v1_1::Device::prepare_model_1_1`].
    fn prepare_model_1_2(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
        preference: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> ErrorStatus;
}
