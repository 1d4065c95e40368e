//! Exact products of many rows of bytes with a constant matrix of 8-bit integers, for instructions that
//! multiply four bytes of a lane at once and add them.
//!
//! The instruction takes unsigned values and signed weights, both less no zero point, so a value `x` is taken
//! as `u = x + 128` where it is signed, and a weight `w` as `v = w - 128` where it is not. With zero points
//! `z` of `u` and `y` of `v`, what is wanted is `sum((u - z) * (v - y)) = sum(u * v) - z * sum(v) - y *
//! sum(u) + count * z * y`, of which all but the first and the third is known when the model is prepared, and
//! the third is the same for all columns of a row. Everything is exact modulo 2^32, as sums are elsewhere.
//!
//! Windows over an image are read in place, each row of a filter as a part of its own. Where a part does not
//! fill its last four, what lies behind it is multiplied with weights of 0, which is right only if `y` is 0:
//! then nothing is subtracted for it.

use nnhal_os::buffer::AlignedSlice;

use super::lines::{Lines, Walk};
use super::matmul_byte_tiles as tiles;
use super::matmul_quantized::Extents;
use super::packing::{Packing, PackingError};
use super::product::{MicroKernel, Product, for_each_part, tall_tiles};
use super::quantized_tile::store_tile;
use super::requantize::{OfPanels, QuantizedOutput, Requantization, in_order};
use super::rescale::range_of_sums;
use super::simd;
use super::simd::strided::Rows;
use super::simd::{Amx, ByteForm, COLUMN_ORDER, Columns, Instructions, Simd, Work, dispatch};
use super::tile::{COLUMNS, add_bytes, start_i32};
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Block;

/// Values that are multiplied at once.
pub(super) const FOUR: usize = 4;

/// A constant matrix of 8-bit integers, with what turns a sum into an output value.
#[derive(Debug)]
pub(super) struct PackedBytes {
    /// With what fills up the parts.
    depth: usize,
    /// Values of a part without that.
    part: usize,
    /// Panel by panel; for each four values along the common dimension a vector of columns in
    /// [`COLUMN_ORDER`].
    panels: AlignedSlice,
    /// By lane; with what is known of the zero points.
    bias: Vec<i32>,
    /// By panel.
    requantization: OfPanels<Requantization>,
    /// The weights' zero point as they are packed.
    weight_zero: i32,
    /// What multiplies many rows, instead of vectors.
    tiles: Option<Amx>,
}

/// The sum of each lane's weights.
fn lane_sums(packed: &[u8], panels: usize, depth: usize) -> Vec<i32> {
    let mut sums = vec![0_i32; panels * COLUMNS];
    let panels = packed.chunks((COLUMNS * depth).max(1));
    for (sums, panel) in sums.chunks_mut(COLUMNS).zip(panels) {
        for fours in panel.chunks_exact(COLUMNS * FOUR) {
            for (sum, four) in sums.iter_mut().zip(fours.as_chunks::<FOUR>().0) {
                let four: i32 = four.iter().map(|weight| i32::from(*weight as i8)).sum();
                *sum = sum.wrapping_add(four);
            }
        }
    }
    sums
}

/// The zero points of a product: of values as unsigned bytes, and of weights as signed ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroPoints {
    pub(super) value: i32,
    pub(super) weight: i32,
}

/// How rows lie for a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLayout {
    /// Bytes from a row to the next.
    pub(super) apart: usize,
    /// Whether they are taken from where they are.
    pub(super) in_place: bool,
}

