//! The devices of the runtime: those of drivers, and the CPU in this process.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use nnhal::diag::tags;
use nnhal_hal::{
    Capabilities, DeviceInfo, DeviceType, HalVersion, NumberOfCacheFiles, OperandType, PerformanceInfo,
};

use super::result::{ResultCode, RuntimeError, RuntimeResult};
use crate::device::Device;
use crate::devices::Devices;
use crate::error::Remedy;

/// The name of the device that is this process's own CPU.
pub const CPU_DEVICE: &str = "nnapi-reference";

/// The NDK's feature level of the runtime, and so of the CPU in this process: 8.
pub const RUNTIME_FEATURE_LEVEL: i64 = 1_000_008;

/// How often a driver is asked for a worker.
const CONNECT_ATTEMPTS: u32 = 5;

/// A device that models can be compiled for. Clones and equal handles are the same device.
///
/// A driver's device is connected to when it is first needed, and again after its worker has died.
#[derive(Clone, Debug)]
pub struct RuntimeDevice {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    name: String,
    /// What it said with its last connection.
    info: RwLock<Arc<DeviceInfo>>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Cpu,
    Driver(Box<Driver>),
}

#[derive(Debug)]
struct Driver {
    devices: Devices,
    open: Mutex<Option<Device>>,
}

impl PartialEq for RuntimeDevice {
    fn eq(&self, other: &RuntimeDevice) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for RuntimeDevice {}

impl RuntimeDevice {
    pub(super) fn of_driver(info: Arc<DeviceInfo>, devices: Devices) -> RuntimeDevice {
        let open = Mutex::default();
        RuntimeDevice {
            inner: Arc::new(Inner {
                name: info.name.clone(),
                info: RwLock::new(info),
                kind: Kind::Driver(Box::new(Driver { devices, open })),
            }),
        }
    }

    pub(super) fn cpu() -> RuntimeDevice {
        RuntimeDevice {
            inner: Arc::new(Inner {
                name: CPU_DEVICE.to_owned(),
                info: RwLock::new(Arc::new(cpu_info())),
                kind: Kind::Cpu,
            }),
        }
    }

    /// What the device says of itself: since it was connected to for the last time, for a driver may come
    /// back as a newer version.
    #[must_use]
    pub fn info(&self) -> Arc<DeviceInfo> {
        let info = self.inner.info.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&info)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Whether it is the CPU in this process.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        matches!(self.inner.kind, Kind::Cpu)
    }

    /// The NDK's feature level: by the device's version of the HAL, or [`RUNTIME_FEATURE_LEVEL`] for the CPU
    /// in this process.
    #[must_use]
    pub fn feature_level(&self) -> i64 {
        if self.is_cpu() {
            return RUNTIME_FEATURE_LEVEL;
        }
        match self.info().hal_version {
            HalVersion::V1_0 => 27,
            HalVersion::V1_1 => 28,
            HalVersion::V1_2 => 29,
            HalVersion::V1_3 => 30,
            HalVersion::Level6 => 1_000_006,
            HalVersion::Level7 => 1_000_007,
        }
    }

    /// Whether the device says that it supports this vendor extension.
    #[must_use]
    pub fn supports_extension(&self, name: &str) -> bool {
        let info = self.info();
        info.extensions.iter().any(|extension| extension.name == name)
    }

    /// Waits until the device is live: connects to it anew if its worker has died. The role of the NDK's
    /// `ANeuralNetworksDevice_wait`.
    ///
    /// # Errors
    /// [`ResultCode::DeadObject`] if no driver serves it any more.
    pub fn wait(&self) -> RuntimeResult<()> {
        if self.is_cpu() {
            return Ok(());
        }
        let live = self.open().and_then(|device| match device.status() {
            Ok(_) => Ok(device),
            // It has died, and nobody had noticed yet.
            Err(_) => self.open(),
        });
        live.map(drop).map_err(|error| {
            RuntimeError::new(
                ResultCode::DeadObject,
                format!("device {} is not live: {error}", self.name()),
            )
        })
    }

