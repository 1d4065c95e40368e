//! Exact products of many rows with a constant matrix of 8-bit integers, which is packed when the model is
//! prepared: as [`super::matmul`] does, with pairs of 16-bit integers.

use nnhal_os::buffer::AlignedSlice;

use super::lines::{Lines, Parts, Run, Walk, for_each_tall_tile, rows_of_next_tall_tile};
use super::packing::{Packing, PackingError};
use super::quantized_tile::store_tile;
use super::requantize::{OfPanels, QuantizedOutput, Requantization};
use super::simd::{ByteForm, COLUMN_ORDER, Columns, Instructions, LANES, Simd, WIDE, Work, dispatch};
use super::tile::{COLUMNS, HALF_ROWS, PANELS, Sums, add_i16, for_each_constant, start_i32};
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// The extents of a matrix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) columns: usize,
    /// Parts of the common dimension that begin with a pair of their own, or four values, as the rows of a
    /// filter do.
    pub(super) parts: usize,
    /// Values of a part.
    pub(super) part: usize,
}

impl Extents {
    fn pairs(&self) -> usize {
        self.parts * self.part.div_ceil(2)
    }
}

/// A constant matrix of 8-bit integers, widened to 16 bits less its zero point, with what turns a sum into an
/// output value.
#[derive(Debug)]
pub(super) struct PackedI16 {
    /// Pairs along the common dimension.
    pairs: usize,
    /// Panel by panel; for each pair a panel's vectors. The columns of a half panel are in natural order.
    panels: AlignedSlice,
    /// By lane.
    bias: Vec<i32>,
    /// By panel.
    requantization: OfPanels<Requantization>,
}

impl PackedI16 {
    /// Packs a matrix; `value(column, at)` gives its values, `bias(column)` what sums start from,
    /// `multiplier(column)` what scales them.
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
        let bytes = vectors * LANES * pairs * size_of::<[i16; 2]>();
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
        let bias = (0..vectors * LANES)
            .map(|at| {
                let (number, lane) = (at / COLUMNS, at % COLUMNS);
                let width = (vectors * LANES - number * COLUMNS).min(COLUMNS);
                bias((number * COLUMNS + column_of(lane, width)).min(last))
            })
            .collect();
        let multipliers = |number: usize| {
            let width = (vectors * LANES - number * COLUMNS).min(COLUMNS);
            // What is put in order again: for a half panel the natural one.
            let mut multipliers = [multiplier(last); COLUMNS];
            for lane in 0..width {
                let column = number * COLUMNS + column_of(lane, width);
                multipliers[COLUMN_ORDER[lane]] = multiplier(column.min(last));
            }
            multipliers
        };
        let requantization = OfPanels::new(vectors.div_ceil(2), multipliers, |_, multipliers| {
            Requantization::new(multipliers)
        });
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
        dispatch(Multiply {
            packed: self,
            lines,
            output,
            stored,
            form: stored.form(is_signed),
        });
    }

    /// A panel, or the half of one for narrow vectors: for each pair a vector; and its biases.
    #[inline(always)]
    fn panel<V: Simd<N>, const N: usize>(&self, number: usize) -> (&[V::Pairs], &[i32; N]) {
        let pair = size_of::<[i16; 2]>() * self.pairs;
        let panel = &self.panels.bytes()[number * COLUMNS * pair..][..N * pair];
        let bias = &self.bias[number * COLUMNS..][..N];
        (bytemuck::cast_slice(panel), &bias.as_chunks().0[0])
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

/// How many of the rows that are left the next tile takes, so that none is left alone. Unlike a product of
/// floats, one of integers needs a register before it is added where no instruction does both: with six rows
/// sums would travel through memory, and with four the processor multiplies and adds without a pause already.
#[inline(always)]
fn tile_rows(left: usize) -> usize {
    match left {
        6 => 3,
        0..=5 => left,
        _ => 4,
    }
}

struct Multiply<'a> {
    packed: &'a PackedI16,
    lines: Lines<'a, i16>,
    output: Block<'a, u8>,
    stored: QuantizedOutput,
    form: ByteForm,
}

impl Work for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, simd: S) {
        let columns = self.output.columns();
        let vectors = (self.packed.bias.len() / LANES).min(columns.end.div_ceil(LANES));
        let whole = vectors / 2;
        let wide = simd.wide();
        let mut panel = columns.start / COLUMNS;
        if self.lines.count == 1 {
            while S::HAS_WIDE && panel + 2 * PANELS <= whole {
                self.wide_tile::<S::Wide, 1, { 2 * PANELS }>(wide, &mut self.lines.walk(), panel);
                panel += 2 * PANELS;
            }
            while panel + PANELS <= whole {
                self.wide_tile::<S::Wide, 1, PANELS>(wide, &mut self.lines.walk(), panel);
                panel += PANELS;
            }
        }
        if S::HAS_WIDE {
            while panel < whole {
                let count = (whole - panel).min(2);
                self.tall_tiles(wide, (panel, count));
                panel += count;
            }
        }
        while panel < whole {
            self.whole_panel(simd, panel);
            panel += 1;
        }
        if vectors % 2 == 1 {
            self.half_panel::<S::Wide>((wide, simd.narrow()), whole);
        }
    }
}

