//! Products of many rows with a constant matrix, which is packed when the model is prepared.
//!
//! Columns are padded to whole tiles, so that the inner loop has no remainder; rows come in blocks that stay in the
//! second-level cache while every panel of the matrix passes over them.

use super::packing::{Packing, PackingError};
use super::requantize::{QuantizedOutput, Requantization, in_order};
use super::simd::{COLUMN_ORDER, LANES, Simd, Work, dispatch};
use super::tile::{COLUMNS, ColumnsF32, ColumnsI16, PANELS, ROWS, store_f32, tile_f32, tile_i16};
use crate::buffer::AlignedSlice;
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// Bytes of rows that are worked on before the next block: about half of a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;

/// How many rows of this many bytes make a block.
pub(super) fn rows_per_block(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes.max(1)).clamp(ROWS, 1 << 12) / ROWS * ROWS
}

/// Rows to multiply with a packed matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a, T> {
    pub(super) values: &'a [T],
    /// How far apart rows start.
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl<'a, T> Rows<'a, T> {
    #[inline(always)]
    fn tile<const R: usize>(&self, top: usize) -> [&'a [T]; R] {
        std::array::from_fn(|row| &self.values[(top + row) * self.stride..])
    }
}

/// A constant matrix of 32-bit floats with a bias for each column.
#[derive(Debug)]
pub(super) struct PackedF32 {
    depth: usize,
    panels: AlignedSlice,
    bias: Vec<ColumnsF32>,
}

impl PackedF32 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them.
    pub(super) fn new(
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedF32, PackingError> {
        let panel_count = columns.div_ceil(COLUMNS);
        let bytes = panel_count * depth * COLUMNS * size_of::<f32>();
        let panels = packing.part(bytes, |panels| {
            let values: &mut [f32] = bytemuck::cast_slice_mut(panels);
            for (number, panel) in values.chunks_exact_mut((depth * COLUMNS).max(1)).enumerate() {
                for lane in 0..COLUMNS.min(columns - number * COLUMNS) {
                    for at in 0..depth {
                        panel[at * COLUMNS + lane] = value(number * COLUMNS + lane, at);
                    }
                }
            }
        })?;
        let bias = (0..panel_count)
            .map(|number| {
                let columns: [f32; COLUMNS] = std::array::from_fn(|lane| {
                    let column = number * COLUMNS + lane;
                    if column < columns { bias(column) } else { 0.0 }
                });
                bytemuck::cast(columns)
            })
            .collect();
        Ok(PackedF32 { depth, panels, bias })
    }

    /// The packed columns.
    pub(super) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Values along the common dimension.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Multiplies rows with the columns that `output` has and cuts the results to a range.
    pub(super) fn multiply(&self, rows: Rows<'_, f32>, output: Block<'_, f32>, range: (f32, f32)) {
        dispatch(MultiplyF32 {
            packed: self,
            rows,
            output,
            range,
        });
    }

    #[inline(always)]
    fn panel(&self, number: usize) -> &[ColumnsF32] {
        let panels: &[ColumnsF32] = bytemuck::cast_slice(self.panels.bytes());
        &panels[number * self.depth..][..self.depth]
    }
}

struct MultiplyF32<'a> {
    packed: &'a PackedF32,
    rows: Rows<'a, f32>,
    output: Block<'a, f32>,
    range: (f32, f32),
}

impl Work for MultiplyF32<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.output.columns();
        let panels = columns.end.div_ceil(COLUMNS);
        let mut panel = columns.start / COLUMNS;
        if self.rows.count == 1 {
            while panel + PANELS <= panels {
                self.tile::<S, 1, PANELS>(simd, 0, panel);
                panel += PANELS;
            }
        }
        while panel < panels {
            let mut top = 0;
            while top + ROWS <= self.rows.count {
                self.tile::<S, ROWS, 1>(simd, top, panel);
                top += ROWS;
            }
            match self.rows.count - top {
                0 => {}
                1 => self.tile::<S, 1, 1>(simd, top, panel),
                2 => self.tile::<S, 2, 1>(simd, top, panel),
                3 => self.tile::<S, 3, 1>(simd, top, panel),
                4 => self.tile::<S, 4, 1>(simd, top, panel),
                _ => self.tile::<S, 5, 1>(simd, top, panel),
            }
            panel += 1;
        }
    }
}