    /// A connection to the device's driver, which is made if there is none that lives.
    pub(super) fn open(&self) -> RuntimeResult<Device> {
        let Kind::Driver(driver) = &self.inner.kind else {
            return Err(RuntimeError::failed(format!(
                "{CPU_DEVICE} is in this process, there is nothing to connect to"
            )));
        };
        let mut open = driver.open.lock().unwrap_or_else(PoisonError::into_inner);
        match &*open {
            Some(device) if device.ended().is_none() => Ok(device.clone()),
            _ => {
                let device = connect(&driver.devices, self.name())?;
                self.heed(device.info())?;
                *open = Some(device.clone());
                Ok(device)
            }
        }
    }
}

impl RuntimeDevice {
    /// Takes what the device says of itself now that it was connected to anew.
    ///
    /// # Errors
    /// [`ResultCode::UnavailableDevice`] if its extensions are others than those by which this runtime gave
    /// numbers to types and operations.
    fn heed(&self, found: &Arc<DeviceInfo>) -> RuntimeResult<()> {
        let known = self.info();
        if *found == known {
            return Ok(());
        }
        if found.extensions != known.extensions {
            return Err(RuntimeError::new(
                ResultCode::UnavailableDevice,
                format!(
                    "device {} came back with other vendor extensions, whose numbers this runtime does not know; open \
                     the runtime anew to use it",
                    self.name()
                ),
            ));
        }
        tracing::info!(
            target: tags::MANAGER,
            device = self.name(),
            from = known.version,
            to = found.version,
            "the device came back as another"
        );
        *self.inner.info.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(found);
        Ok(())
    }

    /// Asks the device something; once more on a new connection, if its worker turns out to have died.
    pub(super) fn ask_live<T>(&self, ask: impl Fn(&Device) -> crate::error::Result<T>) -> RuntimeResult<T> {
        match ask(&self.open()?) {
            Err(error) if error.remedy() == Remedy::Reconnect => {
                tracing::info!(target: tags::MANAGER, %error, "the device is asked again on a new connection");
                // Where no driver is left it was none of the model's doing: it can kill workers only.
                let open = self.open().map_err(|error| match error.is_without_driver() {
                    true => error,
                    false => error.after_death(),
                })?;
                ask(&open).map_err(|error| RuntimeError::from(error).after_death())
            }
            result => Ok(result?),
        }
    }
}

/// Connects to a device. A driver that has no worker at this moment is asked again: it starts one each time.
fn connect(devices: &Devices, name: &str) -> crate::error::Result<Device> {
    for _ in 1..CONNECT_ATTEMPTS {
        match devices.device(name) {
            // A worker that dies while it is greeted is replaced as well.
            Err(error)
                if error.remedy() == Remedy::Reconnect
                    || error.remedy() == Remedy::Retry && !error.is_busy() =>
            {
                tracing::info!(target: tags::MANAGER, %error, "the driver is asked again");
            }
            result => return result,
        }
    }
    devices.device(name)
}

/// What the CPU in this process says of itself: by definition the measure of all others.
fn cpu_info() -> DeviceInfo {
    let types = OperandType::ALL.iter();
    let types = types.filter(|ty| **ty != OperandType::SUBGRAPH && !ty.is_oem());
    DeviceInfo {
        name: CPU_DEVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device_type: DeviceType::Cpu,
        hal_version: HalVersion::LATEST,
        capabilities: Capabilities::uniform(PerformanceInfo::REFERENCE, types.copied()),
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::Extension;

    use super::*;

    #[test]
    fn device_that_comes_back_as_another_is_believed_unless_its_extensions_changed() {
        let device = RuntimeDevice::cpu();
        let mut info = cpu_info();
        info.version = "next".to_owned();
        info.cache_files.model = 3;
        assert!(device.heed(&Arc::new(info.clone())).is_ok());
        assert_eq!(device.info().version, "next");
        assert_eq!(device.info().cache_files.model, 3);
        info.extensions = vec![Extension {
            name: "com.example.new".to_owned(),
            operand_types: Vec::new(),
        }];
        let error = device.heed(&Arc::new(info)).unwrap_err();
        assert_eq!(error.code(), ResultCode::UnavailableDevice);
        assert!(device.info().extensions.is_empty());
    }
}
