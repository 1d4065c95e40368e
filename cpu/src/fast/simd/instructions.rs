//! What an instruction set is to the kernels, and a kernel to the instruction sets.

use super::lanes::LANES;
use super::vectors::{Columns, Simd};

/// An instruction set.
pub(in crate::fast) trait Instructions: Copy {
    /// Vectors of [`LANES`] lanes.
    type Narrow: Simd<LANES>;
    /// Vectors of [`super::WIDE`] lanes, one register or several.
    type Wide: Columns<Narrow = Self::Narrow>;
    /// Whether a wide vector is one register, of which there are 32, instead of two of 16 or four of 32.
    const HAS_WIDE: bool;
    /// Whether [`Columns::add_byte_products`] is an instruction or two for each register.
    const MULTIPLIES_BYTES: bool = false;
    /// Whether a product and a sum that is rounded once is one instruction.
    const FUSES: bool;

    fn narrow(self) -> Self::Narrow;
    fn wide(self) -> Self::Wide;
    /// Runs a part of a kernel as a function of its own where there are few registers: in a large function,
    /// loops are given memory for what would fit into registers.
    fn apart<W: Work>(self, work: W) -> W::Output;
}

/// A kernel with its arguments.
pub(in crate::fast) trait Work {
    /// What it returns.
    type Output;

    /// Computes; to be marked `#[inline(always)]`, as everything that it calls and that is worth vectors.
    fn run<S: Instructions>(self, simd: S) -> Self::Output;
}
/// A loop that becomes one over vectors if it is compiled for instructions that have them. To be marked
/// `#[inline(always)]`.
pub(crate) trait Loop {
    /// Runs it.
    fn run(self);
}
