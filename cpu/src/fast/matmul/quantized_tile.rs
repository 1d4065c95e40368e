//! The end of a tile of 8-bit products: its sums, scaled and stored.

use crate::fast::requantize::{QuantizedOutput, Requantization, ToSteps, store_some};

use super::tile::{COLUMNS, Sums, for_each_constant};
use crate::fast::simd::{ByteForm, Columns, FloatScale, RescaleOnce};
use crate::threads::Block;

/// Most sums of a tile.
const MOST_SUMS: usize = 16;

/// What scales the sums of some panels in one way, if that is the way of each.
#[inline(always)]
fn each<'r, B, const P: usize>(
    panels: &[&'r Requantization; P],
    way: impl Fn(&'r Requantization) -> Option<&'r B>,
) -> Option<[&'r B; P]> {
    let mut all = [way(panels[0])?; P];
    for panel in 1..P {
        all[panel] = way(panels[panel])?;
    }
    Some(all)
}

/// Stores the sums of rows from `top` on and of whole panels from `column` of the output on, each scaled as
/// its panel says; `form` is that of `stored`.
#[inline(always)]
pub(in crate::fast) fn store_tile<V: Columns, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (requantization, stored, form): (&[&Requantization; P], &QuantizedOutput, &ByteForm),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R * P <= MOST_SUMS) };
    let is_whole = output.columns().len() - column >= P * COLUMNS;
    let kind = (stored.clamps_negative(), is_whole);
    if V::TRUNCATES
        && let Some(by) = each::<FloatScale, P>(requantization, Requantization::floats)
    {
        return store_kind::<V, _, R, P>(simd, sums, kind, (&by, form), (output, top, column));
    }
    if let Some(by) = each::<RescaleOnce, P>(requantization, Requantization::once) {
        let place = (output, top, column);
        if V::TRUNCATES {
            // Where there could be floats, integers are rare, and less code for them is enough.
            return store_once::<V, _, false, false, R, P>(simd, sums, (&by, form), place);
        }
        return store_kind::<V, _, R, P>(simd, sums, kind, (&by, form), place);
    }
    // Rare, so a loop, which is less code; it has the sums in memory of their own, so that those given stay
    // in registers.
    let mut lanes = [[[0; COLUMNS]; P]; R];
    for_each_constant!(at in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15] {
        if at < R * P {
            simd.store_i32(sums[at / P][at % P], &mut lanes[at / P][at % P]);
        }
    });
    for (row, lanes) in lanes.iter().enumerate() {
        let line = &mut output.row(top + row)[column..];
        for ((lanes, requantization), to) in lanes.iter().zip(requantization).zip(line.chunks_mut(COLUMNS)) {
            let sums = simd.load_i32(lanes);
            if form.is_signed() {
                requantization.store::<V, true>(simd, sums, stored, to);
            } else {
                requantization.store::<V, false>(simd, sums, stored, to);
            }
        }
    }
}

/// The same in one step; `kind` says whether results below real 0 are clamped, and whether panels are there
/// with all their columns.
#[inline(always)]
fn store_kind<V: Columns, B: ToSteps, const R: usize, const P: usize>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    kind: (bool, bool),
    by: (&[&B; P], &ByteForm),
    place: (&mut Block<'_, u8>, usize, usize),
) {
    match kind {
        (true, true) => store_once::<V, B, true, true, R, P>(simd, sums, by, place),
        (true, false) => store_once::<V, B, true, false, R, P>(simd, sums, by, place),
        (false, true) => store_once::<V, B, false, true, R, P>(simd, sums, by, place),
        (false, false) => store_once::<V, B, false, false, R, P>(simd, sums, by, place),
    }
}

/// The same, `CLAMPED` where results below real 0 are clamped, `WHOLE` if panels are there with all their
/// columns.
#[inline(always)]
fn store_once<
    V: Columns,
    B: ToSteps,
    const CLAMPED: bool,
    const WHOLE: bool,
    const R: usize,
    const P: usize,
>(
    simd: V,
    sums: &Sums<V::I32, R, P>,
    (by, form): (&[&B; P], &ByteForm),
    (output, top, column): (&mut Block<'_, u8>, usize, usize),
) {
    const { assert!(R * P <= MOST_SUMS) };
    let lines = output.rows_from::<R>(top);
    if P == 2 {
        // Two rows at a time, each of whose bytes are neighbours.
        for_each_constant!(pair in [0 1 2 3 4 5 6 7] {
            if pair * 2 < R {
                let mut columns = [simd.splat_i32(0); 4];
                for_each_constant!(which in [0 1 2 3] {
                    let (row, panel) = (pair * 2 + which / 2, which % 2);
                    if row < R {
                        columns[which] = by[panel].scale::<V, CLAMPED>(simd, sums[row][panel]);
                    }
                });
                let bytes = simd.bytes_of_pairs(columns, form);
                for_each_constant!(which in [0 1] {
                    if pair * 2 + which < R {
                        let line = &mut lines[pair * 2 + which][column..];
                        if WHOLE {
                            line[..2 * COLUMNS].copy_from_slice(&bytes[which]);
                        } else {
                            store_pair(&bytes[which], line);
                        }
                    }
                });
            }
        });
        return;
    }
    // Without loops, so that sums stay in registers; panel by panel, so that what scales them does.
    for_each_constant!(four in [0 1 2 3] {
        if four * 4 < R * P {
            let mut columns = [simd.splat_i32(0); 4];
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    columns[which] = by[at / R].scale::<V, CLAMPED>(simd, sums[at % R][at / R]);
                }
            });
            let bytes = simd.bytes_of_four::<false>(columns, form);
            for_each_constant!(which in [0 1 2 3] {
                let at = four * 4 + which;
                if at < R * P {
                    let line = &mut lines[at % R][column..];
                    if WHOLE {
                        let line = &mut line[..P * COLUMNS];
                        line[at / R * COLUMNS..][..COLUMNS].copy_from_slice(&bytes[which]);
                    } else {
                        store_some(&bytes[which], &mut line[at / R * COLUMNS..]);
                    }
                }
            });
        }
    });
}

/// Stores as many columns as `to` takes, of two panels.
#[inline(always)]
fn store_pair(bytes: &[u8; 2 * COLUMNS], to: &mut [u8]) {
    let (first, second) = (&bytes.as_chunks().0[0], &bytes.as_chunks().0[1]);
    match to.split_at_mut_checked(COLUMNS) {
        Some((one, other)) => {
            store_some(first, one);
            store_some(second, other);
        }
        None => store_some(first, to),
    }
}
