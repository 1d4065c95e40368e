//! The innermost loops of matrix products: tiles of a few rows and [`COLUMNS`] columns of each panel, or half of that,
//! whose sums stay in registers along the whole common dimension. Half panels are narrow vectors.

use super::simd::{Simd, WIDE};

/// Repeats a block with each number: loops over registers must not stay loops.
macro_rules! for_each_constant {
    ($name:ident in [$($number:literal)*] $block:block) => {
        $({
            let $name: usize = $number;
            $block
        })*
    };
}

pub(super) use for_each_constant;

/// Rows of a tile.
pub(super) const ROWS: usize = 6;
/// Rows of a tile where wide vectors are single registers.
pub(super) const TALL_ROWS: usize = 12;
/// Rows of a tile with half a panel.
pub(super) const HALF_ROWS: usize = 8;
/// Columns of a panel.
pub(super) const COLUMNS: usize = WIDE;
/// Panels of a tile with a single row, which alone would wait for each sum.
pub(super) const PANELS: usize = 4;

/// The sums of a tile of panels, `[row][panel]`.
pub(super) type Sums<V, const R: usize, const P: usize> = [[V; P]; R];

/// Sums that start from the biases of the panels' columns.
#[inline(always)]
pub(super) fn start_f32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    bias: [&[f32; N]; P],
) -> Sums<V::F32, R, P> {
    let mut start = [simd.splat(0.0); P];
    // Loops over registers count by themselves, so that they do not stay loops.
    for panel in 0..P {
        start[panel] = simd.load(bias[panel]);
    }
    [start; R]
}

/// Adds `rows * panels`: for each value of a row, panels have a vector. Two values at a time, so that counting takes
/// less of what the processor decodes, which hyperthreads share.
#[inline(always)]
pub(super) fn add_f32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    rows: [&[f32]; R],
    panels: [&[[f32; N]]; P],
    sums: &mut Sums<V::F32, R, P>,
) {
    // Sums of our own, which are nothing but registers: the caller's are in memory where it stores them in a loop.
    let given = sums;
    let mut sums = *given;
    let depth = rows[0].len();
    let rows = first_of_each(rows, depth);
    let panels = first_of_each(panels, depth);
    let row_pairs = first_pairs_of_each(rows, depth / 2);
    let panel_pairs = first_pairs_of_each(panels, depth / 2);
    for at in 0..depth / 2 {
        for half in 0..2 {
            let mut values = [0.0; R];
            for row in 0..R {
                values[row] = row_pairs[row][at][half];
            }
            let mut weights = [&panels[0][0]; P];
            for panel in 0..P {
                weights[panel] = &panel_pairs[panel][at][half];
            }
            add_one::<V, N, R, P>(simd, values, weights, &mut sums);
        }
    }
    if depth % 2 == 1 {
        let mut values = [0.0; R];
        for row in 0..R {
            values[row] = rows[row][depth - 1];
        }
        let mut weights = [&panels[0][0]; P];
        for panel in 0..P {
            weights[panel] = &panels[panel][depth - 1];
        }
        add_one::<V, N, R, P>(simd, values, weights, &mut sums);
    }
    *given = sums;
}

/// Adds the products of one value of each row.
#[inline(always)]
fn add_one<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    values: [f32; R],
    panels: [&[f32; N]; P],
    sums: &mut Sums<V::F32, R, P>,
) {
    let mut weights = [simd.splat(0.0); P];
    for panel in 0..P {
        weights[panel] = simd.load(panels[panel]);
    }
    for row in 0..R {
        let value = simd.splat(values[row]);
        for panel in 0..P {
            sums[row][panel] = simd.mul_add(value, weights[panel], sums[row][panel]);
        }
    }
}

/// As [`start_f32`].
#[inline(always)]
pub(super) fn start_i32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    bias: [&[i32; N]; P],
) -> Sums<V::I32, R, P> {
    let mut start = [simd.splat_i32(0); P];
    // Loops over registers count by themselves, so that they do not stay loops.
    for panel in 0..P {
        start[panel] = simd.load_i32(bias[panel]);
    }
    [start; R]
}

/// As [`add_f32`] for rows of an even number of 16-bit integers, of which panels have a vector for each pair. Exact as
/// long as sums fit 32 bits, beyond which they wrap.
#[inline(always)]
pub(super) fn add_i16<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    rows: [&[i16]; R],
    panels: [&[V::Pairs]; P],
    sums: &mut Sums<V::I32, R, P>,
) {
    let given = sums;
    let mut sums = *given;
    let depth = rows[0].len() / 2;
    let rows = first_pairs_of_each(rows, depth);
    let panels = first_of_each(panels, depth);
    let row_pairs = first_pairs_of_each(rows, depth / 2);
    let panel_pairs = first_pairs_of_each(panels, depth / 2);
    for at in 0..depth / 2 {
        for half in 0..2 {
            let mut values = [[0; 2]; R];
            for row in 0..R {
                values[row] = row_pairs[row][at][half];
            }
            let mut weights = [&panels[0][0]; P];
            for panel in 0..P {
                weights[panel] = &panel_pairs[panel][at][half];
            }
            add_pair::<V, N, R, P>(simd, values, weights, &mut sums);
        }
    }
    if depth % 2 == 1 {
        let mut values = [[0; 2]; R];
        for row in 0..R {
            values[row] = rows[row][depth - 1];
        }
        let mut weights = [&panels[0][0]; P];
        for panel in 0..P {
            weights[panel] = &panels[panel][depth - 1];
        }
        add_pair::<V, N, R, P>(simd, values, weights, &mut sums);
    }
    *given = sums;
}

/// Adds the products of one pair of values of each row.
#[inline(always)]
fn add_pair<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    pairs: [[i16; 2]; R],
    panels: [&V::Pairs; P],
    sums: &mut Sums<V::I32, R, P>,
) {
    let mut weights = [simd.splat_i32(0); P];
    for panel in 0..P {
        weights[panel] = simd.load_pairs(panels[panel]);
    }
    for row in 0..R {
        let pair = simd.splat_i32(bytemuck::cast(pairs[row]));
        for panel in 0..P {
            sums[row][panel] = simd.add_products(sums[row][panel], pair, weights[panel]);
        }
    }
}

#[inline(always)]
fn first_pairs_of_each<T, const N: usize>(slices: [&[T]; N], length: usize) -> [&[[T; 2]]; N] {
    let mut pairs: [&[[T; 2]]; N] = [&[]; N];
    for (pairs, slice) in pairs.iter_mut().zip(slices) {
        *pairs = &slice.as_chunks::<2>().0[..length];
    }
    pairs
}

#[inline(always)]
fn first_of_each<T, const N: usize>(mut slices: [&[T]; N], length: usize) -> [&[T]; N] {
    for slice in &mut slices {
        *slice = &slice[..length];
    }
    slices
}

/// Cuts the sums of as many columns as `to` takes to a range and stores them.
#[inline(always)]
pub(super) fn store_f32<V: Simd<N>, const N: usize>(
    simd: V,
    sums: V::F32,
    range: (f32, f32),
    to: &mut [f32],
) {
    let (low, high) = (simd.splat(range.0), simd.splat(range.1));
    let results = simd.at_most(simd.at_least(sums, low), high);
    if let Some(whole) = to.first_chunk_mut::<N>() {
        return simd.store(results, whole);
    }
    let mut lanes = [0.0; N];
    simd.store(results, &mut lanes);
    to.copy_from_slice(&lanes[..to.len()]);
}
