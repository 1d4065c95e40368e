//! The driver daemon of the tests: built with them, so that they need no other build command.
//!
//! If `NNHAL_TEST_ALLOCATIONS` names a file of 4 bytes, the allocations of the supervisor and its workers are
//! counted in it.

#[path = "../counting_allocator.rs"]
mod counting_allocator;

use std::fs::File;
use std::sync::atomic::AtomicU32;

use nnhal_driver::{Daemon, DeviceRegistry};
use nnhal_os::shm::{Access, Mapping, SharedMemory};

#[global_allocator]
static ALLOCATOR: counting_allocator::CountingAllocator = counting_allocator::CountingAllocator;

fn main() -> std::process::ExitCode {
    if let Some(counter) = counter() {
        counting_allocator::share(counter);
    }
    Daemon::new(DeviceRegistry::of_nnhal()).run(std::env::args_os().skip(1))
}

/// The counter that the environment names. It stays mapped to the end.
fn counter() -> Option<&'static AtomicU32> {
    let path = std::env::var_os("NNHAL_TEST_ALLOCATIONS")?;
    let file = File::options().read(true).write(true).open(path).ok()?;
    let memory = SharedMemory::from_fd(file.into(), 4, 4).ok()?;
    let mapping: &'static Mapping = Box::leak(Box::new(Mapping::new(&memory, Access::ReadWrite).ok()?));
    mapping.as_slice().atomic_u32(0).ok()
}
