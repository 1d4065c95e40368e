//! What this process has once: the runtime, which is set up with the first call that needs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nnhal_client::runtime::{Recovery, Runtime, RuntimeOptions};
use nnhal_os::environment;
use nnhal_os::fork::PerProcess;

use crate::device::Device;
use crate::ffi::flush_trace_at_exit;
use crate::result::{Failure, Outcome};

/// Says what compilations do that are not told otherwise when a driver's process dies.
const RECOVERY_VARIABLE: &str = "NNHAL_RECOVERY";

/// The runtime and its devices.
#[derive(Debug)]
struct Process {
    runtime: Runtime,
    /// In the order of the runtime's devices. They stay for good.
    devices: Vec<Arc<Device>>,
}

impl Process {
    fn of(runtime: Runtime) -> Process {
        let devices = runtime.devices().iter();
        Process {
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

/// A child of `fork()` gets a runtime of its own, since it cannot use its parent's, whose connections are the
/// parent's to close.
static PROCESS: PerProcess<Mutex<Option<Process>>> = PerProcess::new(|| Mutex::new(None));

/// Whether the C library has been told what to do at the exit: a child of `fork` keeps that.
static IS_EXIT_SEEN_TO: AtomicBool = AtomicBool::new(false);

/// Uses what this process has.
fn with<T>(body: impl FnOnce(&Process) -> T) -> Outcome<T> {
    let mut process = PROCESS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(process) = &*process {
        return Ok(body(process));
    }
    let options = RuntimeOptions::new().recovery(recovery()?);
    let fresh = Process::of(Runtime::with(options)?);
    if !IS_EXIT_SEEN_TO.swap(true, Ordering::Relaxed) {
        flush_trace_at_exit();
    }
    Ok(body(process.insert(fresh)))
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

#[cfg(test)]
mod tests {
    use nnhal_os::fork;

    use super::*;

    #[test]
    fn lock_that_is_held_when_the_process_is_copied_keeps_the_copy_from_nothing() {
        let held = (PROCESS.get().lock(), crate::handles::hold());
        let ended = fork::run_in_copy(|| {
            let is_free = PROCESS.get().try_lock().is_ok();
            // A pointer is given out and ended.
            let memory = crate::memory_desc::MemoryDesc::default();
            let handle = crate::handles::publish::<crate::memory_desc::MemoryDesc>(memory);
            u8::from(
                is_free
                    && handle.is_ok_and(|handle| {
                        crate::handles::free::<crate::memory_desc::MemoryDesc>(&handle).is_ok()
                    }),
            )
        });
        drop(held);
        assert!(
            matches!(ended, Ok(status) if format!("{status:?}").contains(", 1)")),
            "{ended:?}"
        );
    }
}
