//! The innermost loops of matrix products: tiles of a few rows and [`COLUMNS`] columns of each panel, or half of that,
//! whose sums stay in registers along the whole common dimension.

use super::simd::{LANES, Simd};

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
/// Rows of a tile with half a panel.
pub(super) const HALF_ROWS: usize = 8;
/// Columns of a panel.
pub(super) const COLUMNS: usize = 2 * LANES;
/// Panels of a tile with a single row, which alone would wait for each sum.
pub(super) const PANELS: usize = 4;

/// A vector of floats of a panel.
pub(super) type LanesF32 = [f32; LANES];
/// A vector of pairs of 16-bit integers of a panel; columns of a whole one in [`super::simd::COLUMN_ORDER`].
pub(super) type LanesI16 = [i16; 2 * LANES];
/// What a whole panel of pairs of 16-bit integers holds for one index.
pub(super) type ColumnsI16 = [LanesI16; 2];

/// The sums of a tile of panels of `H` halves, `[row][panel][half]`.
pub(super) type Sums<V, const R: usize, const P: usize, const H: usize> = [[[V; H]; P]; R];

/// Sums that start from the biases of the panels' columns.
#[inline(always)]
pub(super) fn start_f32<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    bias: [&[LanesF32]; P],
) -> Sums<S::F32, R, P, H> {
    let mut start = [[simd.splat(0.0); H]; P];
    // Loops over registers count by themselves, so that they do not stay loops.
    for panel in 0..P {
        for half in 0..H {
            start[panel][half] = simd.load(&bias[panel][half]);
        }
    }
    [start; R]
}

/// Adds `rows * panels`: for each value of a row, panels have `H` vectors. Two values at a time, so that counting takes
/// less of what the processor decodes, which hyperthreads share.
#[inline(always)]
pub(super) fn add_f32<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    rows: [&[f32]; R],
    panels: [&[LanesF32]; P],
    sums: &mut Sums<S::F32, R, P, H>,
) {
    // Sums of our own, which are nothing but registers: the caller's are in memory where it stores them in a loop.
    let given = sums;
    let mut sums = *given;
    let depth = rows[0].len();
    let rows = first_of_each(rows, depth);
    let panels = first_chunks_of_each::<_, P, H>(panels, depth);
    let row_pairs = first_chunks_of_each::<_, R, 2>(rows, depth / 2);
    let panel_pairs = first_chunks_of_each::<_, P, 2>(panels, depth / 2);
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
            add_one::<S, R, P, H>(simd, values, weights, &mut sums);
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
        add_one::<S, R, P, H>(simd, values, weights, &mut sums);
    }
    *given = sums;
}

/// Adds the products of one value of each row.
#[inline(always)]
fn add_one<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    values: [f32; R],
    panels: [&[LanesF32; H]; P],
    sums: &mut Sums<S::F32, R, P, H>,
) {
    for panel in 0..P {
        let mut weights = [simd.splat(0.0); H];
        for half in 0..H {
            weights[half] = simd.load(&panels[panel][half]);
        }
        for row in 0..R {
            let value = simd.splat(values[row]);
            for half in 0..H {
                let sum = &mut sums[row][panel][half];
                *sum = simd.mul_add(value, weights[half], *sum);
            }
        }
    }
}

/// As [`start_f32`].
#[inline(always)]
pub(super) fn start_i32<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    bias: [&[[i32; LANES]]; P],
) -> Sums<S::I32, R, P, H> {
    let mut start = [[simd.splat_i32(0); H]; P];
    // Loops over registers count by themselves, so that they do not stay loops.
    for panel in 0..P {
        for half in 0..H {
            start[panel][half] = simd.load_i32(&bias[panel][half]);
        }
    }
    [start; R]
}

/// As [`add_f32`] for rows of an even number of 16-bit integers, of which panels have `H` vectors for each pair. Exact as
/// long as sums fit 32 bits, beyond which they wrap.
#[inline(always)]
pub(super) fn add_i16<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    rows: [&[i16]; R],
    panels: [&[LanesI16]; P],
    sums: &mut Sums<S::I32, R, P, H>,
) {
    let given = sums;
    let mut sums = *given;
    let depth = rows[0].len() / 2;
    let rows = first_chunks_of_each::<_, R, 2>(rows, depth);
    let panels = first_chunks_of_each::<_, P, H>(panels, depth);
    let row_pairs = first_chunks_of_each::<_, R, 2>(rows, depth / 2);
    let panel_pairs = first_chunks_of_each::<_, P, 2>(panels, depth / 2);
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
            add_pair::<S, R, P, H>(simd, values, weights, &mut sums);
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
        add_pair::<S, R, P, H>(simd, values, weights, &mut sums);
    }
    *given = sums;
}

/// Adds the products of one pair of values of each row.
#[inline(always)]
fn add_pair<S: Simd, const R: usize, const P: usize, const H: usize>(
    simd: S,
    pairs: [[i16; 2]; R],
    panels: [&[LanesI16; H]; P],
    sums: &mut Sums<S::I32, R, P, H>,
) {
    for panel in 0..P {
        let mut weights = [simd.splat_i32(0); H];
        for half in 0..H {
            weights[half] = simd.load_pairs(&panels[panel][half]);
        }
        for row in 0..R {
            let pair = simd.splat_i32(bytemuck::cast(pairs[row]));
            for half in 0..H {
                let sum = &mut sums[row][panel][half];
                *sum = simd.add_products(*sum, pair, weights[half]);
            }
        }
    }
}

#[inline(always)]
fn first_chunks_of_each<T, const N: usize, const C: usize>(
    slices: [&[T]; N],
    length: usize,
) -> [&[[T; C]]; N] {
    let mut chunks: [&[[T; C]]; N] = [&[]; N];
    for (chunks, slice) in chunks.iter_mut().zip(slices) {
        *chunks = &slice.as_chunks::<C>().0[..length];
    }
    chunks
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
pub(super) fn store_f32<S: Simd, const H: usize>(
    simd: S,
    sums: [S::F32; H],
    range: (f32, f32),
    to: &mut [f32],
) {
    let (low, high) = (simd.splat(range.0), simd.splat(range.1));
    let mut results = sums;
    for result in &mut results {
        *result = simd.at_most(simd.at_least(*result, low), high);
    }
    if let Some(whole) = to.get_mut(..H * LANES) {
        let whole = whole.as_chunks_mut::<LANES>().0;
        for half in 0..H {
            simd.store(results[half], &mut whole[half]);
        }
        return;
    }
    let mut lanes = [[0.0; LANES]; H];
    for half in 0..H {
        simd.store(results[half], &mut lanes[half]);
    }
    to.copy_from_slice(&lanes.as_flattened()[..to.len()]);
}
