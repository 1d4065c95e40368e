//! The innermost loops of matrix products: tiles of a few rows and [`COLUMNS`] columns of each panel, or half
//! of that, whose sums stay in registers along the whole common dimension. Half panels are narrow vectors.

use crate::fast::simd::strided::Rows;
use crate::fast::simd::{Columns, Instructions, LANES, Simd, WIDE};

/// Repeats a block with each number: loops over registers must not stay loops.
macro_rules! for_each_constant {
    ($name:ident in [$($number:literal)*] $block:block) => {
        $({
            let $name: usize = $number;
            $block
        })*
    };
}

pub(in crate::fast) use for_each_constant;

/// Rows of a tile.
pub(in crate::fast) const ROWS: usize = 6;
/// Rows of a tile with half a panel.
pub(in crate::fast) const HALF_ROWS: usize = 8;
/// Columns of a panel.
pub(in crate::fast) const COLUMNS: usize = WIDE;
/// The most rows of which registers hold where each is, so that no place is computed from its number.
const MOST_POINTERS: usize = 8;
/// Panels of a tile with a single row, which with one panel would wait for each sum.
pub(in crate::fast) const PANELS: usize = 4;

/// Bytes of rows that are worked on before the next block: about half of a second-level cache.
const BLOCK_BYTES: usize = 192 * 1024;

/// How many rows of this many bytes make a block.
pub(in crate::fast) fn rows_per_block(row_bytes: usize) -> usize {
    (BLOCK_BYTES / row_bytes.max(1)).clamp(ROWS, 1 << 12) / ROWS * ROWS
}

/// The sums of a tile of panels, `[row][panel]`.
pub(in crate::fast) type Sums<V, const R: usize, const P: usize> = [[V; P]; R];

/// Those of one panel.
type WideSums<S, const R: usize> = Sums<<<S as Instructions>::Wide as Simd<WIDE>>::F32, R, 1>;

/// Those of half a panel.
type NarrowSums<S, const R: usize> = Sums<<<S as Instructions>::Narrow as Simd<LANES>>::F32, R, 1>;

/// Sums that start from the biases of the panels' columns.
#[inline(always)]
pub(in crate::fast) fn start_f32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
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

/// Adds `rows * panels`: for each value of a row, panels have a vector. Two values at a time unless
/// [`Simd::ONE_BY_ONE`] tells why not, so that counting takes less of what the processor decodes, which
/// hyperthreads share. Few rows are taken by where each is, more by how far apart they are.
#[inline(always)]
pub(in crate::fast) fn add_f32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    rows: Rows<'_, f32>,
    panels: [&[[f32; N]]; P],
    sums: &mut Sums<V::F32, R, P>,
) {
    // Sums of our own, which are nothing but registers: the caller's are in memory where it stores them in a
    // loop.
    let given = sums;
    let mut sums = *given;
    let depth = rows.length();
    let panels = first_of_each(panels, depth);
    if V::ONE_BY_ONE && R <= MOST_POINTERS {
        let rows = rows.each::<R>();
        for at in 0..depth {
            let values = |row: usize| *nth(rows[row], at);
            let weights = |panel: usize| nth(panels[panel], at);
            add_one::<V, N, R, P>(simd, values, weights, &mut sums);
        }
        *given = sums;
        return;
    }
    if V::ONE_BY_ONE {
        for at in 0..depth {
            let values = |row| rows.value(row, at);
            let weights = |panel: usize| nth(panels[panel], at);
            add_one::<V, N, R, P>(simd, values, weights, &mut sums);
        }
        *given = sums;
        return;
    }
    for pair in 0..depth / 2 {
        for at in [0, 1] {
            let values = |row| rows.of_pair(row, pair, at);
            add_one::<V, N, R, P>(
                simd,
                values,
                |panel| &panels[panel].as_chunks::<2>().0[pair][at],
                &mut sums,
            );
        }
    }
    if depth % 2 == 1 {
        // Without the closures, which are called from here if they are not the only ones, and sums go to
        // memory for a call.
        let at = depth - 1;
        let mut weights = [simd.splat(0.0); P];
        for panel in 0..P {
            weights[panel] = simd.load(nth(panels[panel], at));
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let value = simd.splat(rows.value(row, at));
            for panel in 0..P {
                sums[panel] = simd.mul_add(value, weights[panel], sums[panel]);
            }
        }
    }
    *given = sums;
}

/// The same with a panel and half a one.
#[inline(always)]
pub(in crate::fast) fn add_f32_and_half<S: Instructions, const R: usize>(
    simd: S,
    rows: Rows<'_, f32>,
    (panel, half): (&[[f32; WIDE]], &[[f32; LANES]]),
    given: (&mut WideSums<S, R>, &mut NarrowSums<S, R>),
) {
    let (wide, narrow) = (simd.wide(), simd.narrow());
    let (mut sums, mut halves) = (*given.0, *given.1);
    let depth = rows.length();
    let ([panel], [half]) = (first_of_each([panel], depth), first_of_each([half], depth));
    for at in 0..depth {
        let weights = wide.load(nth(panel, at));
        let half_weights = narrow.load(nth(half, at));
        for row in 0..R {
            let value = rows.value(row, at);
            sums[row][0] = wide.mul_add(wide.splat(value), weights, sums[row][0]);
            halves[row][0] = narrow.mul_add(narrow.splat(value), half_weights, halves[row][0]);
        }
    }
    (*given.0, *given.1) = (sums, halves);
}