impl PackedBytes {
    /// Packs a matrix; `weight(column, at)` gives its values as signed bytes, `bias(column)` what sums start
    /// from, `multiplier(column)` what scales them. Parts have whole fours of values unless the weights' zero
    /// point is 0. `rows` is how many rows are to be multiplied, if that is known.
    pub(super) fn new(
        rows: Option<usize>,
        extents: Extents,
        zeros: ZeroPoints,
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i8,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedBytes, PackingError> {
        let Extents { columns, parts, part } = extents;
        let filled = part.next_multiple_of(FOUR);
        debug_assert!(part == filled || zeros.weight == 0);
        let depth = parts * filled;
        let panels = columns.div_ceil(COLUMNS);
        // Lanes without a column are not stored.
        let column_of = |lane: usize| {
            let column = lane / COLUMNS * COLUMNS + COLUMN_ORDER[lane % COLUMNS];
            column.min(columns.saturating_sub(1))
        };
        let amx = simd::tiles()
            .filter(|_| parts == 1 && tiles::suit((columns, depth)) && rows.is_none_or(tiles::pay));
        let behind = amx.map_or(0, |_| tiles::behind(depth));
        let size = panels * COLUMNS * depth;
        let packed = packing.part(size + behind, |bytes| {
            let panels = bytes[..size].chunks_mut((COLUMNS * depth).max(1));
            for (number, panel) in panels.enumerate() {
                for lane in 0..COLUMNS {
                    let column = column_of(number * COLUMNS + lane);
                    for at in 0..parts * part {
                        let place = at / part * filled + at % part;
                        panel[(place / FOUR * COLUMNS + lane) * FOUR + place % FOUR] =
                            weight(column, at) as u8;
                    }
                }
            }
        })?;
        // Of what is packed: the weights themselves may be there no more.
        let zeros_product = (depth as i32).wrapping_mul(zeros.value.wrapping_mul(zeros.weight));
        let with_zeros = |(lane, sum): (usize, i32)| {
            let bias = bias(column_of(lane));
            bias.wrapping_sub(zeros.value.wrapping_mul(sum))
                .wrapping_add(zeros_product)
        };
        let bias: Vec<i32> = lane_sums(&packed.bytes()[..size], panels, depth)
            .into_iter()
            .enumerate()
            .map(with_zeros)
            .collect();
        let multipliers = |panel: usize| {
            std::array::from_fn(|column| {
                multiplier((panel * COLUMNS + column).min(columns.saturating_sub(1)))
            })
        };
        let scale = |panel: Option<usize>, multipliers: [Multiplier; COLUMNS]| {
            let range = |lane: usize| {
                let panel = panel?;
                let packed = &packed.bytes()[panel * COLUMNS * depth..][..COLUMNS * depth];
                let fours = packed.chunks_exact(COLUMNS * FOUR);
                let weights = fours.flat_map(|fours| &fours[lane * FOUR..][..FOUR]);
                let weights = weights.map(|weight| i32::from(*weight as i8) - zeros.weight);
                range_of_sums(bias[panel * COLUMNS + lane], weights)
            };
            Requantization::of_lanes(in_order(multipliers), 0, range)
        };
        let requantization = OfPanels::new(panels, multipliers, scale);
        Ok(PackedBytes {
            depth,
            part,
            panels: packed,
            bias,
            requantization,
            weight_zero: zeros.weight,
            tiles: amx,
        })
    }

    /// What multiplies it, for people to read; fewer rows than are worth tiles, vectors.
    pub(super) fn name(&self) -> &'static str {
        if self.tiles.is_some() {
            return "8-bit matrix product by tiles";
        }
        "8-bit matrix product"
    }

    /// How many times as fast as floats by vectors it is taken to be multiplied.
    pub(super) fn times_as_fast(&self) -> u64 {
        if self.tiles.is_some() {
            return 3;
        }
        2
    }

    /// How rows are to lie for their product, of which so many are multiplied at a time; `can_stay` says
    /// whether unsigned rows lie one behind the other already.
    pub(super) fn layout(&self, rows: usize, can_stay: bool) -> RowLayout {
        let apart = match self.tiles {
            Some(_) if tiles::pay(rows) => tiles::filled(self.depth),
            _ => self.depth,
        };
        RowLayout {
            apart,
            in_place: can_stay && apart == self.depth,
        }
    }

    /// Copies rows that lie one behind the other as they are to lie; bits of `flip` are exchanged in every
    /// value.
    #[inline(always)]
    pub(super) fn copy_rows(&self, rows: &[u8], flip: u8, (to, layout): (&mut [u8], RowLayout)) {
        if let Some(amx) = self.tiles
            && layout.apart > self.depth
        {
            let count = to.len() / layout.apart;
            if count > 0 {
                let rows = Rows::new(rows, (count, self.depth), self.depth);
                amx.copy_rows(rows, flip, &mut to[..count * layout.apart]);
            }
            return;
        }
        debug_assert_eq!(layout.apart, self.depth);
        for (to, value) in to.iter_mut().zip(rows) {
            *to = *value ^ flip;
        }
    }

