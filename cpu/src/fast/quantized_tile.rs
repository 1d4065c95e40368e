//! The end of a tile of 8-bit products: its sums, scaled and stored.

use super::requantize::{QuantizedOutput, Requantization};
use super::simd::{Columns, RescaleOnce};
use super::tile::{COLUMNS, Sums, for_each_constant};
use crate::threads::Block;

/// Most rows of a tile.
pub(super) const MOST_ROWS: usize = 8;

/// What scales the sums of some panels, if one step is enough for each.
#[inline(always)]
fn all_once<const P: usize>(panels: &[Requantization]) -> Option<[&RescaleOnce; P]> {
    let mut all = [panels[0].once()?; P];
    for panel in 1..P {
        all[panel] = panels[panel].once()?;
    }
    Some(all)
}

/// Stores the sums of rows from `top` on and of whole panels from `column` of the output on, each scaled as its panel says.
#[inline(always)]
pub(super) fn store_tile<V: Columns, const SIGNED: bool, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (requantization, stored): (&[Requantization], &QuantizedOutput),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R <= MOST_ROWS) };
    let is_whole = output.columns().len() - column >= P * COLUMNS;
    if let Some(by) = all_once::<P>(requantization).filter(|_| is_whole) {
        let place = (output, top, column);
        if stored.cuts_negative() {
            store_whole::<V, SIGNED, true, R, P>(simd, sums, (&by, stored), place);
        } else {
            store_whole::<V, SIGNED, false, R, P>(simd, sums, (&by, stored), place);
        }
        return;
    }
    // Row by row without a loop, so that sums stay in registers.
    for_each_constant!(row in [0 1 2 3 4 5 6 7] {
        if row < R {
            let line = &mut output.row(top + row)[column..];
            for panel in 0..P {
                let line = &mut line[panel * COLUMNS..];
                let width = line.len().min(COLUMNS);
                let to = &mut line[..width];
                requantization[panel].store::<V, SIGNED>(simd, sums[row][panel], stored, to);
            }
        }
    });
}

/// The same of panels that are there with all their columns, in one step; `CUT` where results below real 0 are cut.
#[inline(always)]
fn store_whole<V: Columns, const SIGNED: bool, const CUT: bool, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (by, stored): (&[&RescaleOnce; P], &QuantizedOutput),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R * P <= 16) };
    let stored = stored.as_unsigned(SIGNED);
    let flip = if SIGNED { 0x80 } else { 0 };
    // Without loops, so that sums stay in registers.
    for_each_constant!(four in [0 1 2 3] {
        if four * 4 < R * P {
            let mut columns = [simd.splat_i32(0); 4];
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    columns[which] = stored.columns::<V, CUT>(simd, sums[at / P][at % P], by[at % P]);
                }
            });
            let bytes = simd.bytes_of_four::<false>(columns, stored.range(), flip);
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    let line = &mut output.row(top + at / P)[column..][..P * COLUMNS];
                    line[at % P * COLUMNS..][..COLUMNS].copy_from_slice(&bytes[which]);
                }
            });
        }
    });
}
