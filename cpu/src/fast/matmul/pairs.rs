//! Exact products of many rows with a matrix of 8-bit integers, packed as [`super::floats`] does, but in
//! pairs of 16-bit integers.

use nnhal_os::buffer::AlignedSlice;

use super::floats::Unpacked;
use super::lines::{Lines, Run, Walk};
use super::product::{MicroKernel, Product, for_each_part};
use super::quantized_tile::store_tile;
use super::tile::{COLUMNS, Sums, add_i16, for_each_constant, start_i32};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::requantize::{OfPanels, QuantizedOutput, Requantization};
use crate::fast::simd::{ByteForm, COLUMN_ORDER, Instructions, LANES, Simd, WIDE, dispatch};
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// The extents of a matrix.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Extents {
    pub(in crate::fast) columns: usize,
    /// Parts of the common dimension that begin with a pair of their own, or four values, as the rows of a
    /// filter do.
    pub(in crate::fast) parts: usize,
    /// Values of a part.
    pub(in crate::fast) part: usize,
}

impl Extents {
    fn pairs(&self) -> usize {
        self.parts * self.part.div_ceil(2)
    }
}

/// A constant matrix of 8-bit integers, widened to 16 bits less its zero point, with what turns a sum into an
/// output value.
#[derive(Debug)]
pub(in crate::fast) struct PackedI16 {
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
    pub(in crate::fast) fn new(
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
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Pairs along the common dimension: half the length of a row.
    pub(in crate::fast) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Multiplies rows, parts of which have an even length, with the columns that `output` has.
    pub(in crate::fast) fn multiply(
        &self,
        lines: Lines<'_, i16>,
        output: Block<'_, u8>,
        (stored, is_signed): (QuantizedOutput, bool),
    ) {
        let matrix = MatrixI16 {
            pairs: self.pairs,
            panels: self.panels.bytes(),
            bias: &self.bias,
            requantization: &self.requantization,
        };
        matrix.multiply(lines, output, (stored, is_signed));
    }
}

/// A packed matrix of 16-bit integers in somebody's memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct MatrixI16<'a> {
    pairs: usize,
    panels: &'a [u8],
    bias: &'a [i32],
    requantization: &'a OfPanels<Requantization>,
}

impl<'a> MatrixI16<'a> {
    /// How many 16-bit integers the panels of a matrix take, and how many 32-bit ones its biases.
    pub(in crate::fast) fn lengths((columns, depth): (usize, usize)) -> [usize; 2] {
        let lanes = columns.next_multiple_of(LANES);
        [lanes * 2 * depth.div_ceil(2), lanes]
    }

    /// Packs `columns` columns of `depth` values each into memory of [`MatrixI16::lengths`]; `widen` gives
    /// what a value is less its zero point. Biases are 0.
    pub(in crate::fast) fn pack<T: Copy>(
        (from, widen): (Unpacked<'_, T>, impl Fn(T) -> i16),
        (columns, depth): (usize, usize),
        (panels, bias): (&'a mut [i16], &'a mut [i32]),
        requantization: &'a OfPanels<Requantization>,
    ) -> MatrixI16<'a> {
        let pairs = depth.div_ceil(2);
        bias.fill(0);
        let (of_column, of_row) = if from.by_columns {
            (from.apart, 1)
        } else {
            (1, from.apart)
        };
        for (number, panel) in panels.chunks_mut(pairs * 2 * COLUMNS).enumerate() {
            let width = panel.len() / (2 * pairs);
            for lane in 0..width {
                let column = number * COLUMNS + column_of(lane, width);
                let count = if column < columns { depth } else { 0 };
                for (pair, to) in panel.chunks_exact_mut(2 * width).enumerate() {
                    for which in 0..2 {
                        let at = 2 * pair + which;
                        to[2 * lane + which] = if at < count {
                            widen(from.values[column * of_column + at * of_row])
                        } else {
                            0
                        };
                    }
                }
            }
        }
        MatrixI16 {
            pairs,
            panels: bytemuck::cast_slice(panels),
            bias,
            requantization,
        }
    }

    /// See [`PackedI16::multiply`].
    pub(in crate::fast) fn multiply(
        self,
        lines: Lines<'_, i16>,
        output: Block<'_, u8>,
        (stored, is_signed): (QuantizedOutput, bool),
    ) {
        dispatch(Product {
            kernel: Pairs {
                packed: self,
                stored,
                form: stored.form(is_signed),
            },
            lines,
            output,
        });
    }

    /// A panel, or the half of one for narrow vectors: for each pair a vector; and its biases.
    #[inline(always)]
    fn panel<V: Simd<N>, const N: usize>(&self, number: usize) -> (&'a [V::Pairs], &'a [i32; N]) {
        let pair = size_of::<[i16; 2]>() * self.pairs;
        let panel = &self.panels[number * COLUMNS * pair..][..N * pair];
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

/// Tiles of a matrix of pairs, and what becomes of their sums.
struct Pairs<'a> {
    packed: MatrixI16<'a>,
    stored: QuantizedOutput,
    form: ByteForm,
}

impl MicroKernel for Pairs<'_> {
    type Value = i16;
    type Result = u8;
    type Panels<const N: usize, const P: usize> = usize;

    const MOST_ROWS: usize = 5;
    const HAS_HALF: bool = true;

    #[inline(always)]
    fn vectors(&self, end: usize) -> usize {
        (self.packed.bias.len() / LANES).min(end.div_ceil(LANES))
    }

    #[inline(always)]
    fn panels<const N: usize, const P: usize>(&self, first: usize, _: usize) -> usize {
        first
    }

    #[inline(always)]
    fn rows_of_next_tile(left: usize) -> usize {
        tile_rows(left)
    }

    #[inline(always)]
    fn tile<S: Instructions, const R: usize, const P: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        first: &usize,
        walk: &mut Walk,
    ) {
        let simd = simd.wide();
        let run = product.lines.take(walk, R);
        let sums = product.sums::<S::Wide, WIDE, R, P>(simd, &run, *first);
        let column = product.column(*first);
        let Pairs { packed, stored, form } = &product.kernel;
        let requantization = packed.requantization.of_some(*first);
        let place = (&mut product.output, run.row, column);
        store_tile::<S::Wide, R, P>(simd, &sums, (&requantization, stored, form), place);
    }

    #[inline(always)]
    fn half_tile<S: Instructions, const R: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        panel: &usize,
        walk: &mut Walk,
    ) {
        let run = product.lines.take(walk, R);
        let sums = product.sums::<S::Narrow, LANES, R, 1>(simd.narrow(), &run, *panel);
        let column = product.column(*panel);
        let Pairs { packed, stored, form } = &product.kernel;
        let requantization = packed.requantization.of(*panel);
        let simd = (simd.wide(), simd.narrow());
        for_each_constant!(row in [0 1 2 3 4 5 6 7] {
            if row < R {
                let line = &mut product.output.row(run.row + row)[column..];
                let width = line.len().min(LANES);
                let to = &mut line[..width];
                if form.is_signed() {
                    requantization.store_half::<S::Wide, true>(simd, sums[row][0], stored, to);
                } else {
                    requantization.store_half::<S::Wide, false>(simd, sums[row][0], stored, to);
                }
            }
        });
    }
}

impl Product<'_, Pairs<'_>> {
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
            (weights[panel], bias[panel]) = self.kernel.packed.panel::<V, N>(first + panel);
        }
        let mut sums = start_i32::<V, N, R, P>(simd, bias);
        for_each_part!((part, weights / 2) of self.lines, run => {
            add_i16::<V, N, R, P>(simd, part, weights, &mut sums);
        });
        sums
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
