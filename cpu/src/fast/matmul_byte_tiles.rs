//! Exact products of many rows of bytes with what [`super::matmul_bytes`] packs, by tiles: its panels are tiles already, one behind
//! the other, for each 64 values along the common dimension one.
//!
//! The last tile of a panel may be fewer values: then it reaches into what is behind the panel, which is multiplied with the
//! zeros that rows are filled up with.

use super::matmul_bytes::PackedBytes;
use super::quantized_tile::store_tile;
use super::requantize::QuantizedOutput;
use super::simd::amx::{Amx, SIDE, Shaped};
use super::simd::amx_bytes::{ByteSums, DEEP_BYTES};
use super::simd::{ByteForm, Columns, Instructions, Work};
use super::strided::Rows;
use crate::threads::Block;

/// Least rows, least values along the common dimension, and least weights: with fewer, sums are stored and loaded again for too few
/// products each, or rows copied for too few columns. Measured on a Granite Rapids.
const LEAST_ROWS: usize = 16;
const LEAST_DEPTH: usize = 128;
const LEAST_WEIGHTS: usize = 48 * LEAST_DEPTH;

/// How many blocks of two tiles by two are summed before they are stored: tiles wait for each other only with the last of them,
/// and 16 KiB of sums stay in a first-level cache.
const AT_ONCE: usize = 4;

/// Whether tiles are worth it for so many columns of so many values.
pub(super) fn suit((columns, depth): (usize, usize)) -> bool {
    depth >= LEAST_DEPTH && columns * depth >= LEAST_WEIGHTS
}

/// Whether they are for so many rows.
pub(super) fn pay(rows: usize) -> bool {
    rows >= LEAST_ROWS
}

/// Bytes of a row of so many values with the zeros that fill it up.
pub(super) fn filled(depth: usize) -> usize {
    depth.next_multiple_of(DEEP_BYTES)
}

/// Bytes that must be behind the last panel of so many values along the common dimension.
pub(super) fn behind(depth: usize) -> usize {
    (filled(depth) - depth) * SIDE
}

/// Multiplies rows with the columns that `output` has.
pub(super) struct Multiply<'a> {
    pub(super) packed: &'a PackedBytes,
    pub(super) amx: Amx,
    /// Rows of [`filled`] bytes, as many as `output` has, one behind the other.
    pub(super) rows: &'a [u8],
    /// What is added to all columns of a row; empty if that is 0.
    pub(super) terms: &'a [i32],
    pub(super) output: Block<'a, u8>,
    pub(super) stored: QuantizedOutput,
    /// That of `stored`.
    pub(super) form: ByteForm,
    pub(super) is_signed: bool,
}

/// Some neighbouring tiles of rows, and some neighbouring panels.
#[derive(Clone, Copy, Default)]
struct Place {
    tile: usize,
    tiles: usize,
    panel: usize,
    panels: usize,
}

impl Work for Multiply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let count = self.output.rows();
        let tiles = count.div_ceil(SIDE);
        // All of the same shape: the last one begins before the one before it ends if they do not come out even.
        let rows = count.div_ceil(tiles);
        let shaped = self.amx.shape(rows);
        let columns = self.output.columns();
        let work = Parts {
            panels: columns.start / SIDE..columns.end.div_ceil(SIDE),
            count,
            tiles,
            rows,
            multiply: self,
        };
        let simd = simd.wide();
        if work.multiply.is_signed {
            work.run::<S::Wide, true>(simd, &shaped);
        } else {
            work.run::<S::Wide, false>(simd, &shaped);
        }
    }
}

struct Parts<'a> {
    multiply: Multiply<'a>,
    panels: std::ops::Range<usize>,
    /// All rows.
    count: usize,
    /// Tiles of rows, and how many rows each has.
    tiles: usize,
    rows: usize,
}

