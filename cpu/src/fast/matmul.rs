//! Products of many rows with a constant matrix of 32-bit floats, which is packed when the model is prepared.
//!
//! Columns are padded to whole panels, or half a one at the end, so that the inner loop has no remainder; rows come in
//! blocks that stay in the second-level cache while every panel of the matrix passes over them.

use super::lines::{Lines, Parts, Walk, rows_of_next_tile};
use super::packing::{Packing, PackingError};
use super::simd::{LANES, Simd, Work, dispatch};
use super::tile::{
    COLUMNS, HALF_ROWS, LanesF32, PANELS, ROWS, add_f32, for_each_constant, start_f32, store_f32,
};
use crate::buffer::AlignedSlice;
use crate::threads::Block;

/// Bytes of rows that are worked on before the next block: about half of a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;

/// How many rows of this many bytes make a block.
pub(super) fn rows_per_block(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes.max(1)).clamp(ROWS, 1 << 12) / ROWS * ROWS
}

/// A constant matrix of 32-bit floats with a bias for each column.
#[derive(Debug)]
pub(super) struct PackedF32 {
    depth: usize,
    /// Panel by panel; for each index along the common dimension a panel's vectors.
    panels: AlignedSlice,
    /// By vector of columns.
    bias: Vec<LanesF32>,
}