impl MultiplyF32<'_> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const P: usize>(&mut self, simd: S, top: usize, first: usize) {
        let packed = self.packed;
        let start = self.output.columns().start;
        let panels = std::array::from_fn(|panel| packed.panel(first + panel));
        let bias = std::array::from_fn(|panel| &packed.bias[first + panel]);
        let sums = tile_f32::<S, R, P>(simd, self.rows.tile(top), panels, bias);
        let (low, high) = (simd.splat(self.range.0), simd.splat(self.range.1));
        for (row, sums) in sums.iter().enumerate() {
            let line = self.output.row(top + row);
            for (panel, sums) in sums.iter().enumerate() {
                let line = &mut line[(first + panel) * COLUMNS - start..];
                let width = line.len().min(COLUMNS);
                store_f32(simd, *sums, low, high, &mut line[..width]);
            }
        }
    }
}

/// A constant matrix of 8-bit integers, widened to 16 bits less its zero point, with what turns a sum into an output
/// value.
#[derive(Debug)]
pub(super) struct PackedI16 {
    /// Pairs along the common dimension.
    pairs: usize,
    panels: AlignedSlice,
    bias: Vec<[[i32; LANES]; 2]>,
    requantization: Vec<Requantization>,
}

impl PackedI16 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them, `bias(column)` what sums
    /// start from, `multiplier(column)` what scales them.
    pub(super) fn new(
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedI16, PackingError> {
        let (pairs, panel_count) = (depth.div_ceil(2), columns.div_ceil(COLUMNS));
        let bytes = panel_count * pairs * 2 * COLUMNS * size_of::<i16>();
        let panels = packing.part(bytes, |panels| {
            let values: &mut [i16] = bytemuck::cast_slice_mut(panels);
            for (number, panel) in values.chunks_exact_mut((pairs * 2 * COLUMNS).max(1)).enumerate() {
                for (lane, column) in COLUMN_ORDER.into_iter().enumerate() {
                    let column = number * COLUMNS + column;
                    for at in 0..if column < columns { depth } else { 0 } {
                        panel[(at / 2 * COLUMNS + lane) * 2 + at % 2] = value(column, at);
                    }
                }
            }
        })?;
        let clamped = |number: usize, lane: usize| (number * COLUMNS + lane).min(columns.saturating_sub(1));
        let bias = (0..panel_count)
            .map(|number| in_order(std::array::from_fn(|lane| bias(clamped(number, lane)))))
            .collect();
        let requantization = (0..panel_count)
            .map(|number| Requantization::new(std::array::from_fn(|lane| multiplier(clamped(number, lane)))))
            .collect();
        Ok(PackedI16 {
            pairs,
            panels,
            bias,
            requantization,
        })
    }

    /// The packed columns.
    pub(super) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Pairs along the common dimension: the length of a row.
    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Multiplies rows of pairs with the columns that `output` has.
    pub(super) fn multiply<const SIGNED: bool>(
        &self,
        rows: Rows<'_, i32>,
        output: Block<'_, u8>,
        stored: QuantizedOutput,
    ) {
        dispatch(MultiplyI16::<SIGNED> {
            packed: self,
            rows,
            output,
            stored,
        });
    }

    #[inline(always)]
    fn panel(&self, number: usize) -> &[ColumnsI16] {
        let panels: &[ColumnsI16] = bytemuck::cast_slice(self.panels.bytes());
        &panels[number * self.pairs..][..self.pairs]
    }
}

struct MultiplyI16<'a, const SIGNED: bool> {
    packed: &'a PackedI16,
    rows: Rows<'a, i32>,
    output: Block<'a, u8>,
    stored: QuantizedOutput,
}

impl<const SIGNED: bool> Work for MultiplyI16<'_, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.output.columns();
        let panels = columns.end.div_ceil(COLUMNS);
        let mut panel = columns.start / COLUMNS;
        if self.rows.count == 1 {
            while panel + PANELS <= panels {
                self.tile::<S, 1, PANELS>(simd, 0, panel);
                panel += PANELS;
            }
        }
        while panel < panels {
            let mut top = 0;
            while top + ROWS <= self.rows.count {
                self.tile::<S, ROWS, 1>(simd, top, panel);
                top += ROWS;
            }
            match self.rows.count - top {
                0 => {}
                1 => self.tile::<S, 1, 1>(simd, top, panel),
                2 => self.tile::<S, 2, 1>(simd, top, panel),
                3 => self.tile::<S, 3, 1>(simd, top, panel),
                4 => self.tile::<S, 4, 1>(simd, top, panel),
                _ => self.tile::<S, 5, 1>(simd, top, panel),
            }
            panel += 1;
        }
    }
}

