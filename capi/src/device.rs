//! Devices.

use std::ffi::CString;
use std::sync::Mutex;

use nnhal_client::runtime::RuntimeDevice;

use crate::codes::DeviceTypeCode;

/// What is behind an `ANeuralNetworksDevice`. It stays as long as the process.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) device: RuntimeDevice,
    pub(crate) name: CString,
    pub(crate) version: CString,
    /// The address of the caller's pointer to it, once the caller has asked for one.
    pub(crate) pointer: Mutex<Option<usize>>,
}

impl Device {
    pub(crate) fn new(device: RuntimeDevice) -> Device {
        // Names and versions come from other processes, which may have put anything into them.
        let text = |text: &str| CString::new(text.replace('\0', "")).unwrap_or_default();
        Device {
            name: text(device.name()),
            version: text(&device.info().version),
            device,
            pointer: Mutex::new(None),
        }
    }

    pub(crate) fn type_code(&self) -> DeviceTypeCode {
        use nnhal_client::DeviceType;
        match self.device.info().device_type {
            DeviceType::Other => DeviceTypeCode::ANEURALNETWORKS_DEVICE_OTHER,
            DeviceType::Cpu => DeviceTypeCode::ANEURALNETWORKS_DEVICE_CPU,
            DeviceType::Gpu => DeviceTypeCode::ANEURALNETWORKS_DEVICE_GPU,
            DeviceType::Accelerator => DeviceTypeCode::ANEURALNETWORKS_DEVICE_ACCELERATOR,
        }
    }
}