impl PackedF32 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them.
    pub(super) fn new(
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedF32, PackingError> {
        let vectors = columns.div_ceil(LANES);
        let bytes = vectors * depth * size_of::<LanesF32>();
        let panels = packing.part(bytes, |panels| {
            let values: &mut [f32] = bytemuck::cast_slice_mut(panels);
            for (number, panel) in values.chunks_mut((depth * COLUMNS).max(1)).enumerate() {
                let width = panel.len() / depth;
                for lane in 0..width.min(columns - number * COLUMNS) {
                    for at in 0..depth {
                        panel[at * width + lane] = value(number * COLUMNS + lane, at);
                    }
                }
            }
        })?;
        let bias = (0..vectors)
            .map(|vector| {
                std::array::from_fn(|lane| {
                    let column = vector * LANES + lane;
                    if column < columns { bias(column) } else { 0.0 }
                })
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
    pub(super) fn multiply(&self, lines: Lines<'_, f32>, output: Block<'_, f32>, range: (f32, f32)) {
        dispatch(Multiply {
            packed: self,
            lines,
            output,
            range,
        });
    }

    #[inline(always)]
    fn panel<const H: usize>(&self, number: usize) -> (&[LanesF32], &[LanesF32]) {
        let panels: &[LanesF32] = bytemuck::cast_slice(self.panels.bytes());
        (
            &panels[number * 2 * self.depth..][..H * self.depth],
            &self.bias[number * 2..][..H],
        )
    }
}

struct Multiply<'a> {
    packed: &'a PackedF32,
    lines: Lines<'a, f32>,
    output: Block<'a, f32>,
    range: (f32, f32),
}

/// Panels that are multiplied with one tile of rows after the other.
#[derive(Clone, Copy)]
struct Panels<'a, const P: usize> {
    weights: [&'a [LanesF32]; P],
    bias: [&'a [LanesF32]; P],
    /// In the output.
    column: usize,
}

/// Which rows a tile has.
struct Place<const R: usize> {
    top: usize,
    starts: [usize; R],
}

impl Work for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.output.columns();
        let vectors = self.packed.bias.len().min(columns.end.div_ceil(LANES));
        let whole = vectors / 2;
        let mut panel = columns.start / COLUMNS;
        match self.lines.count {
            1 => {
                while panel + PANELS <= whole {
                    let panels = self.panels::<PANELS, 2>(panel);
                    self.next_tile::<S, 1, PANELS, 2>(simd, &panels, &mut self.lines.walk(), 0);
                    panel += PANELS;
                }
            }
            2 => {
                while panel + 2 <= whole {
                    let panels = self.panels::<2, 2>(panel);
                    self.next_tile::<S, 2, 2, 2>(simd, &panels, &mut self.lines.walk(), 0);
                    panel += 2;
                }
            }
            _ => {}
        }
        while panel < whole {
            self.whole_panel(simd, panel);
            panel += 1;
        }
        if vectors % 2 == 1 {
            self.half_panel(simd, whole);
        }
    }
}

impl<'a> Multiply<'a> {
    #[inline(always)]
    fn panels<const P: usize, const H: usize>(&self, first: usize) -> Panels<'a, P> {
        let mut panels = Panels {
            weights: [&[][..]; P],
            bias: [&[][..]; P],
            column: first * COLUMNS - self.output.columns().start,
        };
        for panel in 0..P {
            (panels.weights[panel], panels.bias[panel]) = self.packed.panel::<H>(first + panel);
        }
        panels
    }

    #[inline(always)]
    fn whole_panel<S: Simd>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let panels = self.panels::<1, 2>(panel);
        let mut top = 0;
        while top < self.lines.count {
            let rows = rows_of_next_tile(self.lines.count - top);
            match rows {
                ROWS => self.next_tile::<S, ROWS, 1, 2>(simd, &panels, &mut walk, top),
                5 => self.next_tile::<S, 5, 1, 2>(simd, &panels, &mut walk, top),
                4 => self.next_tile::<S, 4, 1, 2>(simd, &panels, &mut walk, top),
                3 => self.next_tile::<S, 3, 1, 2>(simd, &panels, &mut walk, top),
                2 => self.next_tile::<S, 2, 1, 2>(simd, &panels, &mut walk, top),
                _ => self.next_tile::<S, 1, 1, 2>(simd, &panels, &mut walk, top),
            };
            top += rows;
        }
    }

    #[inline(always)]
    fn half_panel<S: Simd>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let panels = self.panels::<1, 1>(panel);
        let mut top = 0;
        while top < self.lines.count {
            top += match self.lines.count - top {
                HALF_ROWS.. => self.next_tile::<S, HALF_ROWS, 1, 1>(simd, &panels, &mut walk, top),
                4.. => self.next_tile::<S, 4, 1, 1>(simd, &panels, &mut walk, top),
                2.. => self.next_tile::<S, 2, 1, 1>(simd, &panels, &mut walk, top),
                _ => self.next_tile::<S, 1, 1, 1>(simd, &panels, &mut walk, top),
            };
        }
    }

    /// Computes the tile of the next rows; returns how many they are.
    #[inline(always)]
    fn next_tile<S: Simd, const R: usize, const P: usize, const H: usize>(
        &mut self,
        simd: S,
        panels: &Panels<'_, P>,
        walk: &mut Walk,
        top: usize,
    ) -> usize {
        let starts = self.lines.next(walk);
        self.tile::<S, R, P, H>(simd, panels, &Place { top, starts });
        R
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const P: usize, const H: usize>(
        &mut self,
        simd: S,
        panels: &Panels<'_, P>,
        place: &Place<R>,
    ) {
        let mut sums = start_f32::<S, R, P, H>(simd, panels.bias);
        let Parts { rows, taps, length } = self.lines.parts;
        if (rows.0, taps.0) == (1, 1) {
            // Single pixels, with nothing to step over.
            let part = self.lines.part(&place.starts, 0);
            add_f32::<S, R, P, H>(simd, part, panels.weights, &mut sums);
        } else {
            let mut weights = panels.weights;
            for row in 0..rows.0 {
                for tap in 0..taps.0 {
                    let part = self.lines.part(&place.starts, row * rows.1 + tap * taps.1);
                    add_f32::<S, R, P, H>(simd, part, weights, &mut sums);
                    for weights in &mut weights {
                        *weights = &weights[length * H..];
                    }
                }
            }
        }
        if self.output.columns().len() - panels.column >= P * H * LANES {
            // Row by row without a loop, so that sums stay in registers.
            for_each_constant!(row in [0 1 2 3 4 5 6 7] {
                if row < R {
                    let line = &mut self.output.row(place.top + row)[panels.column..][..P * H * LANES];
                    for panel in 0..P {
                        let to = &mut line[panel * H * LANES..][..H * LANES];
                        store_f32::<S, H>(simd, sums[row][panel], self.range, to);
                    }
                }
            });
            return;
        }
        for (row, sums) in sums.iter().enumerate() {
            let line = &mut self.output.row(place.top + row)[panels.column..];
            for (panel, sums) in sums.iter().enumerate() {
                let line = &mut line[panel * COLUMNS..];
                let width = line.len().min(H * LANES);
                store_f32::<S, H>(simd, *sums, self.range, &mut line[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, PackedF32, Packing};
    use crate::fast::testing::each_block;

    #[test]
    fn odd_sizes_have_no_remainder_trouble() {
        for (rows, depth, columns) in [
            (7, 5, 19),
            (1, 9, 70),
            (2, 3, 40),
            (17, 4, 24),
            (13, 6, 8),
            (3, 2, 3),
            (9, 1, 24),
            (2, 1, 33),
        ] {
            let left: Vec<f32> = (0..rows * depth).map(|at| at as f32 % 7.0 - 3.0).collect();
            let weight = |column: usize, at: usize| ((column * 3 + at * 5) % 11) as f32 - 5.0;
            let packed = PackedF32::new((columns, depth), &mut Packing::Now, weight, |column| {
                column as f32
            })
            .unwrap();
            let mut output = vec![0.0; rows * columns];
            let all = Lines::of_rows(&left, rows, (depth, depth));
            each_block(&mut output, (rows, columns), |block| {
                packed.multiply(all, block, (-20.0, 40.0));
            });
            for row in 0..rows {
                for column in 0..columns {
                    let sum: f32 = (0..depth)
                        .map(|at| left[row * depth + at] * weight(column, at))
                        .sum();
                    let exact = (sum + column as f32).clamp(-20.0, 40.0);
                    assert_eq!(output[row * columns + column], exact, "{rows} {depth} {columns}");
                }
            }
        }
    }
}