impl Multiply<'_> {
    #[inline(always)]
    fn whole_panel<S: Instructions>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        loop {
            match tile_rows(self.lines.left(&walk)) {
                0 => return,
                5 => self.tiles_apart::<S, 5>(simd, &mut walk, panel),
                4 => self.tiles_apart::<S, 4>(simd, &mut walk, panel),
                3 => self.tiles_apart::<S, 3>(simd, &mut walk, panel),
                2 => self.tiles_apart::<S, 2>(simd, &mut walk, panel),
                _ => self.tiles_apart::<S, 1>(simd, &mut walk, panel),
            }
        }
    }

    /// Computes the tiles of this many rows that come next.
    #[inline(always)]
    fn tiles_apart<S: Instructions, const R: usize>(&mut self, simd: S, walk: &mut Walk, panel: usize) {
        simd.apart(Tiles::<R> {
            multiply: self,
            panel,
            walk,
        });
    }

    /// Some panels in tiles for instructions that multiply and add at once, with twice as many registers:
    /// even if what the rows hold is loaded for all of them beforehand, none is short.
    #[inline(always)]
    fn tall_tiles<V: Columns>(&mut self, simd: V, (panel, count): (usize, usize)) {
        match count {
            2 => for_each_tall_tile!((R, walk) in self.lines, [8 7 6 5 4 3 2 1] {
                self.wide_tile::<V, R, 2>(simd, &mut walk, panel);
            }),
            _ => for_each_tall_tile!((R, walk) in self.lines, [8 7 6 5 4 3 2 1] {
                self.wide_tile::<V, R, 1>(simd, &mut walk, panel);
            }),
        }
    }

    #[inline(always)]
    fn half_panel<V: Columns>(&mut self, simd: (V, V::Narrow), panel: usize) {
        let mut walk = self.lines.walk();
        loop {
            match self.lines.left(&walk) {
                0 => return,
                HALF_ROWS.. => self.half_tile::<V, HALF_ROWS>(simd, &mut walk, panel),
                2.. => self.half_tile::<V, 2>(simd, &mut walk, panel),
                _ => self.half_tile::<V, 1>(simd, &mut walk, panel),
            }
        }
    }

    /// The sums of a tile.
    #[inline(always)]
    fn sums<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
        &self,
        simd: V,
        run: &Run,
        first: usize,
    ) -> Sums<V::I32, R, P> {
        let mut weights = [&[][..]; P];
        let mut bias = [&[0; N]; P];
        for panel in 0..P {
            (weights[panel], bias[panel]) = self.packed.panel::<V, N>(first + panel);
        }
        let mut sums = start_i32::<V, N, R, P>(simd, bias);
        let Parts { rows, taps, length } = self.lines.parts;
        for row in 0..rows.0 {
            for tap in 0..taps.0 {
                let part = self.lines.part(run, row * rows.1 + tap * taps.1);
                add_i16::<V, N, R, P>(simd, part, weights, &mut sums);
                for weights in &mut weights {
                    *weights = &weights[length / 2..];
                }
            }
        }
        sums
    }

    /// Computes a tile of the next rows and whole panels.
    #[inline(always)]
    fn wide_tile<V: Columns, const R: usize, const P: usize>(
        &mut self,
        simd: V,
        walk: &mut Walk,
        first: usize,
    ) {
        let run = self.lines.take(walk, R);
        let sums = self.sums::<V, WIDE, R, P>(simd, &run, first);
        let column = first * COLUMNS - self.output.columns().start;
        let requantization = self.packed.requantization.of_some(first);
        let place = (&mut self.output, run.row, column);
        store_tile::<V, R, P>(simd, &sums, (&requantization, &self.stored, &self.form), place);
    }

    /// The same for the half of a panel.
    #[inline(always)]
    fn half_tile<V: Columns, const R: usize>(&mut self, simd: (V, V::Narrow), walk: &mut Walk, panel: usize) {
        let run = self.lines.take(walk, R);
        let sums = self.sums::<V::Narrow, LANES, R, 1>(simd.1, &run, panel);
        let column = panel * COLUMNS - self.output.columns().start;
        let requantization = self.packed.requantization.of(panel);
        for_each_constant!(row in [0 1 2 3 4 5 6 7] {
            if row < R {
                let line = &mut self.output.row(run.row + row)[column..];
                let width = line.len().min(LANES);
                let to = &mut line[..width];
                if self.form.is_signed() {
                    requantization.store_half::<V, true>(simd, sums[row][0], &self.stored, to);
                } else {
                    requantization.store_half::<V, false>(simd, sums[row][0], &self.stored, to);
                }
            }
        });
    }
}

/// The tiles of `R` rows that come next, with one panel.
struct Tiles<'t, 'a, const R: usize> {
    multiply: &'t mut Multiply<'a>,
    panel: usize,
    walk: &'t mut Walk,
}

impl<const R: usize> Work for Tiles<'_, '_, R> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        while tile_rows(self.multiply.lines.left(self.walk)) == R {
            self.multiply
                .wide_tile::<S::Wide, R, 1>(simd.wide(), self.walk, self.panel);
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
