//! The end of a tile of 8-bit products: its sums, scaled and stored.

use super::requantize::{QuantizedOutput, Requantization, rescale_once, store_some};
use super::simd::{ByteForm, Columns, RescaleOnce};
use super::tile::{COLUMNS, Sums, for_each_constant};
use crate::threads::Block;

/// Most rows of a tile.
pub(super) const MOST_ROWS: usize = 8;

/// What scales the sums of some panels, if one step is enough for each.
#[inline(always)]
fn all_once<'r, const P: usize>(panels: &[&'r Requantization; P]) -> Option<[&'r RescaleOnce; P]> {
    let mut all = [panels[0].once()?; P];
    for panel in 1..P {
        all[panel] = panels[panel].once()?;
    }
    Some(all)
}

/// Stores the sums of rows from `top` on and of whole panels from `column` of the output on, each scaled as its panel says;
/// `form` is that of `stored`.
#[inline(always)]
pub(super) fn store_tile<V: Columns, const SIGNED: bool, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (requantization, stored, form): (&[&Requantization; P], &QuantizedOutput, &ByteForm),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R <= MOST_ROWS) };
    if let Some(by) = all_once::<P>(requantization) {
        let is_whole = output.columns().len() - column >= P * COLUMNS;
        let place = (output, top, column);
        match (stored.cuts_negative(), is_whole) {
            (true, true) => store_once::<V, true, true, R, P>(simd, sums, (&by, form), place),
            (true, false) => store_once::<V, true, false, R, P>(simd, sums, (&by, form), place),
            (false, true) => store_once::<V, false, true, R, P>(simd, sums, (&by, form), place),
            (false, false) => store_once::<V, false, false, R, P>(simd, sums, (&by, form), place),
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

/// The same in one step; `CUT` where results below real 0 are cut, `WHOLE` if panels are there with all their columns.
#[inline(always)]
fn store_once<V: Columns, const CUT: bool, const WHOLE: bool, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (by, form): (&[&RescaleOnce; P], &ByteForm),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R * P <= 16) };
    // Without loops, so that sums stay in registers.
    for_each_constant!(four in [0 1 2 3] {
        if four * 4 < R * P {
            let mut columns = [simd.splat_i32(0); 4];
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    columns[which] = rescale_once::<V, CUT>(simd, sums[at / P][at % P], by[at % P]);
                }
            });
            let bytes = simd.bytes_of_four::<false>(columns, form);
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    let line = &mut output.row(top + at / P)[column..];
                    if WHOLE {
                        let line = &mut line[..P * COLUMNS];
                        line[at % P * COLUMNS..][..COLUMNS].copy_from_slice(&bytes[which]);
                    } else {
                        store_some(&bytes[which], &mut line[at % P * COLUMNS..]);
                    }
                }
            });
        }
    });
}
