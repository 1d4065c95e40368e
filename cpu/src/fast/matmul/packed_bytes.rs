//! A constant matrix of 8-bit integers, packed for products with rows of bytes; see [`super::bytes`].

use nnhal_os::buffer::AlignedSlice;

use super::pairs::Extents;
use super::tile::COLUMNS;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::requantize::{OfPanels, Requantization, in_order};
use crate::fast::rescale::range_of_sums;
use crate::fast::simd;
use crate::fast::simd::amx_tiles::{DEEP_BYTES, SIDE};
use crate::fast::simd::strided::Rows;
use crate::fast::simd::{Amx, COLUMN_ORDER, Columns};
use crate::kernels::fixed_point::Multiplier;
use crate::plan::cost::{
    LEAST_DEPTH_FOR_BYTE_TILES, LEAST_ROWS_FOR_BYTE_TILES, LEAST_WEIGHTS_FOR_BYTE_TILES,
};

/// Values that are multiplied at once.
pub(in crate::fast) const FOUR: usize = 4;

/// Whether tiles are worth it for so many columns of so many values.
fn suit_tiles((columns, depth): (usize, usize)) -> bool {
    depth >= LEAST_DEPTH_FOR_BYTE_TILES && columns * depth >= LEAST_WEIGHTS_FOR_BYTE_TILES
}

/// Whether they are for so many rows.
pub(in crate::fast) fn pay_tiles(rows: usize) -> bool {
    rows >= LEAST_ROWS_FOR_BYTE_TILES
}

/// Bytes of a row of so many values with the zeros that fill it up.
pub(in crate::fast) fn filled(depth: usize) -> usize {
    depth.next_multiple_of(DEEP_BYTES)
}

/// Bytes that must be behind the last panel of so many values along the common dimension.
fn behind_tiles(depth: usize) -> usize {
    (filled(depth) - depth) * SIDE
}

/// A constant matrix of 8-bit integers, with what turns a sum into an output value.
#[derive(Debug)]
pub(in crate::fast) struct PackedBytes {
    /// With what fills up the parts.
    pub(in crate::fast) depth: usize,
    /// Panel by panel; for each four values along the common dimension a vector of columns in
    /// [`COLUMN_ORDER`].
    panels: AlignedSlice,
    /// By lane; with what is known of the zero points.
    pub(in crate::fast) bias: Vec<i32>,
    /// By panel.
    pub(in crate::fast) requantization: OfPanels<Requantization>,
    /// The weights' zero point as they are packed.
    pub(in crate::fast) weight_zero: i32,
    /// What multiplies many rows, instead of vectors.
    pub(in crate::fast) tiles: Option<Amx>,
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
pub(in crate::fast) struct ZeroPoints {
    pub(in crate::fast) value: i32,
    pub(in crate::fast) weight: i32,
}

/// How rows lie for a product.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct RowLayout {
    /// Bytes from a row to the next.
    pub(in crate::fast) apart: usize,
    /// Whether they are taken from where they are.
    pub(in crate::fast) in_place: bool,
}

impl PackedBytes {
    /// Packs a matrix; `weight(column, at)` gives its values as signed bytes, `bias(column)` what sums start
    /// from, `multiplier(column)` what scales them. Parts have whole fours of values unless the weights' zero
    /// point is 0. `rows` is how many rows are to be multiplied, if that is known.
    pub(in crate::fast) fn new(
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
            .filter(|_| parts == 1 && suit_tiles((columns, depth)) && rows.is_none_or(pay_tiles));
        let behind = amx.map_or(0, |_| behind_tiles(depth));
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
            panels: packed,
            bias,
            requantization,
            weight_zero: zeros.weight,
            tiles: amx,
        })
    }

    /// What multiplies it, for people to read; fewer rows than are worth tiles, vectors.
    pub(in crate::fast) fn name(&self) -> &'static str {
        if self.tiles.is_some() {
            return "8-bit matrix product by tiles";
        }
        "8-bit matrix product"
    }

    /// How many times as fast as floats by vectors it is taken to be multiplied.
    pub(in crate::fast) fn times_as_fast(&self) -> u64 {
        if self.tiles.is_some() {
            return 3;
        }
        2
    }

    /// How rows are to lie for their product, of which so many are multiplied at a time; `can_stay` says
    /// whether unsigned rows lie one behind the other already.
    pub(in crate::fast) fn layout(&self, rows: usize, can_stay: bool) -> RowLayout {
        let apart = match self.tiles {
            Some(_) if pay_tiles(rows) => filled(self.depth),
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
    pub(in crate::fast) fn copy_rows(&self, rows: &[u8], flip: u8, (to, layout): (&mut [u8], RowLayout)) {
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
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Values along the common dimension, with what fills up its parts.
    pub(in crate::fast) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether windows can be multiplied where they lie in an image.
    pub(in crate::fast) fn reads_windows(&self) -> bool {
        if self.tiles.is_some() {
            return false;
        }
        self.weight_zero == 0
    }

    #[inline(always)]
    pub(in crate::fast) fn panel<V: Columns>(&self, number: usize) -> (&[V::Pairs], &[i32; COLUMNS]) {
        let size = COLUMNS * self.depth;
        let panel = &self.panels.bytes()[number * size..][..size];
        let bias = &self.bias[number * COLUMNS..][..COLUMNS];
        (bytemuck::cast_slice(panel), &bias.as_chunks().0[0])
    }

    /// The bytes of a panel and all behind it.
    #[inline(always)]
    pub(in crate::fast) fn tiles_from(&self, number: usize) -> &[u8] {
        &self.panels.bytes()[number * COLUMNS * self.depth..]
    }

    /// What is added to sums of some neighbouring panels.
    ///
    /// # Panics
    /// If there are no such panels.
    #[inline(always)]
    pub(in crate::fast) fn bias_of<const P: usize>(&self, first: usize) -> &[[i32; COLUMNS]; P] {
        match self.bias.as_chunks().0[first..].first_chunk() {
            Some(panels) => panels,
            None => unreachable!("panels that a matrix has"),
        }
    }

    /// What scales them.
    #[inline(always)]
    pub(in crate::fast) fn requantization_of<const P: usize>(&self, first: usize) -> [&Requantization; P] {
        self.requantization.of_some(first)
    }
}
