use std::ffi::{c_char, c_int};

use nnhal_client::runtime::Direction;

use super::arguments::objects;
use crate::codes::ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN;
use crate::compilation::{Compilation, PreferredMemory};
use crate::device::Device;
use crate::ffi::{ConstHandle, Handle, In, Out, guard, guard_free};
use crate::handles;
use crate::model::Model;
use crate::result::Outcome;
use crate::types::{ANeuralNetworksCompilation, ANeuralNetworksDevice, ANeuralNetworksModel};

/// Makes a compilation of a finished model for all devices together. Operations go where they run best; where
/// a driver refuses, the CPU of this process takes over.
///
/// `BAD_STATE` if the model is not finished. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_create(
    model: Handle<ANeuralNetworksModel>,
    compilation: Out<Handle<ANeuralNetworksCompilation>>,
) -> c_int {
    guard("ANeuralNetworksCompilation_create", || {
        model.expect("model")?;
        compilation.clear("compilation")?;
        let model = handles::get::<Model>(&model, "model")?;
        let made = Compilation::new(model.finished()?, None);
        handles::create::<Compilation>(compilation, made)
    })
}

/// Makes a compilation of a finished model for these devices and no others, not even the CPU of this process.
///
/// `BAD_DATA` if there are no devices or one is listed twice; `BAD_STATE` if the model is not finished. Since
/// feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_createForDevices(
    model: Handle<ANeuralNetworksModel>,
    devices: In<ConstHandle<ANeuralNetworksDevice>>,
    numDevices: u32,
    compilation: Out<Handle<ANeuralNetworksCompilation>>,
) -> c_int {
    guard("ANeuralNetworksCompilation_createForDevices", || {
        model.expect("model")?;
        devices.expect("devices")?;
        compilation.clear("compilation")?;
        let model = handles::get::<Model>(&model, "model")?;
        let devices = super::device::distinct(objects::<Device>(devices, numDevices, "devices")?)?;
        let made = Compilation::new(model.finished()?, Some(devices));
        handles::create::<Compilation>(compilation, made)
    })
}

/// Frees a compilation; NULL is no error. Its executions and bursts keep what they need. Since feature
/// level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_free(compilation: Handle<ANeuralNetworksCompilation>) {
    guard_free("ANeuralNetworksCompilation_free", || {
        handles::free::<Compilation>(&compilation)
    });
}

/// Says what executions shall be good at: a value of `PreferenceCode`.
///
/// `BAD_DATA` for other values; `BAD_STATE` if the compilation is finished. Since feature level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_setPreference(
    compilation: Handle<ANeuralNetworksCompilation>,
    preference: i32,
) -> c_int {
    guard("ANeuralNetworksCompilation_setPreference", || {
        handles::get::<Compilation>(&compilation, "compilation")?.set_preference(preference)
    })
}

/// Says which compilations of this process go first: a value of `PriorityCode`.
///
/// `BAD_DATA` for other values; `BAD_STATE` if the compilation is finished. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_setPriority(
    compilation: Handle<ANeuralNetworksCompilation>,
    priority: c_int,
) -> c_int {
    guard("ANeuralNetworksCompilation_setPriority", || {
        handles::get::<Compilation>(&compilation, "compilation")?.set_priority(priority)
    })
}

/// Limits how long `ANeuralNetworksCompilation_finish` may take, in nanoseconds; 0 is no limit.
///
/// `BAD_DATA` unless the compilation was made for exactly one named device; `BAD_STATE` if it is finished.
/// Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_setTimeout(
    compilation: Handle<ANeuralNetworksCompilation>,
    duration: u64,
) -> c_int {
    guard("ANeuralNetworksCompilation_setTimeout", || {
        handles::get::<Compilation>(&compilation, "compilation")?.set_timeout(duration)
    })
}

/// Keeps what compiling gives in a directory, for the next compilation with the same token of
/// `ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN` bytes, which names the model and all that the result depends
/// on.
///
/// `BAD_STATE` if the compilation is finished. Trouble with the files is no error: the model is compiled
/// anew. Since feature level 29.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_setCaching(
    compilation: Handle<ANeuralNetworksCompilation>,
    cacheDir: In<c_char>,
    token: In<u8>,
) -> c_int {
    guard("ANeuralNetworksCompilation_setCaching", || {
        let compilation = handles::get::<Compilation>(&compilation, "compilation")?;
        let directory = cacheDir.text("cacheDir")?;
        let bytes = token.list(ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN as u32, "token")?;
        let mut token = [0; ANEURALNETWORKS_BYTE_SIZE_OF_CACHE_TOKEN];
        token.copy_from_slice(&bytes);
        compilation.set_caching(directory, token)
    })
}

/// Compiles the model, after which the compilation cannot be changed any more.
///
/// `BAD_DATA` if no device can run some operation; `MISSED_DEADLINE_TRANSIENT` or
/// `MISSED_DEADLINE_PERSISTENT` if it takes too long; `BAD_STATE` if it is finished already. Since feature
/// level 27.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_finish(
    compilation: Handle<ANeuralNetworksCompilation>,
) -> c_int {
    guard("ANeuralNetworksCompilation_finish", || {
        handles::get::<Compilation>(&compilation, "compilation")?.finish()
    })
}

/// Writes what a finished compilation prefers for the memory of an argument.
fn prefer(
    compilation: &ConstHandle<ANeuralNetworksCompilation>,
    direction: Direction,
    index: u32,
    (place, name): (Out<u32>, &str),
    choose: impl FnOnce(PreferredMemory) -> u32,
) -> Outcome {
    let compilation = handles::get_const::<Compilation>(compilation, "compilation")?;
    place.expect(name)?;
    place.write(choose(compilation.preferred_memory(direction, index)?));
    Ok(())
}

/// The alignment in bytes, a power of two, that an input's buffer is best given. Others work as well.
///
/// `BAD_STATE` if the compilation is not finished; `BAD_DATA` if there is no such input. Since feature
/// level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput(
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    alignment: Out<u32>,
) -> c_int {
    guard(
        "ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput",
        || {
            let preferred = (alignment, "alignment");
            prefer(&compilation, Direction::Input, index, preferred, |memory| {
                memory.alignment
            })
        },
    )
}

/// The multiple of bytes, a power of two, to which an input's buffer is best made. Others work as well; see
/// `ANeuralNetworksExecution_enableInputAndOutputPadding` for longer ones.
///
/// `BAD_STATE` if the compilation is not finished; `BAD_DATA` if there is no such input. Since feature
/// level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput(
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    padding: Out<u32>,
) -> c_int {
    guard(
        "ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput",
        || {
            let preferred = (padding, "padding");
            prefer(&compilation, Direction::Input, index, preferred, |memory| {
                memory.padding
            })
        },
    )
}

/// As `ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput` for an output. Since feature level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput(
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    alignment: Out<u32>,
) -> c_int {
    guard(
        "ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput",
        || {
            let preferred = (alignment, "alignment");
            prefer(&compilation, Direction::Output, index, preferred, |memory| {
                memory.alignment
            })
        },
    )
}

/// As `ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput` for an output. Since feature level 31.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput(
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    padding: Out<u32>,
) -> c_int {
    guard(
        "ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput",
        || {
            let preferred = (padding, "padding");
            prefer(&compilation, Direction::Output, index, preferred, |memory| {
                memory.padding
            })
        },
    )
}