impl<const SIGNED: bool> MultiplyI16<'_, SIGNED> {
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const P: usize>(&mut self, simd: S, top: usize, first: usize) {
        let packed = self.packed;
        let start = self.output.columns().start;
        let panels = std::array::from_fn(|panel| packed.panel(first + panel));
        let bias = std::array::from_fn(|panel| &packed.bias[first + panel]);
        let sums = tile_i16::<S, R, P>(simd, self.rows.tile(top), panels, bias);
        for (row, sums) in sums.iter().enumerate() {
            let line = self.output.row(top + row);
            for (panel, sums) in sums.iter().enumerate() {
                let line = &mut line[(first + panel) * COLUMNS - start..];
                let width = line.len().min(COLUMNS);
                let requantization = &packed.requantization[first + panel];
                requantization.store::<S, SIGNED>(simd, *sums, &self.stored, &mut line[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PackedF32, PackedI16, Packing, QuantizedOutput, Rows};
    use crate::kernels::fixed_point::Multiplier;
    use crate::threads::{Block, Grid, Team, Threads};

    /// Computes all rows of an output, some columns at a time.
    fn each_block<T: Send>(
        output: &mut [T],
        (rows, columns): (usize, usize),
        work: impl Fn(Block<'_, T>) + Sync,
    ) {
        let grid = Grid {
            rows,
            columns,
            rows_per_block: rows,
            columns_per_block: super::COLUMNS,
        };
        let none: &mut [u8] = &mut [];
        Team::new(Threads::ALONE).for_each_block(1, &grid, (output, none), |block, _| work(block));
    }

    #[test]
    fn odd_sizes_have_no_remainder_trouble() {
        let (rows, depth, columns) = (7, 5, 19);
        let left: Vec<f32> = (0..rows * depth).map(|at| at as f32 % 7.0 - 3.0).collect();
        let weight = |column: usize, at: usize| ((column * 3 + at * 5) % 11) as f32 - 5.0;
        let packed = PackedF32::new((columns, depth), &mut Packing::Now, weight, |column| {
            column as f32
        })
        .unwrap();
        let mut output = vec![0.0; rows * columns];
        let all = Rows {
            values: &left[..],
            stride: depth,
            count: rows,
        };
        each_block(&mut output, (rows, columns), |block| {
            packed.multiply(all, block, (-20.0, 40.0))
        });
        for row in 0..rows {
            for column in 0..columns {
                let sum: f32 = (0..depth)
                    .map(|at| left[row * depth + at] * weight(column, at))
                    .sum();
                let exact = (sum + column as f32).clamp(-20.0, 40.0);
                assert_eq!(output[row * columns + column], exact);
            }
        }
    }

    #[test]
    fn quantised_products_are_exact() {
        let (rows, depth, columns) = (8, 5, 17);
        let left = |row: usize, at: usize| (row * 31 + at * 17) as i16 % 255 - 128;
        let weight = |column: usize, at: usize| (column * 13 + at * 29) as i16 % 255 - 100;
        let multiplier = |column: usize| Multiplier::new(0.001 * (column + 1) as f64);
        let packed = PackedI16::new(
            (columns, depth),
            &mut Packing::Now,
            weight,
            |column| column as i32 * 10,
            multiplier,
        )
        .unwrap();
        let mut values = vec![0_i16; rows * packed.pairs() * 2];
        for row in 0..rows {
            for at in 0..depth {
                values[row * packed.pairs() * 2 + at] = left(row, at);
            }
        }
        let pairs: Vec<i32> = values
            .chunks(2)
            .map(|pair| bytemuck::cast([pair[0], pair[1]]))
            .collect();
        let all = Rows {
            values: &pairs[..],
            stride: packed.pairs(),
            count: rows,
        };
        let stored = QuantizedOutput {
            zero_point: 4,
            low: -100,
            high: 127,
        };
        let mut output = vec![0; rows * columns];
        each_block(&mut output, (rows, columns), |block| {
            packed.multiply::<true>(all, block, stored)
        });
        for row in 0..rows {
            for column in 0..columns {
                let sum: i32 = (0..depth)
                    .map(|at| i32::from(left(row, at)) * i32::from(weight(column, at)))
                    .sum();
                let exact = multiplier(column).apply(sum + column as i32 * 10) + 4;
                assert_eq!(output[row * columns + column] as i8, exact.clamp(-100, 127) as i8);
            }
        }
    }
}
