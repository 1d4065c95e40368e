//! What this process has once: the runtime, which is set up with the first call that needs it.

use std::sync::{Arc, Mutex, PoisonError};

use nnhal_client::runtime::{Recovery, Runtime, RuntimeOptions};
use nnhal_os::environment;

use crate::device::Device;
use crate::ffi::flush_trace_at_exit;
use crate::result::{Failure, Outcome};

/// Says what compilations do that are not told otherwise when a driver's process dies.
const RECOVERY_VARIABLE: &str = "NNHAL_RECOVERY";

/// The runtime and its devices.
#[derive(Debug)]
struct Process {
    id: u32,
    runtime: Runtime,
    /// In the order of the runtime's devices. They stay for good.
    devices: Vec<Arc<Device>>,
}

impl Process {
    fn of(runtime: Runtime) -> Process {
        let devices = runtime.devices().iter();
        Process {
            id: std::process::id(),
            devices: devices
                .map(|device| Arc::new(Device::new(device.clone())))
                .collect(),
            runtime,
        }
    }
}

/// What [`RECOVERY_VARIABLE`] says: how often an execution is repeated, or who computes it then. Without it,
/// nobody does.
fn recovery() -> Outcome<Recovery> {
    let Some(value) = environment::var_os(RECOVERY_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(Recovery::None);
    };
    if value == "cpu" {
        return Ok(Recovery::OnCpu);
    }
    let attempts = value.to_str().and_then(|value| value.parse().ok());
    attempts.map(repeated).ok_or_else(|| {
        Failure::bad_data(format!(
            "{RECOVERY_VARIABLE} is {}, must be how often an execution is repeated when a driver's process dies: a number \
             such as 1, or 0 for never, or cpu to have the CPU of the program's own process compute then",
            value.display()
        ))
    })
}

/// The policy of repeating an execution at most so often.
pub(crate) fn repeated(attempts: u32) -> Recovery {
    match attempts {
        0 => Recovery::None,
        attempts => Recovery::Reopen { attempts },
    }
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

/// Uses what this process has. A child of `fork()` gets a runtime of its own, since it cannot use its
/// parent's.
fn with<T>(body: impl FnOnce(&Process) -> T) -> Outcome<T> {
    let mut process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = std::process::id();
    if let Some(current) = process.as_ref().filter(|current| current.id == id) {
        return Ok(body(current));
    }
    let options = RuntimeOptions::new().recovery(recovery()?);
    let fresh = Process::of(Runtime::with(options)?);
    // Once: a child of `fork` keeps what its parent has told the C library.
    if process.is_none() {
        flush_trace_at_exit();
    }
    let result = body(&fresh);
    // The parent's connections are the parent's to close.
    std::mem::forget(process.replace(fresh));
    Ok(result)
}

/// The runtime.
pub(crate) fn runtime() -> Outcome<Runtime> {
    with(|process| process.runtime.clone())
}

/// How many devices there are.
pub(crate) fn device_count() -> Outcome<usize> {
    with(|process| process.devices.len())
}

/// The device with this index.
pub(crate) fn device(index: usize) -> Outcome<Option<Arc<Device>>> {
    with(|process| process.devices.get(index).cloned())
}
