//! Products of many rows with a matrix of 32-bit floats, which is packed when the model is prepared, or, if
//! it is not constant, before it is multiplied.
//!
//! Columns are padded to whole panels, or half a one at the end, so that the inner loop has no remainder;
//! rows come in blocks that stay in the second-level cache while every panel of the matrix passes over them.

use nnhal_os::buffer::AlignedSlice;

use super::few_weights;
use super::lines::{Lines, Parts, Walk, panels_of_next_tile, rows_of_next_tile};
use super::product::{MicroKernel, Product, for_each_part, tall_tiles};
use super::tile::{COLUMNS, ROWS, add_f32, add_f32_and_half, for_each_constant, start_f32, store_f32};
use crate::fast::epilogue::{Finish, FinishPart};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::{Instructions, LANES, Simd, WIDE, dispatch};
use crate::threads::Block;

/// A constant matrix of 32-bit floats with a bias for each column.
#[derive(Debug)]
pub(in crate::fast) struct PackedF32 {
    depth: usize,
    /// Panel by panel; for each index along the common dimension a panel's vectors.
    panels: AlignedSlice,
    /// Those of all columns, and zeros up to a whole narrow vector.
    bias: Vec<f32>,
}

impl PackedF32 {
    /// Packs `columns` columns of `depth` values each; `value(column, at)` gives them.
    pub(in crate::fast) fn new(
        (columns, depth): (usize, usize),
        packing: &mut Packing,
        value: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedF32, PackingError> {
        let vectors = columns.div_ceil(LANES);
        let bytes = vectors * LANES * depth * size_of::<f32>();
        let panels = packing.part(bytes, |panels| {
            let values: &mut [f32] = bytemuck::cast_slice_mut(panels);
            for (number, panel) in values.chunks_mut((depth * COLUMNS).max(1)).enumerate() {
                let width = panel.len() / depth;
                for lane in 0..width.min(columns - number * COLUMNS) {
                    for at in 0..depth {
                        panel[at * width + lane] = value(number * COLUMNS + lane, at);
                    }
                }
            }
        })?;
        let bias = (0..vectors * LANES)
            .map(|column| if column < columns { bias(column) } else { 0.0 })
            .collect();
        Ok(PackedF32 { depth, panels, bias })
    }

    /// The packed columns.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.panels
    }

    /// Values along the common dimension.
    pub(in crate::fast) fn depth(&self) -> usize {
        self.depth
    }

    /// Multiplies rows with the columns that `output` has and does with the results what `finish` says.
    pub(in crate::fast) fn multiply(
        &self,
        lines: Lines<'_, f32>,
        output: Block<'_, f32>,
        finish: impl Finish,
    ) {
        let matrix = MatrixF32 {
            depth: self.depth,
            panels: bytemuck::cast_slice(self.panels.bytes()),
            bias: &self.bias,
        };
        matrix.multiply(lines, output, finish);
    }
}

/// A packed matrix of 32-bit floats in somebody's memory.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct MatrixF32<'a> {
    depth: usize,
    panels: &'a [f32],
    bias: &'a [f32],
}

/// Where the values of a matrix stand that is to be packed.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Unpacked<'a, T> {
    pub(in crate::fast) values: &'a [T],
    /// From a row to the next, or from a column.
    pub(in crate::fast) apart: usize,
    /// Whether the values of a column stand side by side, not those of a row.
    pub(in crate::fast) by_columns: bool,
}

impl<'a> MatrixF32<'a> {
    /// How many floats the panels of a matrix take, and its biases.
    pub(in crate::fast) fn lengths((columns, depth): (usize, usize)) -> [usize; 2] {
        let lanes = columns.next_multiple_of(LANES);
        [lanes * depth, lanes]
    }

    /// Packs `columns` columns of `depth` values each into memory of [`MatrixF32::lengths`]. Biases are 0.
    pub(in crate::fast) fn pack(
        from: Unpacked<'_, f32>,
        (columns, depth): (usize, usize),
        panels: &'a mut [f32],
        bias: &'a mut [f32],
    ) -> MatrixF32<'a> {
        bias.fill(0.0);
        for (number, panel) in panels.chunks_mut(depth * COLUMNS).enumerate() {
            let (first, width) = (number * COLUMNS, panel.len() / depth);
            let count = width.min(columns - first);
            if from.by_columns {
                for lane in 0..count {
                    let column = &from.values[(first + lane) * from.apart..][..depth];
                    for (to, value) in panel[lane..].iter_mut().step_by(width).zip(column) {
                        *to = *value;
                    }
                }
            } else {
                for (at, to) in panel.chunks_exact_mut(width).enumerate() {
                    to[..count].copy_from_slice(&from.values[at * from.apart + first..][..count]);
                }
            }
            for to in panel.chunks_exact_mut(width) {
                to[count..].fill(0.0);
            }
        }
        MatrixF32 { depth, panels, bias }
    }

    /// See [`PackedF32::multiply`].
    pub(in crate::fast) fn multiply(
        self,
        lines: Lines<'_, f32>,
        output: Block<'_, f32>,
        finish: impl Finish,
    ) {
        dispatch(Product {
            kernel: Floats { packed: self, finish },
            lines,
            output,
        });
    }

    /// A panel, or the half of one for narrow vectors: for each index a vector; and its biases.
    #[inline(always)]
    fn panel<const N: usize>(&self, number: usize) -> (&'a [[f32; N]], &'a [f32; N]) {
        let values = &self.panels[number * COLUMNS * self.depth..][..N * self.depth];
        let bias = &self.bias[number * COLUMNS..][..N];
        (values.as_chunks().0, &bias.as_chunks().0[0])
    }
}

