//! What this process has once: the runtime, which is set up with the first call that needs it.

use std::sync::{Mutex, PoisonError};

use nnhal_client::runtime::{Runtime, RuntimeOptions};

use crate::device::Device;
use crate::ffi::Handle;
use crate::handles;
use crate::result::{Failure, Outcome};
use crate::types::ANeuralNetworksDevice;

/// The runtime and the pointers that the caller gets to its devices.
#[derive(Debug)]
struct Process {
    id: u32,
    runtime: Runtime,
    /// Addresses of [`ANeuralNetworksDevice`]s, in the order of the runtime's devices. They stay for good.
    devices: Vec<usize>,
}

impl Process {
    fn of(runtime: Runtime) -> Outcome<Process> {
        let mut devices = Vec::new();
        for device in runtime.devices() {
            devices.push(handles::publish::<Device>(Device::new(device.clone()))?.address());
        }
        Ok(Process {
            id: std::process::id(),
            runtime,
            devices,
        })
    }
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Uses what this process has. A child of `fork()` gets a runtime of its own, since it cannot use its parent's.
fn with<T>(body: impl FnOnce(&Process) -> T) -> Outcome<T> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = std::process::id();
    if let Some(current) = process.as_ref().filter(|current| current.id == id) {
        return Ok(body(current));
    }
    let fresh = Process::of(Runtime::open()?)?;
    let result = body(&fresh);
    // The parent's connections are the parent's to close.
    std::mem::forget(process.replace(fresh));
    Ok(result)
}

/// Sets up the runtime in this way, if there is none yet.
pub(crate) fn open_with(options: RuntimeOptions) -> Outcome {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    if process.is_some() {
        return Err(Failure::bad_state("the library is in use already"));
    }
    *process = Some(Process::of(Runtime::with(options)?)?);
    Ok(())
}

/// The runtime.
pub(crate) fn runtime() -> Outcome<Runtime> {
    with(|process| process.runtime.clone())
}

/// How many devices there are.
pub(crate) fn device_count() -> Outcome<usize> {
    with(|process| process.devices.len())
}

/// The caller's pointer to the device with this index.
pub(crate) fn device(index: usize) -> Outcome<Option<Handle<ANeuralNetworksDevice>>> {
    with(|process| process.devices.get(index).copied().map(Handle::with_address))
}
