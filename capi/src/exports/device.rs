use std::ffi::{c_char, c_int};
use std::sync::{Arc, PoisonError};

use nnhal_client::runtime::RuntimeDevice;

use crate::codes::FeatureLevelCode;
use crate::device::Device;
use crate::execution::{DEFAULT_LOOP_TIMEOUT, MAXIMUM_LOOP_TIMEOUT};
use crate::ffi::{ConstHandle, Handle, Out, guard};
use crate::handles;
use crate::process;
use crate::result::{Failure, Outcome};
use crate::types::ANeuralNetworksDevice;

/// The devices of a list, which must have at least one and none twice.
pub(super) fn distinct(devices: Vec<Arc<Device>>) -> Outcome<Vec<RuntimeDevice>> {
    if devices.is_empty() {
        return Err(Failure::bad_data("the list of devices is empty"));
    }
    let mut distinct: Vec<RuntimeDevice> = Vec::new();
    for device in devices {
        if distinct.contains(&device.device) {
            return Err(Failure::bad_data(format!(
                "device {} is listed twice",
                device.device.name()
            )));
        }
        distinct.push(device.device.clone());
    }
    Ok(distinct)
}

/// The caller's pointer to a device: the same at every call.
fn pointer_to(device: &Arc<Device>) -> Outcome<Handle<ANeuralNetworksDevice>> {
    let mut pointer = device.pointer.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = *pointer {
        return Ok(Handle::with_address(address));
    }
    let published = handles::publish::<Device>(Arc::clone(device))?;
    *pointer = Some(published.address());
    Ok(published)
}

/// How many devices there are: those of the drivers that ran when this was first called, and the CPU of this
/// process. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworks_getDeviceCount(numDevices: Out<u32>) -> c_int {
    guard("ANeuralNetworks_getDeviceCount", || {
        numDevices.expect("numDevices")?;
        numDevices.write(u32::try_from(process::device_count()?).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// The device with this index; it is never freed. The CPU of this process, `nnapi-reference`, is the last.
///
/// `BAD_DATA` if there is no such device. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworks_getDevice(
    devIndex: u32,
    device: Out<Handle<ANeuralNetworksDevice>>,
) -> c_int {
    guard("ANeuralNetworks_getDevice", || {
        device.clear("device")?;
        let found = process::device(devIndex as usize)?.ok_or_else(|| {
            Failure::bad_data(format!(
                "there is no device {devIndex}; see ANeuralNetworks_getDeviceCount"
            ))
        })?;
        device.write(pointer_to(&found)?);
        Ok(())
    })
}

/// The device's name, which ends with NUL and stays as long as this process. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_getName(
    device: ConstHandle<ANeuralNetworksDevice>,
    name: Out<*const c_char>,
) -> c_int {
    guard("ANeuralNetworksDevice_getName", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        name.expect("name")?;
        name.write(device.name.as_ptr());
        Ok(())
    })
}

/// The device's kind, a value of `DeviceTypeCode`. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_getType(
    device: ConstHandle<ANeuralNetworksDevice>,
    r#type: Out<i32>,
) -> c_int {
    guard("ANeuralNetworksDevice_getType", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        r#type.expect("type")?;
        r#type.write(device.type_code() as i32);
        Ok(())
    })
}

/// The version of the device's driver, which ends with NUL and stays as long as this process. Since feature
/// level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_getVersion(
    device: ConstHandle<ANeuralNetworksDevice>,
    version: Out<*const c_char>,
) -> c_int {
    guard("ANeuralNetworksDevice_getVersion", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        version.expect("version")?;
        version.write(device.version.as_ptr());
        Ok(())
    })
}

/// The device's feature level, a value of `FeatureLevelCode`. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_getFeatureLevel(
    device: ConstHandle<ANeuralNetworksDevice>,
    featureLevel: Out<i64>,
) -> c_int {
    guard("ANeuralNetworksDevice_getFeatureLevel", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        featureLevel.expect("featureLevel")?;
        featureLevel.write(device.device.feature_level());
        Ok(())
    })
}

/// Waits until the device is live, connecting anew if its driver has died.
///
/// `DEAD_OBJECT` if nobody serves it any more. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksDevice_wait(device: ConstHandle<ANeuralNetworksDevice>) -> c_int {
    guard("ANeuralNetworksDevice_wait", || {
        let device = handles::get_const::<Device>(&device, "device")?;
        Ok(device.device.wait()?)
    })
}

/// How long a loop may take that no limit was set for, in nanoseconds. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworks_getDefaultLoopTimeout() -> u64 {
    DEFAULT_LOOP_TIMEOUT
}

/// The longest that a loop may take, in nanoseconds. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworks_getMaximumLoopTimeout() -> u64 {
    MAXIMUM_LOOP_TIMEOUT
}

/// The feature level of this library, a value of `FeatureLevelCode`. Since feature level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworks_getRuntimeFeatureLevel() -> i64 {
    FeatureLevelCode::ANEURALNETWORKS_FEATURE_LEVEL_8 as i64
}
