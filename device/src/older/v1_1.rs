//! The interfaces of HAL 1.1: [`super::v1_0`] and what came with 1.1.

use nnhal_hal::versions::v1_0::ErrorStatus;
use nnhal_hal::versions::v1_1::{Capabilities, Model};
use nnhal_hal::{ConstantPools, ExecutionPreference};

use super::preparation_callback::PreparedModelCallback;
use super::v1_0;

/// HAL 1.1 `IDevice`. Of its methods and those of 1.0 that say the same, only its own are called.
pub trait Device: v1_0::Device {
    /// HAL `getCapabilities_1_1`: the same at every call.
    ///
    /// # Errors
    ///
    /// As [`v1_0::Device::capabilities`].
    fn capabilities_1_1(&self) -> Result<Capabilities, ErrorStatus>;

    /// HAL `getSupportedOperations_1_1`.
    ///
    /// # Errors
    ///
    /// As [`v1_0::Device::supported_operations`].
    fn supported_operations_1_1(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
    ) -> Result<Vec<bool>, ErrorStatus>;

    /// HAL `prepareModel_1_1`: as [`v1_0::Device::prepare_model`], for what executions shall be good at.
    fn prepare_model_1_1(
        &self,
        model: &Model,
        pools: &dyn ConstantPools,
        preference: ExecutionPreference,
        callback: PreparedModelCallback,
    ) -> ErrorStatus;
}
