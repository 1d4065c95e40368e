//! The innermost loops of matrix products: tiles of a few rows and [`COLUMNS`] columns of each panel, whose sums stay
//! in registers along the whole common dimension.

use super::simd::{LANES, Simd};

/// Rows of a tile.
pub(super) const ROWS: usize = 6;
/// Columns of a panel.
pub(super) const COLUMNS: usize = 2 * LANES;
/// Panels of a tile with a single row, which alone would wait for each sum.
pub(super) const PANELS: usize = 4;

/// What a panel of floats holds for one index along the common dimension.
pub(super) type ColumnsF32 = [[f32; LANES]; 2];
/// What a panel of pairs of 16-bit integers holds for one index; columns in [`super::simd::COLUMN_ORDER`].
pub(super) type ColumnsI16 = [[i16; 2 * LANES]; 2];

/// The sums of a tile, `[row][panel][half]`.
pub(super) type Sums<V, const R: usize, const P: usize> = [[[V; 2]; P]; R];

/// `bias + rows * panels`. Rows are at least as long as the panels.
#[inline(always)]
pub(super) fn tile_f32<S: Simd, const R: usize, const P: usize>(
    simd: S,
    rows: [&[f32]; R],
    panels: [&[ColumnsF32]; P],
    bias: [&ColumnsF32; P],
) -> Sums<S::F32, R, P> {
    let depth = panels[0].len();
    let (rows, panels) = (first_of_each(rows, depth), first_of_each(panels, depth));
    let mut start = [[simd.splat(0.0); 2]; P];
    for (start, [low, high]) in start.iter_mut().zip(bias) {
        *start = [simd.load(low), simd.load(high)];
    }
    let mut sums = [start; R];
    for at in 0..depth {
        for panel in 0..P {
            let [low, high] = &panels[panel][at];
            let (low, high) = (simd.load(low), simd.load(high));
            for row in 0..R {
                let value = simd.splat(rows[row][at]);
                let sums = &mut sums[row][panel];
                sums[0] = simd.mul_add(value, low, sums[0]);
                sums[1] = simd.mul_add(value, high, sums[1]);
            }
        }
    }
    sums
}

/// The same for pairs of 16-bit integers: each row element is two values. Exact as long as sums fit 32 bits, beyond
/// which they wrap.
#[inline(always)]
pub(super) fn tile_i16<S: Simd, const R: usize, const P: usize>(
    simd: S,
    rows: [&[i32]; R],
    panels: [&[ColumnsI16]; P],
    bias: [&[[i32; LANES]; 2]; P],
) -> Sums<S::I32, R, P> {
    let depth = panels[0].len();
    let (rows, panels) = (first_of_each(rows, depth), first_of_each(panels, depth));
    let mut start = [[simd.splat_i32(0); 2]; P];
    for (start, [low, high]) in start.iter_mut().zip(bias) {
        *start = [simd.load_i32(low), simd.load_i32(high)];
    }
    let mut sums = [start; R];
    for at in 0..depth {
        for panel in 0..P {
            let [low, high] = &panels[panel][at];
            let (low, high) = (simd.load_pairs(low), simd.load_pairs(high));
            for row in 0..R {
                let pair = simd.splat_i32(rows[row][at]);
                let sums = &mut sums[row][panel];
                sums[0] = simd.add_products(sums[0], pair, low);
                sums[1] = simd.add_products(sums[1], pair, high);
            }
        }
    }
    sums
}

#[inline(always)]
fn first_of_each<T, const N: usize>(mut slices: [&[T]; N], length: usize) -> [&[T]; N] {
    for slice in &mut slices {
        *slice = &slice[..length];
    }
    slices
}

/// Cuts sixteen floats to a range and stores as many as `to` takes.
#[inline(always)]
pub(super) fn store_f32<S: Simd>(simd: S, columns: [S::F32; 2], low: S::F32, high: S::F32, to: &mut [f32]) {
    let columns = [
        simd.at_most(simd.at_least(columns[0], low), high),
        simd.at_most(simd.at_least(columns[1], low), high),
    ];
    match to.first_chunk_mut::<COLUMNS>() {
        Some(to) => store_columns(simd, columns, to),
        None => {
            let mut whole = [0.0; COLUMNS];
            store_columns(simd, columns, &mut whole);
            to.copy_from_slice(&whole[..to.len()]);
        }
    }
}

#[inline(always)]
fn store_columns<S: Simd>(simd: S, columns: [S::F32; 2], to: &mut [f32; COLUMNS]) {
    let [low, high]: &mut ColumnsF32 = bytemuck::cast_mut(to);
    simd.store(columns[0], low);
    simd.store(columns[1], high);
}
