use std::ffi::c_int;
use std::os::fd::IntoRawFd as _;

use nnhal_client::Fence;

use crate::event::Event;
use crate::ffi::{ConstHandle, Handle, Out, duplicate, guard, guard_free};
use crate::handles;
use crate::result::Failure;
use crate::types::ANeuralNetworksEvent;

/// Waits until what the event stands for has ended, and returns how; any number of times.
///
/// What the execution ended with; `OP_FAILED` for a fence that was signalled with an error. Since feature
/// level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksEvent_wait(event: Handle<ANeuralNetworksEvent>) -> c_int {
    guard("ANeuralNetworksEvent_wait", || {
        handles::get::<Event>(&event, "event")?.wait()
    })
}

/// Frees an event; NULL is no error. What it stands for goes on. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksEvent_free(event: Handle<ANeuralNetworksEvent>) {
    guard_free("ANeuralNetworksEvent_free", || handles::free::<Event>(&event));
}

/// Makes an event of a fence: a kernel `sync_file`, an eventfd, or any other descriptor that becomes readable
/// when what it stands for is done. The descriptor is duplicated.
///
/// `BAD_DATA` if it is no descriptor, or one that cannot be waited for. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksEvent_createFromSyncFenceFd(
    sync_fence_fd: c_int,
    event: Out<Handle<ANeuralNetworksEvent>>,
) -> c_int {
    guard("ANeuralNetworksEvent_createFromSyncFenceFd", || {
        event.clear("event")?;
        if sync_fence_fd <= 0 {
            return Err(Failure::bad_data(format!(
                "sync_fence_fd is {sync_fence_fd}, must be above 0"
            )));
        }
        let fence = Fence::from_fd(duplicate(sync_fence_fd)?)
            .map_err(|error| Failure::bad_data(error.to_string()))?;
        handles::create::<Event>(event, Event::Fence(fence))
    })
}

/// A new descriptor of the event's fence, which the caller closes. It becomes readable when the execution has
/// ended.
///
/// `BAD_DATA`, and -1, if the event has no fence. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksEvent_getSyncFenceFd(
    event: ConstHandle<ANeuralNetworksEvent>,
    sync_fence_fd: Out<c_int>,
) -> c_int {
    guard("ANeuralNetworksEvent_getSyncFenceFd", || {
        sync_fence_fd.write(-1);
        let event = handles::get_const::<Event>(&event, "event")?;
        sync_fence_fd.expect("sync_fence_fd")?;
        sync_fence_fd.write(event.fence_fd()?.into_raw_fd());
        Ok(())
    })
}