/// Tiles of a matrix of floats, and what becomes of their sums.
struct Floats<'a, F> {
    packed: MatrixF32<'a>,
    finish: F,
}

/// Panels that are multiplied with one tile of rows after the other.
#[derive(Clone, Copy)]
struct Panels<'a, const N: usize, const P: usize> {
    weights: [&'a [[f32; N]]; P],
    bias: [&'a [f32; N]; P],
    /// In the output.
    column: usize,
}

impl<'a, F: Finish> MicroKernel for Floats<'a, F> {
    type Value = f32;
    type Result = f32;
    type Panels<const N: usize, const P: usize> = Panels<'a, N, P>;

    const MOST_ROWS: usize = ROWS;
    const PAIRS_PANELS: bool = true;
    const HAS_HALF: bool = true;

    #[inline(always)]
    fn vectors(&self, end: usize) -> usize {
        (self.packed.bias.len() / LANES).min(end.div_ceil(LANES))
    }

    #[inline(always)]
    fn panels<const N: usize, const P: usize>(&self, first: usize, column: usize) -> Panels<'a, N, P> {
        let mut panels = Panels {
            weights: [&[][..]; P],
            bias: [&[0.0; N]; P],
            column,
        };
        for panel in 0..P {
            (panels.weights[panel], panels.bias[panel]) = self.packed.panel::<N>(first + panel);
        }
        panels
    }

    #[inline(always)]
    fn rows_of_next_tile(left: usize) -> usize {
        rows_of_next_tile(left)
    }

    #[inline(always)]
    fn panels_of_next_tile(left: usize, is_half_behind: bool) -> usize {
        panels_of_next_tile(left, is_half_behind)
    }

    #[inline(always)]
    fn tile<S: Instructions, const R: usize, const P: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        panels: &Panels<'a, WIDE, P>,
        walk: &mut Walk,
    ) {
        product.float_tile::<S::Wide, WIDE, R, P>(simd.wide(), panels, walk);
    }

    #[inline(always)]
    fn half_tile<S: Instructions, const R: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        half: &Panels<'a, LANES, 1>,
        walk: &mut Walk,
    ) {
        product.float_tile::<S::Narrow, LANES, R, 1>(simd.narrow(), half, walk);
    }

    #[inline(always)]
    fn tall_tiles<S: Instructions>(product: &mut Product<'_, Self>, simd: S, (panel, count): (usize, usize)) {
        tall_tiles!(
            product, simd, (panel, count),
            4: [6 5 4 3 2 1],
            3: [8 7 6 5 4 3 2 1],
            2: [12 11 10 9 8 7 6 5 4 3 2 1],
            else 1: [8 7 6 5 4 3 2 1]
        )
    }

    #[inline(always)]
    fn last<S: Instructions, const VECTORS: usize>(
        product: &mut Product<'_, Self>,
        simd: S,
        panel: usize,
    ) -> bool {
        match VECTORS {
            1 => product.few_weights::<_, LANES>(simd.narrow(), panel),
            2 => product.few_weights::<_, WIDE>(simd.wide(), panel),
            _ => {
                product.tall_tiles_and_half(simd, panel);
                true
            }
        }
    }
}

