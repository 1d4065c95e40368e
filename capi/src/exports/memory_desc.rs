use std::ffi::c_int;

use nnhal_client::runtime::Direction;

use crate::compilation::Compilation;
use crate::ffi::{ConstHandle, Handle, In, Out, guard, guard_free};
use crate::handles;
use crate::memory_desc::MemoryDesc;
use crate::types::{ANeuralNetworksCompilation, ANeuralNetworksMemoryDesc};

/// Makes an empty description of a memory. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_create(desc: Out<Handle<ANeuralNetworksMemoryDesc>>) -> c_int {
    guard("ANeuralNetworksMemoryDesc_create", || {
        desc.clear("desc")?;
        handles::create::<MemoryDesc>(desc, MemoryDesc::default())
    })
}

/// Frees a description; NULL is no error. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_free(desc: Handle<ANeuralNetworksMemoryDesc>) {
    guard_free("ANeuralNetworksMemoryDesc_free", || {
        handles::free::<MemoryDesc>(&desc)
    });
}

/// Says that the memory is for an input of a compilation, which makes up `frequency`, above 0 and at most 1,
/// of its uses.
///
/// `BAD_STATE` after `ANeuralNetworksMemoryDesc_finish`; `BAD_DATA` if the compilation is not finished, has
/// no such input, the description has it already, or it contradicts the others in type, quantisation or
/// dimensions. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_addInputRole(
    desc: Handle<ANeuralNetworksMemoryDesc>,
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    frequency: f32,
) -> c_int {
    guard("ANeuralNetworksMemoryDesc_addInputRole", || {
        let desc = handles::get::<MemoryDesc>(&desc, "desc")?;
        let compilation = handles::get_const::<Compilation>(&compilation, "compilation")?;
        desc.add_role(&compilation, Direction::Input, index, frequency)
    })
}

/// As `ANeuralNetworksMemoryDesc_addInputRole` for an output. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_addOutputRole(
    desc: Handle<ANeuralNetworksMemoryDesc>,
    compilation: ConstHandle<ANeuralNetworksCompilation>,
    index: u32,
    frequency: f32,
) -> c_int {
    guard("ANeuralNetworksMemoryDesc_addOutputRole", || {
        let desc = handles::get::<MemoryDesc>(&desc, "desc")?;
        let compilation = handles::get_const::<Compilation>(&compilation, "compilation")?;
        desc.add_role(&compilation, Direction::Output, index, frequency)
    })
}

/// Says dimensions that the roles leave open; 0 for those that stay so. `dimensions` may be NULL if `rank`
/// is 0.
///
/// `BAD_STATE` after `ANeuralNetworksMemoryDesc_finish`; `BAD_DATA` if they contradict the roles. Since
/// feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_setDimensions(
    desc: Handle<ANeuralNetworksMemoryDesc>,
    rank: u32,
    dimensions: In<u32>,
) -> c_int {
    guard("ANeuralNetworksMemoryDesc_setDimensions", || {
        let desc = handles::get::<MemoryDesc>(&desc, "desc")?;
        // More than any tensor has are refused by their number; that many are not read.
        let most = ::nnhal_hal::MAX_RANK as u32 + 1;
        let dimensions = match rank {
            0 => Vec::new(),
            rank => dimensions.list(rank.min(most), "dimensions")?,
        };
        desc.set_dimensions(&dimensions)
    })
}

/// Finishes a description, which must have a role.
///
/// `BAD_DATA` if it has none; `BAD_STATE` if it is finished. Since feature level 30.
#[unsafe(no_mangle)]
pub extern "C" fn ANeuralNetworksMemoryDesc_finish(desc: Handle<ANeuralNetworksMemoryDesc>) -> c_int {
    guard("ANeuralNetworksMemoryDesc_finish", || {
        handles::get::<MemoryDesc>(&desc, "desc")?.finish()
    })
}
