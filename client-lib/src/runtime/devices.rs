//! The runtime itself: which devices there are, and what they can run.

use std::sync::Arc;

use nnhal::diag::tags;
use nnhal_hal::Extension;
use nnhal_hal::validate::ValidModel;

use super::device::RuntimeDevice;
use super::extension_registry::ExtensionRegistry;
use super::options::{Partitioning, Recovery};
use super::result::{RuntimeError, RuntimeResult};
use super::{assignment, cpu};
use crate::devices_options::DevicesOptions;
use crate::error::ErrorKind;
use crate::model::Model;

/// Where a runtime looks for devices, and what its compilations do unless they are told.
#[derive(Clone, Debug, Default)]
pub struct RuntimeOptions {
    devices: DevicesOptions,
    pub(super) partitioning: Partitioning,
    pub(super) recovery: Recovery,
}

impl RuntimeOptions {
    /// The drivers that run, or a private one; partitioning with fallback; no recovery.
    #[must_use]
    pub fn new() -> RuntimeOptions {
        RuntimeOptions::default()
    }

    /// Where to look for drivers.
    #[must_use]
    pub fn devices(mut self, devices: DevicesOptions) -> RuntimeOptions {
        self.devices = devices;
        self
    }

    /// What compilations that are not told otherwise do.
    #[must_use]
    pub fn partitioning(mut self, partitioning: Partitioning) -> RuntimeOptions {
        self.partitioning = partitioning;
        self
    }

    /// What compilations that are not told otherwise do.
    #[must_use]
    pub fn recovery(mut self, recovery: Recovery) -> RuntimeOptions {
        self.recovery = recovery;
        self
    }
}

/// The devices of all drivers and the CPU of this process, and what is compiled for them. Clones are the same
/// runtime.
///
/// The devices are those that were there when it was opened. Connections are made when they are needed.
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    options: RuntimeOptions,
    /// The CPU of this process is the last.
    devices: Vec<RuntimeDevice>,
    extensions: ExtensionRegistry,
}

impl Runtime {
    /// The devices of the drivers that run, or of a private one, and the CPU.
    ///
    /// # Errors
    /// As [`Runtime::with`].
    pub fn open() -> RuntimeResult<Runtime> {
        Runtime::with(RuntimeOptions::new())
    }

    /// The devices that are found so, and the CPU, which is always there: that no driver runs and none can be
    /// started is no error, but a warning in the log.
    ///
    /// # Errors
    /// The directory that [`DevicesOptions::runtime_dir`] named cannot be read.
    pub fn with(options: RuntimeOptions) -> RuntimeResult<Runtime> {
        let found = options.devices.clone().open()?;
        let infos = match found.list() {
            Ok(infos) => infos,
            Err(error) if is_without_drivers(error.kind()) => {
                tracing::warn!(target: tags::MANAGER, %error, "there are no drivers; the CPU of this process is the only device");
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        let mut devices: Vec<RuntimeDevice> = infos
            .into_iter()
            .map(|info| RuntimeDevice::of_driver(info, found.clone()))
            .collect();
        devices.push(RuntimeDevice::cpu());
        let extensions = ExtensionRegistry::of(&devices);
        Ok(Runtime {
            inner: Arc::new(Inner {
                options,
                devices,
                extensions,
            }),
        })
    }

    /// All devices: those of drivers by name, then the CPU of this process.
    #[must_use]
    pub fn devices(&self) -> &[RuntimeDevice] {
        &self.inner.devices
    }

    /// The device with this name.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&RuntimeDevice> {
        self.inner.devices.iter().find(|device| device.name() == name)
    }

    /// The CPU of this process.
    #[must_use]
    pub fn cpu(&self) -> &RuntimeDevice {
        // It is put there when the runtime is opened.
        &self.inner.devices[self.inner.devices.len() - 1]
    }

    /// The vendor extensions that can be used.
    #[must_use]
    pub fn extensions(&self) -> &ExtensionRegistry {
        &self.inner.extensions
    }

    pub(super) fn options(&self) -> &RuntimeOptions {
        &self.inner.options
    }

    /// For each operation of the main graph whether any of these devices can run it. The role of the NDK's
    /// `ANeuralNetworksModel_getSupportedOperationsForDevices`.
    ///
    /// # Errors
    /// [`super::ResultCode::BadData`] if there is no device in the list, one is in it twice or of another
    /// runtime, or the model breaks a rule.
    pub fn supported_operations(&self, model: &Model, devices: &[RuntimeDevice]) -> RuntimeResult<Vec<bool>> {
        self.check_devices(devices)?;
        let valid = self.validate(model)?;
        let answers = assignment::answers(model, &valid, devices, None, &mut None);
        let operations = 0..model.hal().main.operations.len();
        Ok(operations
            .map(|operation| answers.iter().any(|of_device| of_device[operation].is_ok()))
            .collect())
    }

    /// Checks a model by the rules of the HAL.
    pub(super) fn validate(&self, model: &Model) -> RuntimeResult<ValidModel> {
        self.extensions().check(model.hal())?;
        let extensions: Vec<Extension> = self.extensions().extensions().cloned().collect();
        cpu::validate(model, &extensions)
    }

    /// Refuses a list of devices that is none.
    pub(super) fn check_devices(&self, devices: &[RuntimeDevice]) -> RuntimeResult<()> {
        if devices.is_empty() {
            return Err(RuntimeError::bad_data("the list of devices is empty"));
        }
        for (index, device) in devices.iter().enumerate() {
            if devices[..index].contains(device) {
                return Err(RuntimeError::bad_data(format!(
                    "device {} is listed twice",
                    device.name()
                )));
            }
            if !self.inner.devices.contains(device) {
                return Err(RuntimeError::bad_data(format!(
                    "device {} belongs to another runtime",
                    device.name()
                )));
            }
        }
        Ok(())
    }
}

/// Whether an error of looking for drivers only says that there are none.
fn is_without_drivers(error: &ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::NoDriver { .. }
            | ErrorKind::NoDevice { .. }
            | ErrorKind::NoSuchDevice { .. }
            | ErrorKind::PrivateDriver { .. }
    )
}