impl Parts<'_> {
    #[inline(always)]
    fn run<V: Columns, const SIGNED: bool>(mut self, simd: V, shaped: &Shaped) {
        let mut sums = [ByteSums([[[0; SIDE]; 2]; 2 * SIDE]); AT_ONCE];
        let mut places = [Place::default(); AT_ONCE];
        let mut count = 0;
        for tile in (0..self.tiles).step_by(2) {
            for panel in self.panels.clone().step_by(2) {
                if count == AT_ONCE {
                    self.store::<V, SIGNED>(simd, &places, &sums);
                    count = 0;
                }
                places[count] = Place {
                    tile,
                    tiles: (self.tiles - tile).min(2),
                    panel,
                    panels: (self.panels.end - panel).min(2),
                };
                self.sum(shaped, places[count], &mut sums[count]);
                count += 1;
            }
        }
        self.store::<V, SIGNED>(simd, &places[..count], &sums);
    }

    fn first_row(&self, tile: usize) -> usize {
        (tile * self.rows).min(self.count - self.rows)
    }

    fn tile(&self, tile: usize) -> Rows<'_, u8> {
        let filled = filled(self.multiply.packed.depth());
        let rows = &self.multiply.rows[self.first_row(tile) * filled..];
        Rows::new(rows, (self.rows, filled), filled)
    }

    fn sum(&self, shaped: &Shaped, place: Place, sums: &mut ByteSums) {
        let Place {
            tile,
            tiles,
            panel,
            panels,
        } = place;
        match (tiles, panels) {
            (1, 1) => self.sum_of::<1, 1>(shaped, tile, panel, sums),
            (1, _) => self.sum_of::<1, 2>(shaped, tile, panel, sums),
            (_, 1) => self.sum_of::<2, 1>(shaped, tile, panel, sums),
            _ => self.sum_of::<2, 2>(shaped, tile, panel, sums),
        }
    }

    fn sum_of<const M: usize, const P: usize>(
        &self,
        shaped: &Shaped,
        tile: usize,
        panel: usize,
        sums: &mut ByteSums,
    ) {
        let rows = std::array::from_fn(|number| self.tile(tile + number));
        let packed = self.multiply.packed;
        let panels = std::array::from_fn(|number| packed.tiles_from(panel + number));
        shaped.sum_bytes::<M, P>(rows, panels, sums);
    }

    #[inline(always)]
    fn store<V: Columns, const SIGNED: bool>(&mut self, simd: V, places: &[Place], sums: &[ByteSums]) {
        for (place, sums) in places.iter().zip(sums) {
            for number in 0..place.tiles {
                let first = self.first_row(place.tile + number);
                let sums = &sums.0[number * SIDE..][..self.rows];
                if place.panels == 2 {
                    self.store_rows::<V, SIGNED, 4, 2>(simd, first, place.panel, sums);
                } else {
                    self.store_rows::<V, SIGNED, 4, 1>(simd, first, place.panel, sums);
                }
            }
        }
    }

    /// Stores sums `R` rows at a time, of which there are no fewer: the last ones begin before those before them end if
    /// they do not come out even.
    #[inline(always)]
    fn store_rows<V: Columns, const SIGNED: bool, const R: usize, const P: usize>(
        &mut self,
        simd: V,
        first: usize,
        panel: usize,
        all: &[[[i32; SIDE]; 2]],
    ) {
        let Multiply {
            packed,
            terms,
            output,
            stored,
            form,
            ..
        } = &mut self.multiply;
        let column = panel * SIDE - output.columns().start;
        let requantization = packed.requantization_of::<P>(panel);
        let mut bias = [simd.splat_i32(0); P];
        for (bias, of_panel) in bias.iter_mut().zip(packed.bias_of::<P>(panel)) {
            *bias = simd.load_i32(of_panel);
        }
        for start in (0..all.len()).step_by(R) {
            let start = start.min(all.len() - R);
            let lines: &[_; R] = match all[start..].first_chunk() {
                Some(lines) => lines,
                None => unreachable!("there are {R} rows from {start} on of {}", all.len()),
            };
            let mut sums = [[simd.splat_i32(0); P]; R];
            for (row, sums) in sums.iter_mut().enumerate() {
                for (panel, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.add_i32(simd.load_i32(&lines[row][panel]), bias[panel]);
                }
            }
            if let Some(terms) = terms.get(first + start..first + start + R) {
                for (sums, term) in sums.iter_mut().zip(terms) {
                    let term = simd.splat_i32(*term);
                    for sum in sums {
                        *sum = simd.add_i32(*sum, term);
                    }
                }
            }
            let place = (&mut *output, first + start, column);
            store_tile::<V, SIGNED, R, P>(simd, &sums, (requantization, stored, form), place);
        }
    }
}
