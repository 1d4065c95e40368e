//! Products of rows of bytes with a constant matrix of 8-bit integers, as floats: for layers of floats whose
//! input and weights are integers, with instructions that multiply four bytes of a lane at once and add them.
//!
//! Values are unsigned bytes, counted from a zero point `z` which each execution chooses. What is wanted of
//! them is `sum((u - z) * w) = sum(u * w) - z * sum(w)`, of which the second sum is known when the model is
//! prepared. Sums are exact, and become the floats that are nearest to them.

use nnhal_os::buffer::AlignedSlice;

use super::lines::{Lines, Walk};
use super::product::{MicroKernel, Product, for_each_part, tall_tiles};
use super::tile::{COLUMNS, add_bytes, for_each_constant, start_i32, store_f32};
use crate::fast::epilogue::clamp;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::{Columns, Instructions, Simd, dispatch};
use crate::threads::Block;

/// Values that are multiplied at once.
pub(in crate::fast) const FOUR: usize = 4;

/// Along so many values no sum of products of bytes is beyond 32 bits.
const MOST_DEPTH: usize = 1 << 16;

/// A constant matrix of 8-bit integers.
#[derive(Debug)]
pub(in crate::fast) struct PackedIntegers {
    columns: usize,
    depth: usize,
    /// Panel by panel; for each four values along the common dimension a vector of columns. Behind the last
    /// values are zeros.
    panels: AlignedSlice,
    /// The sum of each column's weights, and zeros up to a whole panel.
    sums: Vec<i32>,
}

/// What becomes of the sums of columns, by column up to a whole panel.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Finish<'a> {
    /// What sums start from; see [`PackedIntegers::start`].
    pub(in crate::fast) start: &'a [i32],
    /// What they are multiplied with, as floats.
    pub(in crate::fast) scale: &'a [f32],
    /// What is then added.
    pub(in crate::fast) addend: &'a [f32],
    /// What results are clamped to.
    pub(in crate::fast) range: (f32, f32),
}

impl PackedIntegers {
    /// Whether products along so many values are taken.
    pub(in crate::fast) fn takes(depth: usize) -> bool {
        (1..=MOST_DEPTH).contains(&depth)
    }

    /// Packs a matrix of so many columns of `depth` values; `weight(column, at)` gives them.
    pub(in crate::fast) fn new(
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i8,
    ) -> Result<PackedIntegers, PackingError> {
        let panels = columns.div_ceil(COLUMNS);
        let size = COLUMNS * depth.next_multiple_of(FOUR);
        let packed = packing.part(panels * size, |bytes| {
            for (number, panel) in bytes.chunks_mut(size.max(1)).enumerate() {
                let first = number * COLUMNS;
                for column in first..columns.min(first + COLUMNS) {
                    for at in 0..depth {
                        let lane = at / FOUR * COLUMNS + column - first;
                        panel[lane * FOUR + at % FOUR] = weight(column, at) as u8;
                    }
                }
            }
        })?;
        // Of what is packed: the weights themselves may be there no more.
        let mut sums = vec![0_i32; panels * COLUMNS];
        let each = packed.bytes().chunks(size.max(1));
        for (sums, panel) in sums.chunks_mut(COLUMNS).zip(each) {
            for (at, weight) in panel.iter().enumerate() {
                sums[at / FOUR % COLUMNS] += i32::from(*weight as i8);
            }
        }
        Ok(PackedIntegers {
            columns,
            depth,
            panels: packed,
            sums,
        })
    }

    /// The packed columns.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Columns, and values along each.
    pub(in crate::fast) fn sizes(&self) -> (usize, usize) {
        (self.columns, self.depth)
    }

    /// Columns up to a whole panel.
    pub(in crate::fast) fn lanes(&self) -> usize {
        self.sums.len()
    }

    /// Writes what sums of values with this zero point start from.
    pub(in crate::fast) fn start(&self, zero: u8, to: &mut [i32]) {
        for (to, sum) in to.iter_mut().zip(&self.sums) {
            *to = i32::from(zero).wrapping_mul(*sum).wrapping_neg();
        }
    }

    /// Multiplies rows with the columns that `output` has. Parts of rows are of whole fours: behind the
    /// values may be anything up to the next.
    pub(in crate::fast) fn multiply(&self, lines: Lines<'_, u8>, finish: Finish<'_>, output: Block<'_, f32>) {
        dispatch(Product {
            kernel: Integers { packed: self, finish },
            lines,
            output,
        });
    }

    #[inline(always)]
    fn panel<V: Columns>(&self, number: usize) -> &[V::Pairs] {
        let size = COLUMNS * self.depth.next_multiple_of(FOUR);
        bytemuck::cast_slice(&self.panels.bytes()[number * size..][..size])
    }
}

/// The lanes of a panel.
#[inline(always)]
fn lanes<T>(values: &[T], panel: usize) -> &[T; COLUMNS] {
    &values.as_chunks().0[panel]
}

/// Tiles of a matrix of integers, and what becomes of their sums.
struct Integers<'a> {
    packed: &'a PackedIntegers,
    finish: Finish<'a>,
}

