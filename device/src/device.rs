//! A device, and preparing models for it.

use std::fmt::Debug;
use std::sync::Arc;

use nnhal_hal::validate::ValidModel;
use nnhal_hal::{
    ConstantPools, DeviceInfo, DeviceStatus, ExecutionPreference, Failure, OperationSupport, Priority,
};
use nnhal_os::buffer::AlignedSlice;

use super::memory::host_memory;
use super::{Control, DeviceMemory, PreparedModel};

/// A device.
pub trait Device: Send + Sync + Debug {
    /// What the device says of itself: the same at every call, and from start to start.
    fn info(&self) -> &DeviceInfo;

    /// Whether it can take work now.
    fn status(&self) -> DeviceStatus {
        DeviceStatus::Available
    }

    /// For each operation of the main graph whether the device can run it. `Supported` promises that
    /// [`Device::prepare`] will not fail because of it; IF and WHILE are supported only if everything inside
    /// their subgraphs is. The driver refuses for the device what came after its version of the HAL.
    fn supported_operations(&self, model: &ValidModel, pools: &dyn ConstantPools) -> Vec<OperationSupport>;

    /// Makes a model ready to run. `pools` is valid during the call only: what executions need of it is
    /// copied.
    ///
    /// # Errors
    ///
    /// `MISSED_DEADLINE_*` if a checkpoint says so, `RESOURCE_EXHAUSTED_*` without memory, `GENERAL_FAILURE`
    /// for anything else. Models with operations that the device does not support are refused before.
    fn prepare(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure>;

    /// Makes a model ready to run from the compiled form that one of its prepared models gave: to a
    /// compilation cache, or to be shared with other workers; then `pools` lacks nothing, and the bytes are
    /// those that this device has just given. In a cache it is kept with the device's name and version and
    /// given back only to a device with the same, so the version names everything that the form depends on:
    /// its layout, the processor's instructions. Nothing but its length and the constants' absence has to be
    /// checked for right results; but a client can make such files by itself, so no bytes may do more harm
    /// than compute something wrong. `pools` lacks what the form replaces, and is valid during the call only.
    ///
    /// # Errors
    ///
    /// As [`Device::prepare`]; `GENERAL_FAILURE` also if the form is not that of this model.
    fn restore(
        &self,
        model: Arc<ValidModel>,
        pools: &dyn ConstantPools,
        compiled: AlignedSlice,
        options: &PrepareOptions<'_>,
    ) -> Result<Arc<dyn PreparedModel>, Failure> {
        let _ = (model, pools, compiled, options);
        Err(Failure::general(format!(
            "device {} has no compiled form of models",
            self.info().name
        )))
    }

    /// Makes device memory that holds what `fill` writes, `size` bytes.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED_*` without memory, or what `fill` fails with.
    fn upload(
        &self,
        size: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), Failure>,
    ) -> Result<Arc<dyn DeviceMemory>, Failure> {
        let mut memory = host_memory(size)?;
        fill(memory.bytes_mut())?;
        Ok(Arc::new(memory))
    }
}

/// How to prepare a model.
#[derive(Debug)]
pub struct PrepareOptions<'a> {
    /// What executions shall be good at.
    pub preference: ExecutionPreference,
    /// How executions rank among those of the same client. The driver orders them by itself; this is for
    /// devices whose hardware has priorities too.
    pub priority: Priority,
    /// To be asked between steps.
    pub control: &'a Control<'a>,
}
