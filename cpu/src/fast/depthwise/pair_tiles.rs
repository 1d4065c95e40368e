//! Neighbouring outputs of a depthwise convolution by products of 16-bit values: for the usual filters what
//! was interleaved once serves all of them.

use super::driver::{first_channel, for_each_product, tiles};
use super::pairs::{Image, Pairs, Weights};
use crate::fast::matmul::tile::{COLUMNS, for_each_constant};
use crate::fast::simd::strided::Strided;
use crate::fast::simd::{Columns, LANES};
use crate::kernels::element::Quant8;

/// How many of a run's outputs to sum side by side: as many as leave registers for weights and values, of
/// which there are `many` where wide vectors are single ones, so that few are computed twice.
pub(super) fn outputs_of_tile(run: usize, many: bool) -> usize {
    match (run, many) {
        (6.., true) if run.div_ceil(6) * 7 <= run.div_ceil(4) * 5 => 6,
        (4.., true) => 4,
        (3.., _) => 3,
        _ => 1,
    }
}

/// Outputs whose windows are equally far apart: those of a row, or all of a block if rows have a single one.
struct Runs {
    /// How many such runs there are, and how many outputs each has.
    count: usize,
    outputs: usize,
    /// Values of the padded image between the windows of neighbouring outputs.
    step: usize,
    /// Values of an output: channels, of two pixels if they are eight and side by side.
    lanes: usize,
}

/// Where outputs of a group are.
struct Place {
    group: usize,
    /// The corner of the first one's window in the padded image.
    corner: usize,
    /// The first one in the output.
    output: usize,
}

