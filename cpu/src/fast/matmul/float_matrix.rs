//! A constant matrix of 32-bit floats, packed for what multiplies it fastest on this processor.

use nnhal_os::buffer::AlignedSlice;

use super::bf16x3::PackedBf16x3;
use super::floats::PackedF32;
use super::lines::Lines;
use crate::fast::epilogue::Epilogue;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::{LANES, WIDE, tiles};
use crate::threads::Block;

/// A packed matrix with a bias for each column.
#[derive(Debug)]
pub(in crate::fast) enum FloatMatrix {
    /// For vectors.
    Panels(PackedF32),
    /// For tiles.
    Bf16x3(PackedBf16x3),
}

impl FloatMatrix {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them. `rows` is how many
    /// rows are to be multiplied, if that is known, and how many of their values lie side by side: which form
    /// is the fastest depends on it.
    pub(in crate::fast) fn new(
        rows: (Option<usize>, usize),
        sizes: (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<FloatMatrix, PackingError> {
        if let (Some(amx), (Some(rows), part)) = (tiles(), rows)
            && PackedBf16x3::pays(rows, sizes, part)
        {
            return PackedBf16x3::new(amx, sizes, packing, value, bias).map(FloatMatrix::Bf16x3);
        }
        PackedF32::new(sizes, packing, value, bias).map(FloatMatrix::Panels)
    }

    /// The packed columns.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        match self {
            FloatMatrix::Panels(matrix) => matrix.packed(),
            FloatMatrix::Bf16x3(matrix) => matrix.packed(),
        }
    }

    /// Values along the common dimension.
    pub(in crate::fast) fn depth(&self) -> usize {
        match self {
            FloatMatrix::Panels(matrix) => matrix.depth(),
            FloatMatrix::Bf16x3(matrix) => matrix.depth(),
        }
    }

    /// What multiplies it, for people to read.
    pub(in crate::fast) fn name(&self) -> &'static str {
        match self {
            FloatMatrix::Panels(_) => "f32 matrix product",
            FloatMatrix::Bf16x3(_) => "f32 matrix product by tiles",
        }
    }

    /// The same if its epilogue computes the operations behind it, too.
    pub(in crate::fast) fn name_with_epilogue(&self) -> &'static str {
        match self {
            FloatMatrix::Panels(_) => "f32 matrix product, with the next",
            FloatMatrix::Bf16x3(_) => "f32 matrix product by tiles, with the next",
        }
    }

    /// How many columns are finished at a time: an epilogue other than a clamp is for whole such vectors.
    pub(in crate::fast) fn columns_at_once(&self) -> usize {
        match self {
            FloatMatrix::Panels(_) => LANES,
            FloatMatrix::Bf16x3(_) => WIDE,
        }
    }

    /// How many times as fast as by vectors it is taken to be multiplied. More than was measured (about 1.4,
    /// less by the vectors of four panels), so that helpers are asked for only where they pay.
    pub(in crate::fast) fn times_as_fast(&self) -> u64 {
        match self {
            FloatMatrix::Panels(_) => 1,
            FloatMatrix::Bf16x3(_) => 2,
        }
    }

    /// How many floats of memory multiplying so many rows takes; a multiple of a cache line.
    pub(in crate::fast) fn scratch(&self, rows: usize) -> usize {
        match self {
            FloatMatrix::Panels(_) => 0,
            FloatMatrix::Bf16x3(matrix) => matrix.scratch(rows),
        }
    }

    /// Multiplies rows with the columns that `output` has and does with the results what `epilogue` says.
    /// `scratch` is memory of [`FloatMatrix::scratch`] for that many rows or more, best aligned to cache
    /// lines.
    pub(in crate::fast) fn multiply(
        &self,
        lines: Lines<'_, f32>,
        scratch: &mut [f32],
        output: Block<'_, f32>,
        epilogue: Epilogue<'_>,
    ) {
        match self {
            FloatMatrix::Panels(matrix) => match epilogue {
                Epilogue::Clamp(clamp) => matrix.multiply(lines, output, clamp),
                Epilogue::Added(added) => matrix.multiply(lines, output, added),
                Epilogue::Scaled(scaled) => matrix.multiply(lines, output, scaled),
                Epilogue::AddedAndScaled(both) => matrix.multiply(lines, output, both),
            },
            FloatMatrix::Bf16x3(matrix) => match epilogue {
                Epilogue::Clamp(clamp) => matrix.multiply(lines, scratch, output, clamp),
                Epilogue::Added(added) => matrix.multiply(lines, scratch, output, added),
                Epilogue::Scaled(scaled) => matrix.multiply(lines, scratch, output, scaled),
                Epilogue::AddedAndScaled(both) => matrix.multiply(lines, scratch, output, both),
            },
        }
    }
}
