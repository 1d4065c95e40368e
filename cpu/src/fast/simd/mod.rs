//! Vectors, and the choice of the instructions that compute with them.
//!
//! A kernel is written once, generic over [`Instructions`], and run by [`dispatch`], which compiles it for
//! each instruction set and picks one by what the processor has. Using instructions beyond the build's base
//! set is unsafe, and this module is its only place: values of `avx2::Avx2`, `avx512::Avx512` and
//! `amx::Amx` exist only where the processor has them, so whoever holds one may use them. NEON is in the base
//! set of its architecture, but the functions for its instructions are unsafe all the same.
//!
//! Sixteen 8-bit results come out of sixteen 32-bit sums that stand in the order `[0, 1, 2, 3, 8, 9, 10,
//! 11]`, then the others: the order in which interleaving two rows of 16-bit values leaves their products in
//! two vectors of eight. Instruction sets with vectors of sixteen keep to it, so that what is packed for
//! these is the same for all; products of bytes are for some only, and in [`super::depthwise::bytes`] columns
//! stand in natural order.
//!
//! This folder is the only place that knows architectures. What AMX has is there on all of them; where it is
//! not, its types have no value.

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod amx;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_amx.rs"]
mod amx;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod amx_bytes;
pub(super) mod amx_tiles;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
mod dispatch;
mod instructions;
mod lanes;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;
mod pair;
mod portable;
mod scales;
#[allow(unsafe_code)]
pub(super) mod strided;
#[cfg(test)]
mod tests;
mod vectors;

pub(super) use amx::{Amx, Shaped};
pub use dispatch::permit_tiles;
#[cfg(test)]
pub(super) use dispatch::run_by_each;
pub(super) use dispatch::{dispatch, has_wide, multiplies_bytes, rescales_by_floats, tiles};
pub(crate) use dispatch::{instruction_set, vectorised};
pub(crate) use instructions::Loop;
pub(super) use instructions::{Instructions, Work};
pub(super) use lanes::{COLUMN_ORDER, LANES, WIDE};
pub(super) use scales::{ByteForm, FloatScale, Rescale, RescaleOnce};
pub(super) use vectors::{Columns, Simd};
