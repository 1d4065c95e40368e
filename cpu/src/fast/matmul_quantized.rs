//! Exact products of many rows with a constant matrix of 8-bit integers, which is packed when the model is prepared: as
//! [`super::matmul`] does, with pairs of 16-bit integers.

use super::lines::{Lines, Parts, Walk};
use super::packing::{Packing, PackingError};
use super::requantize::{QuantizedOutput, Requantization, store_wide};
use super::simd::{COLUMN_ORDER, LANES, Simd, Work, dispatch};
use super::tile::{COLUMNS, HALF_ROWS, LanesI16, PANELS, add_i16, for_each_constant, start_i32};
use crate::buffer::AlignedSlice;
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// The extents of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) columns: usize,
    /// Parts of the common dimension that begin with a pair of their own, as the rows of a filter do.
    pub(super) parts: usize,
    /// Values of a part.
    pub(super) part: usize,
}

impl Extents {
    fn pairs(&self) -> usize {
        self.parts * self.part.div_ceil(2)
    }
}

/// A constant matrix of 8-bit integers, widened to 16 bits less its zero point, with what turns a sum into an output
/// value.
#[derive(Debug)]
pub(super) struct PackedI16 {
    /// Pairs along the common dimension.
    pairs: usize,
    /// Panel by panel; for each pair a panel's vectors. The columns of a half panel are in natural order.
    panels: AlignedSlice,
    /// By vector of columns.
    bias: Vec<[i32; LANES]>,
    /// By panel.
    requantization: Vec<Requantization>,
}

impl PackedI16 {
    /// Packs a matrix; `value(column, at)` gives its values, `bias(column)` what sums start from, `multiplier(column)`
    /// what scales them.
    pub(super) fn new(
        extents: Extents,
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedI16, PackingError> {
        let Extents { columns, parts, part } = extents;
        let pairs = extents.pairs();
        let vectors = columns.div_ceil(LANES);
        let bytes = vectors * pairs * size_of::<LanesI16>();
        let panels = packing.part(bytes, |panels| {
            let values: &mut [i16] = bytemuck::cast_slice_mut(panels);
            for (number, panel) in values.chunks_mut((pairs * 2 * COLUMNS).max(1)).enumerate() {
                let width = panel.len() / (2 * pairs);
                for lane in 0..width {
                    let column = number * COLUMNS + column_of(lane, width);
                    for at in 0..if column < columns { parts * part } else { 0 } {
                        let (pair, which) = (at / part * part.div_ceil(2) + at % part / 2, at % part % 2);
                        panel[(pair * width + lane) * 2 + which] = value(column, at);
                    }
                }
            }
        })?;
        let last = columns.saturating_sub(1);
        let bias = (0..vectors)
            .map(|vector| {
                let (number, half) = (vector / 2, vector % 2);
                let width = (vectors * LANES - number * COLUMNS).min(COLUMNS);
                std::array::from_fn(|lane| {
                    bias((number * COLUMNS + column_of(half * LANES + lane, width)).min(last))
                })
            })
            .collect();
        let requantization = (0..vectors.div_ceil(2))
            .map(|number| {
                let width = (vectors * LANES - number * COLUMNS).min(COLUMNS);
                // What is put in order again: for a half panel the natural one.
                let mut multipliers = [multiplier(last); COLUMNS];
                for lane in 0..width {
                    let column = number * COLUMNS + column_of(lane, width);
                    multipliers[COLUMN_ORDER[lane]] = multiplier(column.min(last));
                }
                Requantization::new(multipliers)
            })
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

    /// Pairs along the common dimension: half the length of a row.
    pub(super) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Multiplies rows, parts of which have an even length, with the columns that `output` has.
    pub(super) fn multiply(
        &self,
        lines: Lines<'_, i16>,
        output: Block<'_, u8>,
        (stored, is_signed): (QuantizedOutput, bool),
    ) {
        if is_signed {
            dispatch(Multiply::<true> {
                packed: self,
                lines,
                output,
                stored,
            });
        } else {
            dispatch(Multiply::<false> {
                packed: self,
                lines,
                output,
                stored,
            });
        }
    }

    #[inline(always)]
    fn panel<const H: usize>(&self, number: usize) -> (&[LanesI16], &[[i32; LANES]]) {
        let panels: &[LanesI16] = bytemuck::cast_slice(self.panels.bytes());
        (
            &panels[number * 2 * self.pairs..][..H * self.pairs],
            &self.bias[number * 2..][..H],
        )
    }
}

/// Which of a panel's columns a lane holds.
fn column_of(lane: usize, width: usize) -> usize {
    if width == COLUMNS {
        COLUMN_ORDER[lane]
    } else {
        lane
    }
}

/// How many of the rows that are left the next tile takes, so that none is left alone. Unlike a product of floats, one of
/// integers needs a register before it is added: with six rows sums would travel through memory, and with four the
/// processor multiplies and adds without a pause already.
#[inline(always)]
fn tile_rows(left: usize) -> usize {
    match left {
        6 => 3,
        0..=5 => left,
        _ => 4,
    }
}

struct Multiply<'a, const SIGNED: bool> {
    packed: &'a PackedI16,
    lines: Lines<'a, i16>,
    output: Block<'a, u8>,
    stored: QuantizedOutput,
}

impl<const SIGNED: bool> Work for Multiply<'_, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let columns = self.output.columns();
        let vectors = self.packed.bias.len().min(columns.end.div_ceil(LANES));
        let whole = vectors / 2;
        let mut panel = columns.start / COLUMNS;
        if self.lines.count == 1 {
            while panel + PANELS <= whole {
                self.tile::<S, 1, PANELS, 2>(simd, &mut self.lines.walk(), (0, panel));
                panel += PANELS;
            }
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

impl<const SIGNED: bool> Multiply<'_, SIGNED> {
    #[inline(always)]
    fn whole_panel<S: Simd>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let mut top = 0;
        while top < self.lines.count {
            let (rows, at) = (tile_rows(self.lines.count - top), (top, panel));
            match rows {
                5 => self.tile::<S, 5, 1, 2>(simd, &mut walk, at),
                4 => self.tile::<S, 4, 1, 2>(simd, &mut walk, at),
                3 => self.tile::<S, 3, 1, 2>(simd, &mut walk, at),
                2 => self.tile::<S, 2, 1, 2>(simd, &mut walk, at),
                _ => self.tile::<S, 1, 1, 2>(simd, &mut walk, at),
            }
            top += rows;
        }
    }

