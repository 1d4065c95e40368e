//! The devices of the runtime: those of drivers, and the CPU in this process.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal::diag::tags;
use nnhal::hal::{
    Capabilities, DeviceInfo, DeviceType, HalVersion, NumberOfCacheFiles, OperandPerformance, OperandType,
    PerformanceInfo,
};

use super::{ResultCode, RuntimeError, RuntimeResult};
use crate::{Device, Devices, Remedy};

/// The name of the device that is this process's own CPU.
pub const CPU_DEVICE: &str = "nnapi-reference";

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
    info: Arc<DeviceInfo>,
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
                info,
                kind: Kind::Driver(Box::new(Driver { devices, open })),
            }),
        }
    }

    pub(super) fn cpu() -> RuntimeDevice {
        RuntimeDevice {
            inner: Arc::new(Inner {
                info: Arc::new(cpu_info()),
                kind: Kind::Cpu,
            }),
        }
    }

    /// What the device says of itself.
    #[must_use]
    pub fn info(&self) -> &Arc<DeviceInfo> {
        &self.inner.info
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.info.name
    }

    /// Whether it is the CPU in this process.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        matches!(self.inner.kind, Kind::Cpu)
    }

    /// The NDK's feature level: 27 to 30 by the device's version of the HAL, 31 for the CPU in this process.
    #[must_use]
    pub fn feature_level(&self) -> i64 {
        if self.is_cpu() {
            return 31;
        }
        match self.inner.info.hal_version {
            HalVersion::V1_0 => 27,
            HalVersion::V1_1 => 28,
            HalVersion::V1_2 => 29,
            HalVersion::V1_3 => 30,
        }
    }

    /// Whether the device says that it supports this vendor extension.
    #[must_use]
    pub fn supports_extension(&self, name: &str) -> bool {
        let extensions = &self.inner.info.extensions;
        extensions.iter().any(|extension| extension.name == name)
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
                if device.info() != self.info() {
                    tracing::warn!(target: tags::MANAGER, device = self.name(), "the device is another one than before");
                }
                *open = Some(device.clone());
                Ok(device)
            }
        }
    }
}

/// Connects to a device. A driver that has no worker at this moment is asked again: it starts one each time.
fn connect(devices: &Devices, name: &str) -> crate::Result<Device> {
    for _ in 1..CONNECT_ATTEMPTS {
        match devices.device(name) {
            Err(error) if error.remedy() == Remedy::Retry && !error.is_busy() => {
                tracing::info!(target: tags::MANAGER, %error, "the driver is asked again");
            }
            result => return result,
        }
    }
    devices.device(name)
}

/// What the CPU in this process says of itself: by definition the measure of all others.
fn cpu_info() -> DeviceInfo {
    let same = PerformanceInfo {
        exec_time: 1.0,
        power_usage: 1.0,
    };
    let types = OperandType::ALL.iter();
    let types = types.filter(|ty| **ty != OperandType::SUBGRAPH && !ty.is_oem());
    DeviceInfo {
        name: CPU_DEVICE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        device_type: DeviceType::Cpu,
        hal_version: HalVersion::LATEST,
        capabilities: Capabilities {
            relaxed_float32_to_float16_performance_scalar: same,
            relaxed_float32_to_float16_performance_tensor: same,
            operand_performance: types
                .map(|&operand_type| OperandPerformance {
                    operand_type,
                    info: same,
                })
                .collect(),
            if_performance: same,
            while_performance: same,
        },
        extensions: Vec::new(),
        cache_files: NumberOfCacheFiles::default(),
    }
}
