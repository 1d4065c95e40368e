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

use super::byte_tiles as tiles;
use super::lines::{Lines, Walk};
use super::packed_bytes::{PackedBytes, RowLayout, filled, pay_tiles};
use super::product::{MicroKernel, Product, for_each_part};
use super::quantized_tile::store_tile;
use super::tile::{COLUMNS, add_bytes, start_i32};
use crate::fast::requantize::QuantizedOutput;
use crate::fast::simd::{ByteForm, Instructions, Simd, Work, dispatch};
use crate::threads::Block;

impl PackedBytes {
    /// Multiplies windows of unsigned bytes, parts of which are filled up to whole fours by whatever is
    /// behind them, with the columns that `output` has, if [it can](PackedBytes::reads_windows).
    pub(in crate::fast) fn multiply_windows(
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
    pub(in crate::fast) fn multiply(
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
            && layout.apart == filled(self.depth)
            && pay_tiles(count)
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
    type Panels<const N: usize, const P: usize> = usize;

    const IS_OF_BYTES: bool = true;
    const MOST_ROWS: usize = 4;

    #[inline(always)]
    fn panels<const N: usize, const P: usize>(&self, first: usize, _: usize) -> usize {
        first
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
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
