use std::ffi::c_int;

use crate::ffi::{ConstHandle, Handle, In, Out, duplicate, guard, guard_free};
use crate::handles;
use crate::memory::Memory;
use crate::memory_desc::MemoryDesc;
use crate::result::Failure;
use crate::types::{AHardwareBuffer, ANeuralNetworksMemory, ANeuralNetworksMemoryDesc};

/// Makes a memory of `size` bytes from `offset` of a file, memfd or dma-buf, which drivers map. `protect` is
/// `PROT_READ`, or `PROT_READ | PROT_WRITE` for outputs. The descriptor is duplicated.
///
/// `BAD_DATA` if the size is 0 or `fd` is no descriptor. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemory_createFromFd(
    size: usize,
    protect: c_int,
    fd: c_int,
    offset: usize,
    memory: Out<Handle<ANeuralNetworksMemory>>,
) -> c_int {
    guard("ANeuralNetworksMemory_createFromFd", || {
        memory.clear("memory")?;
        if size == 0 {
            return Err(Failure::bad_data("size is 0"));
        }
        let made = Memory::from_fd(duplicate(fd)?, size, protect, offset)?;
        handles::create::<Memory>(memory, made)
    })
}

/// Frees a memory; NULL is no error. What uses it keeps it until then. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemory_free(memory: Handle<ANeuralNetworksMemory>) {
    guard_free("ANeuralNetworksMemory_free", || handles::free::<Memory>(&memory));
}

/// Always fails with `OP_FAILED`: this system has no hardware buffers of Android. Give the dma-buf that is
/// behind yours to `ANeuralNetworksMemory_createFromFd`. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemory_createFromAHardwareBuffer(
    ahwb: In<AHardwareBuffer>,
    memory: Out<Handle<ANeuralNetworksMemory>>,
) -> c_int {
    guard("ANeuralNetworksMemory_createFromAHardwareBuffer", || {
        if ahwb.is_null() {
            return Err(Failure::null("ahwb"));
        }
        memory.clear("memory")?;
        Err(Failure::op_failed(
            "this system has no AHardwareBuffer; give its dma-buf to ANeuralNetworksMemory_createFromFd",
        ))
    })
}

/// Makes a memory as a finished description says: a device's own, or one that processes share where no device
/// has any.
///
/// `BAD_STATE` if the description is not finished; `OP_FAILED`, or what the device answered, if there can be
/// none. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemory_createFromDesc(
    desc: ConstHandle<ANeuralNetworksMemoryDesc>,
    memory: Out<Handle<ANeuralNetworksMemory>>,
) -> c_int {
    guard("ANeuralNetworksMemory_createFromDesc", || {
        desc.expect("desc")?;
        memory.clear("memory")?;
        let desc = handles::get_const::<MemoryDesc>(&desc, "desc")?;
        handles::create::<Memory>(memory, desc.allocate()?)
    })
}

/// Copies all of one memory into another of the same size; one and the same memory is left as it is.
///
/// `BAD_DATA` if the sizes or dimensions differ, or the source was never written; `UNMAPPABLE` if one
/// cannot be mapped. After a failure the destination, if made from a description, has no value. Since
/// feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemory_copy(
    src: ConstHandle<ANeuralNetworksMemory>,
    dst: ConstHandle<ANeuralNetworksMemory>,
) -> c_int {
    guard("ANeuralNetworksMemory_copy", || {
        let from = handles::get_const::<Memory>(&src, "src")?;
        let to = handles::get_const::<Memory>(&dst, "dst")?;
        if std::sync::Arc::ptr_eq(&from, &to) {
            return Ok(());
        }
        Memory::copy(&from, &to)
    })
}