impl<'a, F: Finish> Product<'_, Floats<'a, F>> {
    /// A panel, or the half of one for narrow vectors, if all its weights stay in registers. Returns whether
    /// they do.
    #[inline(always)]
    fn few_weights<V: Simd<N>, const N: usize>(&mut self, simd: V, panel: usize) -> bool {
        let columns = self.kernel.packed.panel::<N>(panel);
        let column = self.column(panel);
        few_weights::multiply(
            simd,
            &self.lines,
            columns,
            (&mut self.output, column),
            self.kernel.finish,
        )
    }

    /// The last panel and the half one behind it.
    #[inline(always)]
    fn tall_tiles_and_half<S: Instructions>(&mut self, simd: S, panel: usize) {
        let mut walk = self.lines.walk();
        let panels = (
            self.kernel.panels::<WIDE, 1>(panel, self.column(panel)),
            self.kernel.panels::<LANES, 1>(panel + 1, self.column(panel + 1)),
        );
        loop {
            match self.lines.left(&walk) {
                0 => return,
                12.. => self.tile_and_half::<S, 12>(simd, &panels, &mut walk),
                8.. => self.tile_and_half::<S, 8>(simd, &panels, &mut walk),
                4.. => self.tile_and_half::<S, 4>(simd, &panels, &mut walk),
                2.. => self.tile_and_half::<S, 2>(simd, &panels, &mut walk),
                _ => self.tile_and_half::<S, 1>(simd, &panels, &mut walk),
            }
        }
    }

    /// Computes the tile of the next rows with a panel and half a one: each value of a row is there for both.
    #[inline(always)]
    fn tile_and_half<S: Instructions, const R: usize>(
        &mut self,
        simd: S,
        (panel, half): &(Panels<'_, WIDE, 1>, Panels<'_, LANES, 1>),
        walk: &mut Walk,
    ) {
        let run = self.lines.take(walk, R);
        let mut sums = start_f32::<S::Wide, WIDE, R, 1>(simd.wide(), panel.bias);
        let mut halves = start_f32::<S::Narrow, LANES, R, 1>(simd.narrow(), half.bias);
        let Parts { rows, taps, length } = self.lines.parts;
        let ([mut wide], [mut narrow]) = (panel.weights, half.weights);
        for row in 0..rows.0 {
            for tap in 0..taps.0 {
                let part = self.lines.part(&run, row * rows.1 + tap * taps.1);
                add_f32_and_half::<S, R>(simd, part, (wide, narrow), (&mut sums, &mut halves));
                (wide, narrow) = (&wide[length..], &narrow[length..]);
            }
        }
        let first = self.output.columns().start + panel.column;
        let finish = (
            self.kernel.finish.part::<WIDE>((run.row, R), first),
            self.kernel.finish.part::<LANES>((run.row, R), first + WIDE),
        );
        for_each_constant!(row in [0 1 2 3 4 5 6 7 8 9 10 11] {
            if row < R {
                let line = &mut self.output.row(run.row + row)[panel.column..];
                let (whole, rest) = line.split_at_mut(WIDE);
                let results = finish.0.finish(simd.wide(), sums[row][0], row);
                store_f32::<S::Wide, WIDE>(simd.wide(), results, whole);
                let width = rest.len().min(LANES);
                let results = finish.1.finish(simd.narrow(), halves[row][0], row);
                store_f32::<S::Narrow, LANES>(simd.narrow(), results, &mut rest[..width]);
            }
        });
    }

    /// Computes the tile of the next rows.
    #[inline(always)]
    fn float_tile<V: Simd<N>, const N: usize, const R: usize, const P: usize>(
        &mut self,
        simd: V,
        panels: &Panels<'_, N, P>,
        walk: &mut Walk,
    ) {
        let run = self.lines.take(walk, R);
        let mut sums = start_f32::<V, N, R, P>(simd, panels.bias);
        if self.lines.are_whole() {
            // Single pixels, with nothing to step over.
            let part = self.lines.part(&run, 0);
            add_f32::<V, N, R, P>(simd, part, panels.weights, &mut sums);
        } else {
            let mut weights = panels.weights;
            for_each_part!((part, weights / 1) of self.lines, &run => {
                add_f32::<V, N, R, P>(simd, part, weights, &mut sums);
            });
        }
        let first = self.output.columns().start + panels.column;
        let mut finish = [self.kernel.finish.part::<N>((run.row, R), first); P];
        for (panel, finish) in finish.iter_mut().enumerate().skip(1) {
            *finish = self.kernel.finish.part((run.row, R), first + panel * N);
        }
        if self.output.columns().len() - panels.column >= P * N {
            // Row by row without a loop, so that sums stay in registers.
            for_each_constant!(row in [0 1 2 3 4 5 6 7 8 9 10 11] {
                if row < R {
                    let line = &mut self.output.row(run.row + row)[panels.column..][..P * N];
                    for panel in 0..P {
                        let to = &mut line[panel * N..][..N];
                        let results = finish[panel].finish(simd, sums[row][panel], row);
                        store_f32::<V, N>(simd, results, to);
                    }
                }
            });
            return;
        }
        for (row, sums) in sums.iter().enumerate() {
            let line = &mut self.output.row(run.row + row)[panels.column..];
            for (panel, sums) in sums.iter().enumerate() {
                let line = &mut line[panel * COLUMNS..];
                let width = line.len().min(N);
                let results = finish[panel].finish(simd, *sums, row);
                store_f32::<V, N>(simd, results, &mut line[..width]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Lines, PackedF32, Packing, Parts};
    use crate::fast::epilogue::Clamp;
    use crate::fast::testing::each_block;
    use crate::threads::Block;

    #[test]
    fn odd_sizes_have_no_remainder_trouble() {
        for (rows, depth, columns) in [
            (7, 5, 19),
            (1, 9, 70),
            (2, 3, 40),
            (17, 4, 24),
            (13, 6, 8),
            (3, 2, 3),
            (9, 1, 24),
            (2, 1, 33),
            (31, 7, 21),
            (26, 3, 56),
            (31, 200, 64),
            (40, 300, 137),
            (70, 501, 19),
            // Pixels whose weights stay in registers, before other panels and alone.
            (37, 16, 16),
            (37, 8, 13),
            (5, 16, 8),
            (23, 8, 80),
            (1, 16, 5),
        ] {
            for range in [(-20.0, 40.0), (f32::NEG_INFINITY, f32::INFINITY)] {
                expect_exact((rows, depth, columns), range, |packed, all, output| {
                    each_block(output, (rows, columns), |block| {
                        packed.multiply(all, block, Clamp(range))
                    });
                });
            }
        }
    }

    #[test]
    fn any_number_of_panels_is_multiplied_once() {
        let range = (f32::NEG_INFINITY, f32::INFINITY);
        for panels in 1..=10 {
            for more in [0, 5, 13] {
                for rows in [1, 2, 3, 13, 25] {
                    let columns = panels * COLUMNS + more;
                    expect_exact((rows, 5, columns), range, |packed, all, output| {
                        packed.multiply(all, Block::whole(output, columns), Clamp(range));
                    });
                }
            }
        }
    }

    /// Multiplies rows that are all others, with columns that are, and compares with what there should be.
    fn expect_exact(
        (rows, depth, columns): (usize, usize, usize),
        (low, high): (f32, f32),
        multiply: impl Fn(&PackedF32, Lines<'_, f32>, &mut [f32]),
    ) {
        let value = |row: usize, at: usize| ((row * 31 + at * 17) % 101) as f32 - 50.0;
        let left: Vec<f32> = (0..rows * depth)
            .map(|at| value(at / depth, at % depth))
            .collect();
        let weight = |column: usize, at: usize| ((column * 3 + at * 5) % 11) as f32 - 5.0;
        let bias = |column: usize| (column % 17) as f32 - 8.0;
        let packed = PackedF32::new((columns, depth), &mut Packing::Now, weight, bias).unwrap();
        let mut output = vec![f32::NAN; rows * columns];
        multiply(&packed, Lines::of_rows(&left, rows, (depth, depth)), &mut output);
        for (at, found) in output.iter().enumerate() {
            let (row, column) = (at / columns, at % columns);
            let sum: f32 = (0..depth).map(|at| value(row, at) * weight(column, at)).sum();
            let exact = (sum + bias(column)).clamp(low, high);
            assert_eq!(*found, exact, "{row} of {rows}, {depth}, {column} of {columns}");
        }
    }

    #[test]
    fn patches_are_multiplied_where_they_are() {
        let (width, channels, columns, out) = (13, 50, 70, 11);
        let image: Vec<f32> = (0..width * width * channels)
            .map(|at| at as f32 % 7.0 - 3.0)
            .collect();
        let weight = |column: usize, at: usize| ((column * 3 + at * 5) % 11) as f32 - 5.0;
        let depth = 9 * channels;
        let packed = PackedF32::new((columns, depth), &mut Packing::Now, weight, |_| 1.0).unwrap();
        for (taps, length) in [((1, 0), 3 * channels), ((3, channels), channels)] {
            let patches = Lines {
                values: &image,
                count: out * out,
                first: 0,
                width: out,
                step: channels,
                line: width * channels,
                parts: Parts {
                    rows: (3, width * channels),
                    taps,
                    length,
                },
            };
            let mut output = vec![f32::NAN; out * out * columns];
            let block = Block::whole(&mut output, columns);
            packed.multiply(patches, block, Clamp((-20.0, 30.0)));
            for row in 0..out * out {
                let start = (row / out * width + row % out) * channels;
                let value =
                    |at: usize| image[start + at / (3 * channels) * width * channels + at % (3 * channels)];
                for column in 0..columns {
                    let sum: f32 = (0..depth).map(|at| value(at) * weight(column, at)).sum();
                    let exact = (sum + 1.0).clamp(-20.0, 30.0);
                    assert_eq!(output[row * columns + column], exact, "{row} {column} {length}");
                }
            }
        }
    }
}
