//! Products of pixels of eight or sixteen values with the columns of one vector, on processors with 32
//! registers: there all weights stay in registers, instead of sums. Each pixel is multiplied by itself, so
//! that there are no tiles to begin and to end, which would take as long as the products of such short rows.

use super::lines::{Lines, Parts};
use super::tile::store_f32;
use crate::fast::epilogue::{Finish, FinishPart};
use crate::fast::simd::Simd;
use crate::threads::Block;

/// The weights of the columns of a vector, for each index a vector; and their biases.
pub(in crate::fast) type Columns<'a, const N: usize> = (&'a [[f32; N]], &'a [f32; N]);

/// Multiplies all rows with these columns if they are such pixels, and does with the results what `finish`
/// says. With the output comes the first column's place in it. Returns whether it did.
#[inline(always)]
pub(in crate::fast) fn multiply<V: Simd<N>, const N: usize>(
    simd: V,
    lines: &Lines<'_, f32>,
    columns: Columns<'_, N>,
    to: (&mut Block<'_, f32>, usize),
    finish: impl Finish,
) -> bool {
    let Parts { rows, taps, length } = lines.parts;
    match (rows.0, taps.0, length) {
        (1, 1, 16) => each_pixel::<V, N, 16>(simd, lines, columns, to, finish),
        (1, 1, 8) => each_pixel::<V, N, 8>(simd, lines, columns, to, finish),
        _ => return false,
    }
    true
}

#[inline(always)]
fn each_pixel<V: Simd<N>, const N: usize, const LENGTH: usize>(
    simd: V,
    lines: &Lines<'_, f32>,
    (weights, bias): Columns<'_, N>,
    (output, column): (&mut Block<'_, f32>, usize),
    finish: impl Finish,
) {
    let mut resident = [simd.splat(0.0); LENGTH];
    for (vector, weights) in resident.iter_mut().zip(weights) {
        *vector = simd.load(weights);
    }
    let bias = simd.load(bias);
    let width = N.min(output.columns().len() - column);
    let first = output.columns().start;
    let mut walk = lines.walk();
    loop {
        let count = lines.left(&walk);
        if count == 0 {
            return;
        }
        let run = lines.take(&mut walk, count);
        let pixels = lines.places::<LENGTH>(&run);
        let finish = finish.part::<N>((run.row, count), first + column);
        for row in 0..count {
            let pixel = pixels.at(row);
            // In the order of tiles, so that results do not depend on which columns a thread has. What waits
            // for the product before leaves the processor to the pixels behind it.
            let mut sums = bias;
            for at in 0..LENGTH {
                sums = simd.mul_add(simd.splat(pixel[at]), resident[at], sums);
            }
            let line = &mut output.row(run.row + row)[column..][..width];
            let results = finish.finish(simd, sums, row);
            store_f32::<V, N>(simd, results, line);
        }
    }
}