/// Adds the products of one value of each row.
#[inline(always)]
fn add_one<'a, V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    values: impl Fn(usize) -> f32,
    weights_of: impl Fn(usize) -> &'a [f32; N],
    sums: &mut Sums<V::F32, R, P>,
) {
    let mut weights = [simd.splat(0.0); P];
    for (panel, weights) in weights.iter_mut().enumerate() {
        *weights = simd.load(weights_of(panel));
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let value = simd.splat(values(row));
        for panel in 0..P {
            sums[panel] = simd.mul_add(value, weights[panel], sums[panel]);
        }
    }
}

/// As [`start_f32`].
#[inline(always)]
pub(in crate::fast) fn start_i32<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
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

/// As [`add_f32`] for rows of an even number of 16-bit integers, of which panels have a vector for each pair.
/// Exact as long as sums fit 32 bits, beyond which they wrap.
#[inline(always)]
pub(in crate::fast) fn add_i16<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    rows: Rows<'_, i16>,
    panels: [&[V::Pairs]; P],
    sums: &mut Sums<V::I32, R, P>,
) {
    let given = sums;
    let mut sums = *given;
    let depth = rows.length() / 2;
    let panels = first_of_each(panels, depth);
    if V::ONE_BY_ONE {
        let mut twos = [&[][..]; R];
        for (twos, row) in twos.iter_mut().zip(rows.each::<R>()) {
            *twos = &row.as_chunks::<2>().0[..depth];
        }
        for at in 0..depth {
            let pairs = |row: usize| *nth(twos[row], at);
            let weights = |panel: usize| nth(panels[panel], at);
            add_pair::<V, N, R, P>(simd, pairs, weights, &mut sums);
        }
        *given = sums;
        return;
    }
    for four in 0..depth / 2 {
        for at in [0, 1] {
            let pairs = |row| rows.pair_of_four(row, four, at);
            let weights = |panel: usize| &panels[panel].as_chunks::<2>().0[four][at];
            add_pair::<V, N, R, P>(simd, pairs, weights, &mut sums);
        }
    }
    if depth % 2 == 1 {
        // As in `add_f32`.
        let at = depth - 1;
        let mut weights = [simd.splat_i32(0); P];
        for panel in 0..P {
            weights[panel] = simd.load_pairs(nth(panels[panel], at));
        }
        for (row, sums) in sums.iter_mut().enumerate() {
            let pair = simd.splat_i32(bytemuck::cast(rows.pair(row, at)));
            for panel in 0..P {
                sums[panel] = simd.add_products(sums[panel], pair, weights[panel]);
            }
        }
    }
    *given = sums;
}

/// Adds the products of one pair of values of each row.
#[inline(always)]
fn add_pair<'a, V: Simd<N>, const N: usize, const R: usize, const P: usize>(
    simd: V,
    pair_of: impl Fn(usize) -> [i16; 2],
    weights_of: impl Fn(usize) -> &'a V::Pairs,
    sums: &mut Sums<V::I32, R, P>,
) where
    V::Pairs: 'a,
{
    let mut weights = [simd.splat_i32(0); P];
    for (panel, weights) in weights.iter_mut().enumerate() {
        *weights = simd.load_pairs(weights_of(panel));
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let pair = simd.splat_i32(bytemuck::cast(pair_of(row)));
        for panel in 0..P {
            sums[panel] = simd.add_products(sums[panel], pair, weights[panel]);
        }
    }
}

/// Adds `rows * panels` of bytes, unsigned ones with signed ones: for each four values of a row, panels have
/// a vector.
#[inline(always)]
pub(in crate::fast) fn add_bytes<V: Columns, const R: usize, const P: usize>(
    simd: V,
    rows: Rows<'_, u8>,
    panels: [&[V::Pairs]; P],
    sums: &mut Sums<V::I32, R, P>,
) {
    let given = sums;
    let mut sums = *given;
    let depth = rows.length() / 4;
    let panels = first_of_each(panels, depth);
    let mut fours = [&[][..]; R];
    for (fours, row) in fours.iter_mut().zip(rows.each::<R>()) {
        *fours = &row.as_chunks::<4>().0[..depth];
    }
    for at in 0..depth {
        add_four::<V, R, P>(simd, fours, panels, at, &mut sums);
    }
    *given = sums;
}

/// Adds the products of the four bytes of each row at a place.
#[inline(always)]
fn add_four<V: Columns, const R: usize, const P: usize>(
    simd: V,
    rows: [&[[u8; 4]]; R],
    panels: [&[V::Pairs]; P],
    at: usize,
    sums: &mut Sums<V::I32, R, P>,
) {
    let mut weights = [simd.splat_i32(0); P];
    for panel in 0..P {
        weights[panel] = simd.load_pairs(&panels[panel][at]);
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let four = simd.splat_i32(bytemuck::cast(*nth(rows[row], at)));
        for panel in 0..P {
            sums[panel] = simd.add_byte_products(sums[panel], four, weights[panel]);
        }
    }
}

#[inline(always)]
fn nth<T>(values: &[T], at: usize) -> &T {
    &values[at]
}

#[inline(always)]
fn first_of_each<T, const N: usize>(mut slices: [&[T]; N], length: usize) -> [&[T]; N] {
    for slice in &mut slices {
        *slice = &slice[..length];
    }
    slices
}

/// Stores the results of as many columns as `to` takes.
#[inline(always)]
pub(in crate::fast) fn store_f32<V: Simd<N>, const N: usize>(simd: V, results: V::F32, to: &mut [f32]) {
    if let Some(whole) = to.first_chunk_mut::<N>() {
        return simd.store(results, whole);
    }
    let mut lanes = [0.0; N];
    simd.store(results, &mut lanes);
    to.copy_from_slice(&lanes[..to.len()]);
}
