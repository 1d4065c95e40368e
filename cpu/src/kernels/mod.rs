//! The reference kernels, one file per operation family, and the list that the executor looks them up in.
//!
//! A family is added by one line in [`FAMILIES`].

pub mod activation_range;
mod arithmetic;
mod blocks;
mod concatenation;
pub mod element;
mod fill;
pub mod fixed_point;
mod gather;
mod pad;
mod reshape;
mod slice;
mod split;
#[cfg(test)]
mod testing;
mod tile;
mod transpose;

use nnhal::hal::OperationType;

use crate::kernel::Kernel;

/// The kernels, by family.
const FAMILIES: &[&[(OperationType, Kernel)]] = &[
    arithmetic::KERNELS,
    concatenation::KERNELS,
    fill::KERNELS,
    gather::KERNELS,
    pad::KERNELS,
    reshape::KERNELS,
    slice::KERNELS,
    split::KERNELS,
    tile::KERNELS,
    transpose::KERNELS,
];

/// The kernel of `operation`, or `None` if there is none. Control flow is the executor's own.
#[must_use]
pub fn kernel(operation: OperationType) -> Option<Kernel> {
    FAMILIES
        .iter()
        .copied()
        .flatten()
        .find(|(implemented, _)| *implemented == operation)
        .map(|(_, kernel)| *kernel)
}