impl MicroKernel for Integers<'_> {
    type Value = u8;
    type Result = f32;
    type Panels<const N: usize, const P: usize> = usize;

    const IS_OF_BYTES: bool = true;
    const MOST_ROWS: usize = 4;

    #[inline(always)]
    fn panels<const N: usize, const P: usize>(&self, first: usize, _: usize) -> usize {
        first
    }

    #[inline(always)]
    fn panels_of_next_tile(left: usize, _: bool) -> usize {
        match left {
            4.. => 4,
            2.. => 2,
            _ => 1,
        }
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
        let Integers { packed, finish } = product.kernel;
        let mut weights = [&[][..]; P];
        let mut start = [&[0; COLUMNS]; P];
        let mut scale = [simd.splat(1.0); P];
        let mut addend = [simd.splat(0.0); P];
        for panel in 0..P {
            weights[panel] = packed.panel::<S::Wide>(first + panel);
            start[panel] = lanes(finish.start, first + panel);
        }
        let mut sums = start_i32::<S::Wide, COLUMNS, R, P>(simd, start);
        for_each_part!((part, weights / 4) of product.lines, &run => {
            add_bytes::<S::Wide, R, P>(simd, part, weights, &mut sums);
        });
        for panel in 0..P {
            scale[panel] = simd.load(lanes(finish.scale, first + panel));
            addend[panel] = simd.load(lanes(finish.addend, first + panel));
        }
        let column = product.column(first);
        for_each_constant!(row in [0 1 2 3 4 5 6 7] {
            if row < R {
                let line = &mut product.output.row(run.row + row)[column..];
                let mut columns = line.chunks_mut(COLUMNS);
                for panel in 0..P {
                    if let Some(to) = columns.next() {
                        // Not in one step, so that results are those of the operations one by one.
                        let scaled = simd.mul(simd.floats(sums[row][panel]), scale[panel]);
                        let results = clamp(simd, simd.add(scaled, addend[panel]), finish.range);
                        store_f32::<S::Wide, COLUMNS>(simd, results, to);
                    }
                }
            }
        });
    }

    #[inline(always)]
    fn tall_tiles<S: Instructions>(product: &mut Product<'_, Self>, simd: S, (panel, count): (usize, usize)) {
        tall_tiles!(
            product, simd, (panel, count),
            4: [6 5 4 3 2 1],
            2: [8 7 6 5 4 3 2 1],
            else 1: [8 7 6 5 4 3 2 1]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, FOUR, Finish, PackedIntegers, Packing};
    use crate::fast::matmul::lines::Lines;
    use crate::fast::testing::each_block;

    /// If this fails, weights are packed otherwise than before: count [`crate::fast::LAYOUT`] up and write
    /// the new sum here.
    #[test]
    fn integers_are_laid_out_as_their_version_says() {
        let weight = |column: usize, at: usize| ((column * 13 + at * 29) % 256) as u8 as i8;
        let sums = [(50, 70), (145, 27)].map(|sizes| {
            let packed = PackedIntegers::new(sizes, &mut Packing::Now, weight).unwrap();
            // FNV-1a.
            let fold = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            packed.packed().bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold)
        });
        assert_eq!(
            (crate::fast::LAYOUT, sums),
            (15, [3_353_764_977_667_342_133, 14_042_218_799_492_170_732])
        );
    }

    #[test]
    fn products_of_integers_are_exact() {
        let sizes: [(usize, usize, usize); 8] = [
            (1, 1, 1),
            (1, 640, 300),
            (9, 8, 17),
            (19, 3, 24),
            (13, 64, 64),
            (125, 40, 64),
            (33, 201, 40),
            (7, 27, 145),
        ];
        for (rows, depth, columns) in sizes {
            for zero in [0, 128, 255] {
                let apart = depth.next_multiple_of(FOUR);
                let value = |row: usize, at: usize| ((row * 31 + at * 17 + 5) % 256) as u8;
                let weight = |column: usize, at: usize| ((column * 13 + at * 29) % 256) as u8 as i8;
                let packed = PackedIntegers::new((columns, depth), &mut Packing::Now, weight).unwrap();
                // Whatever is behind a row.
                let values: Vec<u8> = (0..rows * apart)
                    .map(|at| {
                        if at % apart < depth {
                            value(at / apart, at % apart)
                        } else {
                            77
                        }
                    })
                    .collect();
                let lanes = columns.next_multiple_of(COLUMNS);
                let scale: Vec<f32> = (0..lanes).map(|column| column as f32 * 0.3 - 2.0).collect();
                let addend: Vec<f32> = (0..lanes).map(|column| 700.0 - column as f32).collect();
                let mut start = vec![0; packed.lanes()];
                packed.start(zero, &mut start);
                let finish = Finish {
                    start: &start,
                    scale: &scale,
                    addend: &addend,
                    range: (-50_000.0, 90_000.0),
                };
                let mut output = vec![0.0; rows * columns];
                each_block(&mut output, (rows, columns), |block| {
                    let lines = Lines::of_rows(&values, rows, (apart, apart));
                    packed.multiply(lines, finish, block);
                });
                for (at, found) in output.iter().enumerate() {
                    let (row, column) = (at / columns, at % columns);
                    let products = (0..depth).map(|at| {
                        (i32::from(value(row, at)) - i32::from(zero)) * i32::from(weight(column, at))
                    });
                    let exact = products.sum::<i32>() as f32 * scale[column] + addend[column];
                    assert_eq!(
                        *found,
                        exact.clamp(-50_000.0, 90_000.0),
                        "{rows} {depth} {columns}"
                    );
                }
            }
        }
    }
}