    /// The packed columns.
    pub(super) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Values along the common dimension, with what fills up its parts.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Where a value of a row without that is in one with it.
    #[inline(always)]
    pub(super) fn place(&self, at: usize) -> usize {
        at / self.part * self.part.next_multiple_of(FOUR) + at % self.part
    }

    /// Whether windows can be multiplied where they lie in an image.
    pub(super) fn reads_windows(&self) -> bool {
        if self.tiles.is_some() {
            return false;
        }
        self.weight_zero == 0
    }

    /// Multiplies windows of unsigned bytes, parts of which are filled up to whole fours by whatever is
    /// behind them, with the columns that `output` has, if [it can](PackedBytes::reads_windows).
    pub(super) fn multiply_windows(
        &self,
        lines: Lines<'_, u8>,
        output: Block<'_, u8>,
        (stored, is_signed): (QuantizedOutput, bool),
    ) {
        dispatch(Product {
            kernel: self.kernel(&[], (stored, is_signed)),
            lines,
            output,
        });
    }

    /// Multiplies rows of unsigned bytes with the columns that `output` has. Rows lie as
    /// [`PackedBytes::layout`] says of so many or more, with zeros behind each; `row_terms` is memory for a
    /// number of each row.
    pub(super) fn multiply(
        &self,
        (rows, layout): (&[u8], RowLayout),
        row_terms: &mut [i32],
        output: Block<'_, u8>,
        (stored, is_signed): (QuantizedOutput, bool),
    ) {
        let count = output.rows();
        let row_terms = &mut row_terms[..count];
        if self.weight_zero != 0 {
            dispatch(SumRows {
                rows,
                sizes: (layout.apart, self.depth),
                zero: self.weight_zero,
                terms: &mut *row_terms,
            });
        }
        let row_terms: &[i32] = if self.weight_zero == 0 { &[] } else { row_terms };
        if let Some(amx) = self.tiles
            && layout.apart == tiles::filled(self.depth)
            && tiles::pay(count)
        {
            return amx.run(tiles::Multiply {
                packed: self,
                amx,
                rows,
                terms: row_terms,
                output,
                stored,
                form: stored.form(is_signed),
            });
        }
        dispatch(Product {
            kernel: self.kernel(row_terms, (stored, is_signed)),
            lines: Lines::of_rows(rows, count, (self.depth, layout.apart)),
            output,
        });
    }

    #[inline(always)]
    fn kernel<'a>(&'a self, row_terms: &'a [i32], (stored, is_signed): (QuantizedOutput, bool)) -> Bytes<'a> {
        Bytes {
            packed: self,
            row_terms,
            stored,
            form: stored.form(is_signed),
        }
    }

    #[inline(always)]
    fn panel<V: Columns>(&self, number: usize) -> (&[V::Pairs], &[i32; COLUMNS]) {
        let size = COLUMNS * self.depth;
        let panel = &self.panels.bytes()[number * size..][..size];
        let bias = &self.bias[number * COLUMNS..][..COLUMNS];
        (bytemuck::cast_slice(panel), &bias.as_chunks().0[0])
    }

    /// The bytes of a panel and all behind it.
    #[inline(always)]
    pub(super) fn tiles_from(&self, number: usize) -> &[u8] {
        &self.panels.bytes()[number * COLUMNS * self.depth..]
    }

    /// What is added to sums of some neighbouring panels.
    ///
    /// # Panics
    /// If there are no such panels.
    #[inline(always)]
    pub(super) fn bias_of<const P: usize>(&self, first: usize) -> &[[i32; COLUMNS]; P] {
        match self.bias.as_chunks().0[first..].first_chunk() {
            Some(panels) => panels,
            None => unreachable!("panels that a matrix has"),
        }
    }