    #[inline(always)]
    fn half_panel<S: Simd>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let mut top = 0;
        while top < self.lines.count {
            let at = (top, panel);
            match self.lines.count - top {
                HALF_ROWS.. => {
                    self.tile::<S, HALF_ROWS, 1, 1>(simd, &mut walk, at);
                    top += HALF_ROWS;
                }
                2.. => {
                    self.tile::<S, 2, 1, 1>(simd, &mut walk, at);
                    top += 2;
                }
                _ => {
                    self.tile::<S, 1, 1, 1>(simd, &mut walk, at);
                    top += 1;
                }
            }
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const R: usize, const P: usize, const H: usize>(
        &mut self,
        simd: S,
        walk: &mut Walk,
        (top, first): (usize, usize),
    ) {
        let packed = self.packed;
        let starts: [usize; R] = self.lines.next(walk);
        let mut weights = [&[][..]; P];
        let mut bias = [&[][..]; P];
        for panel in 0..P {
            (weights[panel], bias[panel]) = packed.panel::<H>(first + panel);
        }
        let mut sums = start_i32::<S, R, P, H>(simd, bias);
        let Parts { rows, taps, length } = self.lines.parts;
        for row in 0..rows.0 {
            for tap in 0..taps.0 {
                let part = self.lines.part(&starts, row * rows.1 + tap * taps.1);
                add_i16::<S, R, P, H>(simd, part, weights, &mut sums);
                for weights in &mut weights {
                    *weights = &weights[length / 2 * H..];
                }
            }
        }
        let column = first * COLUMNS - self.output.columns().start;
        let is_whole = self.output.columns().len() - column >= H * LANES;
        if P == 1
            && is_whole
            && let Some(wide) = packed.requantization[first].wide()
        {
            // Row by row without a loop, so that sums stay in registers.
            for_each_constant!(row in [0 1 2 3 4 5 6 7] {
                if row < R {
                    let to = &mut self.output.row(top + row)[column..][..H * LANES];
                    store_wide::<S, SIGNED, H>(simd, wide, sums[row][0], &self.stored, to);
                }
            });
            return;
        }
        for (row, sums) in sums.iter().enumerate() {
            let line = &mut self.output.row(top + row)[column..];
            for (panel, sums) in sums.iter().enumerate() {
                let line = &mut line[panel * COLUMNS..];
                let width = line.len().min(H * LANES);
                let (requantization, to) = (&packed.requantization[first + panel], &mut line[..width]);
                requantization.store::<S, SIGNED, H>(simd, *sums, &self.stored, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Extents, Lines, PackedI16, Packing, QuantizedOutput};
    use crate::fast::testing::each_block;
    use crate::kernels::fixed_point::Multiplier;

    #[test]
    fn quantised_products_are_exact() {
        for (rows, depth, columns) in [(8, 5, 17), (1, 8, 70), (19, 3, 24), (13, 6, 8), (3, 2, 40)] {
            let left = |row: usize, at: usize| (row * 31 + at * 17) as i16 % 255 - 128;
            let weight = |column: usize, at: usize| (column * 13 + at * 29) as i16 % 255 - 100;
            let multiplier = |column: usize| Multiplier::new(0.001 * (column + 1) as f64);
            let extents = Extents {
                columns,
                parts: 1,
                part: depth,
            };
            let bias = |column: usize| column as i32 * 10;
            let packed = PackedI16::new(extents, &mut Packing::Now, weight, bias, multiplier).unwrap();
            let row_length = packed.pairs() * 2;
            let mut values = vec![0_i16; rows * row_length];
            for row in 0..rows {
                for at in 0..depth {
                    values[row * row_length + at] = left(row, at);
                }
            }
            let all = Lines::of_rows(&values, rows, (row_length, row_length));
            let stored = QuantizedOutput {
                zero_point: 4,
                low: -100,
                high: 127,
            };
            let mut output = vec![0; rows * columns];
            each_block(&mut output, (rows, columns), |block| {
                packed.multiply(all, block, (stored, true));
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
}
