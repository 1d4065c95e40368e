//! Products of many rows with a constant matrix, which is packed when the model is prepared.
//!
//! Columns are padded to whole tiles, so that the inner loop has no remainder; rows come in blocks that stay in the
//! second-level cache while every panel of the matrix passes over them.

use super::requantize::Requantization;
use super::tile::{COLUMNS, LEVEL, ROWS, tile_f32, tile_i16};
use crate::buffer::{AlignedBuffer, OutOfMemory};

/// Bytes of rows that are worked on before the next block: about half of a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;

/// How many rows of this many bytes make a block.
pub(super) fn rows_per_block(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes.max(1)).clamp(ROWS, 1 << 12) / ROWS * ROWS
}

/// Where a block's results go: row `row` starts at `row * stride` of `output`.
#[derive(Debug)]
pub(super) struct Destination<'a, T> {
    pub(super) output: &'a mut [T],
    pub(super) stride: usize,
}

/// A constant matrix of 32-bit floats with a bias for each column.
#[derive(Debug)]
pub(super) struct PackedF32 {
    depth: usize,
    columns: usize,
    panels: AlignedBuffer,
    bias: Vec<[f32; COLUMNS]>,
}

impl PackedF32 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them.
    pub(super) fn new(
        columns: usize,
        depth: usize,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedF32, OutOfMemory> {
        let panel_count = columns.div_ceil(COLUMNS);
        let mut panels = AlignedBuffer::new();
        panels.resize(panel_count * depth * COLUMNS * size_of::<f32>())?;
        let values: &mut [f32] = bytemuck::cast_slice_mut(panels.bytes_mut());
        for (number, panel) in values.chunks_exact_mut((depth * COLUMNS).max(1)).enumerate() {
            for at in 0..depth {
                for lane in 0..COLUMNS.min(columns - number * COLUMNS) {
                    panel[at * COLUMNS + lane] = value(number * COLUMNS + lane, at);
                }
            }
        }
        let bias = (0..panel_count)
            .map(|number| {
                std::array::from_fn(|lane| {
                    let column = number * COLUMNS + lane;
                    if column < columns { bias(column) } else { 0.0 }
                })
            })
            .collect();
        Ok(PackedF32 {
            depth,
            columns,
            panels,
            bias,
        })
    }

    /// Values along the common dimension.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Multiplies `count` rows, which start `row_stride` values apart, and cuts the results to a range.
    pub(super) fn multiply(
        &self,
        rows: &[f32],
        row_stride: usize,
        count: usize,
        destination: &mut Destination<'_, f32>,
        (low, high): (f32, f32),
    ) {
        let level = *LEVEL;
        let panels: &[f32] = bytemuck::cast_slice(self.panels.bytes());
        for (number, bias) in self.bias.iter().enumerate() {
            let panel = &panels[number * self.depth * COLUMNS..][..self.depth * COLUMNS];
            let first = number * COLUMNS;
            let width = COLUMNS.min(self.columns - first);
            for top in (0..count).step_by(ROWS) {
                let sums = tile_f32(
                    level,
                    tile_rows(rows, row_stride, self.depth, top, count),
                    panel,
                    bias,
                );
                for (row, sums) in sums.iter().enumerate().take(count - top) {
                    let target = &mut destination.output[(top + row) * destination.stride + first..][..width];
                    for (target, sum) in target.iter_mut().zip(sums) {
                        *target = if *sum < low {
                            low
                        } else if *sum > high {
                            high
                        } else {
                            *sum
                        };
                    }
                }
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
    columns: usize,
    panels: AlignedBuffer,
    bias: Vec<[i32; COLUMNS]>,
    requantization: Vec<Requantization<COLUMNS>>,
}

impl PackedI16 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them, `bias(column)` what sums
    /// start from, `multiplier(column)` what scales them.
    pub(super) fn new(
        columns: usize,
        depth: usize,
        value: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> crate::kernels::fixed_point::Multiplier,
    ) -> Result<PackedI16, OutOfMemory> {
        let (pairs, panel_count) = (depth.div_ceil(2), columns.div_ceil(COLUMNS));
        let mut panels = AlignedBuffer::new();
        panels.resize(panel_count * pairs * 2 * COLUMNS * size_of::<i16>())?;
        let values: &mut [i16] = bytemuck::cast_slice_mut(panels.bytes_mut());
        for (number, panel) in values.chunks_exact_mut((pairs * 2 * COLUMNS).max(1)).enumerate() {
            for at in 0..depth {
                for lane in 0..COLUMNS.min(columns - number * COLUMNS) {
                    panel[(at / 2 * COLUMNS + lane) * 2 + at % 2] = value(number * COLUMNS + lane, at);
                }
            }
        }
        let clamped = |number: usize, lane: usize| (number * COLUMNS + lane).min(columns.saturating_sub(1));
        let bias = (0..panel_count)
            .map(|number| std::array::from_fn(|lane| bias(clamped(number, lane))))
            .collect();
        let requantization = (0..panel_count)
            .map(|number| Requantization::new(std::array::from_fn(|lane| multiplier(clamped(number, lane)))))
            .collect();
        Ok(PackedI16 {
            pairs,
            columns,
            panels,
            bias,
            requantization,
        })
    }

    /// Pairs along the common dimension: the length of a row.
    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Multiplies `count` rows of pairs, one behind the other, and hands every tile row of output values, before
    /// the output's zero point, to `store(row, first column, values)`.
    pub(super) fn multiply(&self, rows: &[i32], count: usize, mut store: impl FnMut(usize, usize, &[i32])) {
        let level = *LEVEL;
        let panels: &[i16] = bytemuck::cast_slice(self.panels.bytes());
        let size = self.pairs * 2 * COLUMNS;
        for (number, (bias, requantization)) in self.bias.iter().zip(&self.requantization).enumerate() {
            let panel = &panels[number * size..][..size];
            let first = number * COLUMNS;
            let width = COLUMNS.min(self.columns - first);
            for top in (0..count).step_by(ROWS) {
                let sums = tile_i16(
                    level,
                    tile_rows(rows, self.pairs, self.pairs, top, count),
                    panel,
                    bias,
                );
                for (row, sums) in sums.iter().enumerate().take(count - top) {
                    store(top + row, first, &requantization.apply(level, sums)[..width]);
                }
            }
        }
    }
}

/// The rows of a tile; the last row stands in for those beyond the end.
fn tile_rows<T>(rows: &[T], stride: usize, depth: usize, top: usize, count: usize) -> [&[T]; ROWS] {
    std::array::from_fn(|row| &rows[(top + row).min(count - 1) * stride..][..depth])
}

#[cfg(test)]
mod tests {
    use super::{Destination, PackedF32, PackedI16};
    use crate::kernels::fixed_point::Multiplier;

    #[test]
    fn odd_sizes_have_no_remainder_trouble() {
        let (rows, depth, columns) = (7, 5, 19);
        let left: Vec<f32> = (0..rows * depth).map(|at| at as f32 % 7.0 - 3.0).collect();
        let weight = |column: usize, at: usize| ((column * 3 + at * 5) % 11) as f32 - 5.0;
        let packed = PackedF32::new(columns, depth, weight, |column| column as f32).unwrap();
        let mut output = vec![0.0; rows * columns];
        let mut destination = Destination {
            output: &mut output,
            stride: columns,
        };
        packed.multiply(&left, depth, rows, &mut destination, (-20.0, 40.0));
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
        let packed = PackedI16::new(columns, depth, weight, |column| column as i32 * 10, multiplier).unwrap();
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
        let mut seen = 0;
        packed.multiply(&pairs, rows, |row, first, found| {
            for (lane, found) in found.iter().enumerate() {
                let column = first + lane;
                let sum: i32 = (0..depth)
                    .map(|at| i32::from(left(row, at)) * i32::from(weight(column, at)))
                    .sum();
                assert_eq!(*found, multiplier(column).apply(sum + column as i32 * 10));
                seen += 1;
            }
        });
        assert_eq!(seen, rows * columns);
    }
}