    /// What scales them.
    #[inline(always)]
    pub(super) fn requantization_of<const P: usize>(&self, first: usize) -> [&Requantization; P] {
        self.requantization.of_some(first)
    }
}

/// Works out what is the same for all columns of a row.
struct SumRows<'a> {
    rows: &'a [u8],
    /// Bytes from a row to the next, and of a row.
    sizes: (usize, usize),
    zero: i32,
    terms: &'a mut [i32],
}

impl Work for SumRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let (apart, depth) = self.sizes;
        for (term, row) in self.terms.iter_mut().zip(self.rows.chunks(apart)) {
            let sum = row[..depth]
                .iter()
                .map(|value| i32::from(*value))
                .fold(0, i32::wrapping_add);
            *term = self.zero.wrapping_mul(sum).wrapping_neg();
        }
    }
}

/// Tiles of a matrix of bytes, and what becomes of their sums.
struct Bytes<'a> {
    packed: &'a PackedBytes,
    /// What is added to all columns of a row; empty if that is 0.
    row_terms: &'a [i32],
    stored: QuantizedOutput,
    form: ByteForm,
}

impl MicroKernel for Bytes<'_> {
    type Value = u8;
    type Result = u8;
    type Panels<const P: usize> = usize;
    type Half = ();

    const IS_FOR_WIDE: bool = true;
    const MOST_ROWS: usize = 1;
    const HAS_HALF: bool = false;

    #[inline(always)]
    fn vectors(&self, end: usize) -> usize {
        2 * end.div_ceil(COLUMNS)
    }

    #[inline(always)]
    fn panels<const P: usize>(&self, first: usize, _: usize) -> usize {
        first
    }

    #[inline(always)]
    fn half(&self, _: usize, _: usize) {}

    #[inline(always)]
    fn rows_of_next_tile(left: usize) -> usize {
        left.min(1)
    }

    #[inline(always)]
    fn panels_of_next_tile(left: usize, _: bool) -> usize {
        left.min(2)
    }

    #[inline(always)]
    fn tile<S: Instructions, const R: usize, const P: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        first: &usize,
        walk: &mut Walk,
    ) {
        let (simd, first) = (simd.wide(), *first);
        let run = product.lines.take(walk, R);
        let Bytes {
            packed,
            row_terms,
            stored,
            form,
        } = &product.kernel;
        let mut weights = [&[][..]; P];
        let mut bias = [&[0; COLUMNS]; P];
        for panel in 0..P {
            (weights[panel], bias[panel]) = packed.panel::<S::Wide>(first + panel);
        }
        let mut sums = start_i32::<S::Wide, COLUMNS, R, P>(simd, bias);
        if let Some(terms) = row_terms.get(run.row..run.row + R) {
            for (sums, term) in sums.iter_mut().zip(terms) {
                let term = simd.splat_i32(*term);
                for sum in sums {
                    *sum = simd.add_i32(*sum, term);
                }
            }
        }
        if product.lines.are_whole() {
            add_bytes::<S::Wide, R, P>(simd, product.lines.part(&run, 0), weights, &mut sums);
        } else {
            for_each_part!((part, weights / 4) of product.lines, &run => {
                add_bytes::<S::Wide, R, P>(simd, part, weights, &mut sums);
            });
        }
        let requantization = packed.requantization.of_some(first);
        let column = product.column(first);
        let place = (&mut product.output, run.row, column);
        store_tile::<S::Wide, R, P>(simd, &sums, (&requantization, stored, form), place);
    }

    fn half_tile<S: Instructions, const R: usize>(_: &mut Product<'_, Self>, _: S, _: &(), _: &mut Walk) {
        unreachable!("all panels are whole")
    }

    #[inline(always)]
    fn tall_tiles<S: Instructions>(product: &mut Product<'_, Self>, simd: S, (panel, count): (usize, usize)) {
        tall_tiles!(
            product, simd, (panel, count),
            2: [8 7 6 5 4 3 2 1],
            else 1: [8 7 6 5 4 3 2 1]
        )
    }
}

#[cfg(test)]
#[path = "matmul_bytes_tests.rs"]
mod tests;