impl<T: Quant8> Image<'_, T> {
    #[inline(always)]
    pub(super) fn of_image<V: Columns, const MANY: bool>(mut self, simd: V) {
        let Pairs { packed, patches, .. } = self.kernel;
        let (width, channels) = (patches.output.width as usize, packed.channels);
        let horizontal = &patches.horizontal;
        let stride = horizontal.stride as usize;
        let pixels = if channels == LANES && stride == 1 && width.is_multiple_of(2) {
            2
        } else {
            1
        };
        let runs = if width == 1 {
            Runs {
                count: 1,
                outputs: self.rows,
                step: patches.vertical.stride as usize * self.line,
                lanes: channels,
            }
        } else {
            Runs {
                count: self.rows,
                outputs: width / pixels,
                step: pixels * stride * channels,
                lanes: pixels * channels,
            }
        };
        let is_dense = horizontal.dilation == 1 && width > 1;
        match (horizontal.filter, runs.step / channels.max(1)) {
            (3, 1) if is_dense => self.runs::<V, MANY, 3, 1>(simd, &runs),
            (3, 2) if is_dense => self.runs::<V, MANY, 3, 2>(simd, &runs),
            (5, 1) if is_dense => self.runs::<V, MANY, 5, 1>(simd, &runs),
            (5, 2) if is_dense => self.runs::<V, MANY, 5, 2>(simd, &runs),
            _ => self.runs::<V, MANY, 0, 1>(simd, &runs),
        }
    }

    /// All outputs, by filters of `K` columns that go on by `STRIDE` pixels from one to the next, or any if
    /// `K` is 0.
    #[inline(always)]
    fn runs<V: Columns, const MANY: bool, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
    ) {
        match outputs_of_tile(runs.outputs, MANY) {
            6 if MANY => self.tiles::<V, 6, K, STRIDE>(simd, runs),
            4 if MANY => self.tiles::<V, 4, K, STRIDE>(simd, runs),
            3 => self.tiles::<V, 3, K, STRIDE>(simd, runs),
            _ => self.tiles::<V, 1, K, STRIDE>(simd, runs),
        }
    }

    /// The same, so many neighbouring outputs at a time, of which each run has as many at least.
    #[inline(always)]
    fn tiles<V: Columns, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
    ) {
        let Pairs { packed, patches, .. } = self.kernel;
        let down = patches.vertical.stride as usize * self.line;
        for run in 0..runs.count {
            let corner = run * down;
            let output = run * runs.outputs * runs.lanes;
            for group in 0..packed.bias.len() {
                let first = first_channel(group, COLUMNS, packed.channels);
                for at in tiles(runs.outputs, O) {
                    let place = Place {
                        group,
                        corner: corner + at * runs.step + first,
                        output: output + at * runs.lanes + first,
                    };
                    self.outputs::<V, O, K, STRIDE>(simd, runs, &place);
                }
            }
        }
    }

    #[inline(always)]
    fn outputs<V: Columns, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
        place: &Place,
    ) {
        let Pairs { packed, patches, .. } = self.kernel;
        let horizontal = &patches.horizontal;
        let mut sums = [simd.load_i32(&packed.bias[place.group]); O];
        let weights = &self.weights[place.group * packed.pairs..][..packed.pairs];
        let (rows, down) = (
            patches.vertical.filter as usize,
            patches.vertical.dilation as usize * self.line,
        );
        for (pair, weights) in weights.chunks_exact(horizontal.filter as usize).enumerate() {
            // The weights of a row that the filter has not are zero, whatever they are multiplied with.
            let upper = &self.strip[place.corner + 2 * pair * down..];
            let lower = &self.strip[place.corner + (2 * pair + 1).min(rows - 1) * down..];
            if K > 0 {
                let columns = (upper, lower, packed.channels);
                accumulate::<V, O, K, STRIDE>(simd, columns, weights, &mut sums);
                continue;
            }
            let right = horizontal.dilation as usize * packed.channels;
            for (tap, weights) in weights.iter().enumerate() {
                let weights = load_weights(simd, weights);
                for (output, sum) in sums.iter_mut().enumerate() {
                    let at = tap * right + output * runs.step;
                    let pairs = simd.interleave(columns(upper, at), columns(lower, at));
                    *sum = simd.add_products(*sum, pairs, weights);
                }
            }
        }
        let requantization = packed.requantization.of(place.group);
        let lanes = runs.lanes.min(COLUMNS);
        for_each_constant!(output in [0 1 2 3 4 5] {
            if output < O {
                let to = &mut self.output[place.output + output * runs.lanes..][..lanes];
                if T::LEAST < 0 {
                    requantization.store::<V, true>(simd, sums[output], &self.kernel.stored, to);
                } else {
                    requantization.store::<V, false>(simd, sums[output], &self.kernel.stored, to);
                }
            }
        });
    }
}

/// Adds the products of two rows of a filter with the columns that neighbouring outputs see of two lines,
/// which are so many values apart.
#[inline(always)]
fn accumulate<V: Columns, const O: usize, const K: usize, const STRIDE: usize>(
    simd: V,
    (upper, lower, apart): (&[i16], &[i16], usize),
    weights: &[Weights],
    sums: &mut [V::I32; O],
) {
    let mut taps = [simd.splat_i32(0); K];
    for_each_constant!(tap in [0 1 2 3 4] {
        if tap < K {
            taps[tap] = load_weights(simd, &weights[tap]);
        }
    });
    let count = (O - 1) * STRIDE + K;
    let upper = Strided::<_, COLUMNS>::new(upper, (count, apart));
    let lower = Strided::<_, COLUMNS>::new(lower, (count, apart));
    for_each_product!(
        (O, K, STRIDE),
        column if true => pairs = simd.interleave(upper.at(column), lower.at(column)),
        (output, tap) => sums[output] = simd.add_products(sums[output], pairs, taps[tap])
    );
}

#[inline(always)]
fn load_weights<V: Columns>(simd: V, weights: &Weights) -> V::I32 {
    simd.load_pairs(bytemuck::cast_ref(weights))
}

#[inline(always)]
fn columns(image: &[i16], at: usize) -> &[i16; COLUMNS] {
    bytemuck::from_bytes(bytemuck::cast_slice(&image[at..at + COLUMNS]))
}
