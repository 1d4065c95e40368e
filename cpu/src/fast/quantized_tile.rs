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
    // Row by row without a loop, so that sums stay in registers.
    if let Some(by) = all_once::<P>(requantization).filter(|_| is_whole) {
        for_each_constant!(row in [0 1 2 3 4 5 6 7] {
            if row < R {
                let line = &mut output.row(top + row)[column..][..P * COLUMNS];
                let (line, _) = line.as_chunks_mut::<COLUMNS>();
                for panel in 0..P {
                    stored.store::<V, SIGNED>(simd, (sums[row][panel], by[panel]), &mut line[panel]);
                }
            }
        });
        return;
    }
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
