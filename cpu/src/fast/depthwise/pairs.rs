//! DEPTHWISE_CONV_2D of 8-bit values with constant weights and one output channel for each input channel, by
//! products of 16-bit values: where [`super::bytes`] does not compute the layer.
//!
//! The input is copied into scratch memory as 16-bit values less the zero point, a strip at a time, with its
//! padding, so that every output sees a whole window. Taps are taken two at a time, as the multiplying
//! instruction does: those of two rows of the filter, so that for the usual filters what was interleaved once
//! serves all neighbouring outputs that see it. Channels are taken in groups; the last one overlaps the one
//! before it where channels do not fill it.

use nnhal_hal::ops::padding::{Extents, Window};
use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use super::floats::cost;
use crate::fast::convolution::patches::Patches;
use crate::fast::convolution::products::widen;
use crate::fast::matmul::tile::{COLUMNS, for_each_constant, rows_per_block};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::fast::requantize::{OfPanels, QuantizedOutput, Requantization, in_order};
use crate::fast::simd::strided::Strided;
use crate::fast::simd::{COLUMN_ORDER, Columns, Instructions, LANES, Work, dispatch};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;
use crate::scratch::Scratch;
use crate::threads::Team;

/// How many of a run's outputs to sum side by side: as many as leave registers for weights and values, of
/// which there are `many` where wide vectors are single ones, so that few are computed twice.
fn outputs_of_tile(run: usize, many: bool) -> usize {
    match (run, many) {
        (6.., true) if run.div_ceil(6) * 7 <= run.div_ceil(4) * 5 => 6,
        (4.., true) => 4,
        (3.., _) => 3,
        _ => 1,
    }
}

/// Pairs of weights for each of a group's columns.
type Weights = [i16; 2 * COLUMNS];

/// Padded images are at most so many times as large as the image, or [`SMALL_IMAGE`].
const MAX_PADDING: usize = 8;

/// Elements of a padded image that are no burden whatever the image: 2 MiB.
const SMALL_IMAGE: usize = 1 << 20;

/// Whether windows of this kind are computed here: those with taps that are not so far apart that most of the
/// padded image would be padding.
pub(in crate::fast) fn serves(patches: &Patches) -> bool {
    let image = [patches.input.height, patches.input.width, patches.input.channels]
        .into_iter()
        .fold(1, |product: usize, extent| {
            product.saturating_mul(extent as usize)
        });
    let most = image.saturating_mul(MAX_PADDING).max(SMALL_IMAGE);
    Padded::of(patches).len().is_some_and(|length| length <= most)
}

/// Filters, biases and multipliers, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    channels: usize,
    /// Pairs of taps of a filter.
    pairs: usize,
    /// By group, then pair of rows of the filter, then column.
    weights: AlignedSlice,
    /// By group.
    bias: Vec<[i32; COLUMNS]>,
    /// By group.
    requantization: OfPanels<Requantization>,
}

/// The first channel of a group.
#[inline(always)]
fn first_channel(group: usize, channels: usize) -> usize {
    (group * COLUMNS).min(channels.saturating_sub(COLUMNS))
}

/// The channel that a lane of a group is for, if it is for one. Eight channels are there twice, for two
/// pixels.
fn channel_of(group: usize, lane: usize, channels: usize) -> Option<usize> {
    let channel = first_channel(group, channels) + lane;
    let channel = if channels == LANES {
        channel % LANES
    } else {
        channel
    };
    (channel < channels).then_some(channel)
}

impl PackedDepthwise {
    /// Packs filters of so many rows and columns for each channel; `weight(tap, channel)` gives their values.
    pub(in crate::fast) fn new(
        (channels, [rows, across]): (usize, [usize; 2]),
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedDepthwise, PackingError> {
        let (groups, pairs) = (channels.div_ceil(COLUMNS), rows.div_ceil(2) * across);
        let pair_of = |at: usize| -> Weights {
            let (group, pair) = (at / pairs, at % pairs);
            let value = |lane: usize, which: usize| {
                let row = pair / across * 2 + which;
                let channel = channel_of(group, COLUMN_ORDER[lane], channels).filter(|_| row < rows);
                channel.map_or(0, |channel| weight(row * across + pair % across, channel))
            };
            std::array::from_fn(|element| value(element / 2, element % 2))
        };
        let weights = packing.part(groups * pairs * size_of::<Weights>(), |bytes| {
            let packed: &mut [Weights] = bytemuck::cast_slice_mut(bytes);
            for (at, packed) in packed.iter_mut().enumerate() {
                *packed = pair_of(at);
            }
        })?;
        // Lanes without a channel are not stored.
        let clamped = |group: usize, lane: usize| channel_of(group, lane, channels).unwrap_or(channels - 1);
        Ok(PackedDepthwise {
            channels,
            pairs,
            weights,
            bias: (0..groups)
                .map(|group| in_order(std::array::from_fn(|lane| bias(clamped(group, lane)))))
                .collect(),
            requantization: OfPanels::new(
                groups,
                |group| std::array::from_fn(|lane| multiplier(clamped(group, lane))),
                |_, multipliers| Requantization::new(multipliers),
            ),
        })
    }

    /// The packed filters.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }

    /// Convolves `input` into `output`.
    pub(in crate::fast) fn run<T: Quant8>(
        &self,
        patches: &Patches,
        (input, input_zero): (&[T], i32),
        (output, stored): (&mut [T], QuantizedOutput),
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<(), OutOfMemory> {
        let padded = Padded::of(patches);
        let size =
            |extents: &Extents| extents.height as usize * extents.width as usize * extents.channels as usize;
        let output: &mut [u8] = bytemuck::cast_slice_mut(output);
        let (height, size_out) = (patches.output.height as usize, size(&patches.output));
        let threads = team.threads_for(cost(patches));
        let mut grid = partition::rows(threads, height, size_out / height.max(1));
        grid.rows_per_block = grid.rows_per_block.min(rows_of_strip(patches, padded.line()));
        let threads = threads.min(grid.blocks().max(1));
        let strip = |rows| span(&patches.vertical, rows) * padded.line();
        // With what is read beyond the channels of the last pixel.
        let length = strip(grid.rows_per_block).saturating_add(COLUMNS);
        let strips = scratch.shares::<i16>(threads, length)?;
        let images = input.chunks_exact(size(&patches.input).max(1));
        for (input, output) in images.zip(output.chunks_exact_mut(size_out.max(1))) {
            team.for_each_block(threads, &grid, (output, &mut *strips), |mut block, image| {
                let rows = block.rows();
                dispatch(Fill {
                    padded: &padded,
                    patches,
                    input,
                    zero: input_zero as i16,
                    first: block.first_row() * patches.vertical.stride as usize,
                    lines: &mut image[..strip(rows)],
                });
                let image = Image {
                    packed: self,
                    weights: bytemuck::cast_slice(self.weights.bytes()),
                    patches,
                    image: &image[..length],
                    line: padded.line(),
                    rows,
                    output: block.all(),
                    stored,
                };
                if T::LEAST < 0 {
                    dispatch(Signed::<true>(image));
                } else {
                    dispatch(Signed::<false>(image));
                }
            });
        }
        Ok(())
    }
}

/// The extents of an image with its padding around it.
struct Padded {
    height: usize,
    width: usize,
    channels: usize,
}

impl Padded {
    fn of(patches: &Patches) -> Padded {
        Padded {
            height: span(&patches.vertical, patches.output.height as usize),
            width: span(&patches.horizontal, patches.output.width as usize),
            channels: patches.input.channels as usize,
        }
    }

    /// Values of a line.
    fn line(&self) -> usize {
        self.width * self.channels
    }

    /// How many elements there are; `None` for more than can be counted.
    fn len(&self) -> Option<usize> {
        self.height.checked_mul(self.width)?.checked_mul(self.channels)
    }
}

/// How many lines, or columns, the windows of so many neighbouring outputs reach over.
fn span(window: &Window, outputs: usize) -> usize {
    outputs.saturating_sub(1) * window.stride as usize + window.effective() as usize
}

/// How many rows of outputs are computed from one strip of the padded image, whose lines have so many values:
/// as many as leave it in a second-level cache, and so many at least that few lines are in two strips.
fn rows_of_strip(patches: &Patches, line: usize) -> usize {
    let stride = patches.vertical.stride.max(1) as usize;
    let lines = rows_per_block(line * size_of::<i16>());
    let overlap = (patches.vertical.effective() as usize).saturating_sub(stride);
    lines.saturating_sub(overlap).max(8 * overlap).max(stride) / stride
}

/// Copies lines of an image into the middle of those of the padded one; what the padding holds is zero.
struct Fill<'a, T> {
    padded: &'a Padded,
    patches: &'a Patches,
    input: &'a [T],
    zero: i16,
    /// Some lines of the padded image, and which is their first.
    lines: &'a mut [i16],
    first: usize,
}

impl<T: Quant8> Work for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let Padded { width, channels, .. } = *self.padded;
        let extents = &self.patches.input;
        let (top, left) = (
            self.patches.vertical.head as usize,
            self.patches.horizontal.head as usize,
        );
        let columns = (extents.width as usize).min(width.saturating_sub(left));
        for (number, line) in self.lines.chunks_exact_mut(width * channels).enumerate() {
            let inside = (self.first + number)
                .checked_sub(top)
                .filter(|y| *y < extents.height as usize);
            let Some(y) = inside else {
                line.fill(0);
                continue;
            };
            let (head, rest) = line.split_at_mut(left.min(width) * channels);
            let (middle, tail) = rest.split_at_mut(columns * channels);
            head.fill(0);
            tail.fill(0);
            let from = &self.input[y * extents.width as usize * channels..][..columns * channels];
            widen(from, self.zero, middle);
        }
    }
}

/// Some rows of one image of a batch.
struct Image<'a> {
    packed: &'a PackedDepthwise,
    weights: &'a [Weights],
    patches: &'a Patches,
    /// A strip of the padded image, which begins with the first row's windows, and how many values a line of
    /// it has.
    image: &'a [i16],
    line: usize,
    /// How many rows of the output there are in `output`.
    rows: usize,
    output: &'a mut [u8],
    stored: QuantizedOutput,
}

struct Signed<'a, const SIGNED: bool>(Image<'a>);

impl<const SIGNED: bool> Work for Signed<'_, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        if S::HAS_WIDE {
            self.0.run::<S::Wide, SIGNED, true>(simd.wide());
        } else {
            self.0.run::<S::Wide, SIGNED, false>(simd.wide());
        }
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

impl Image<'_> {
    #[inline(always)]
    fn run<V: Columns, const SIGNED: bool, const MANY: bool>(mut self, simd: V) {
        let (width, channels) = (self.patches.output.width as usize, self.packed.channels);
        let horizontal = &self.patches.horizontal;
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
                step: self.patches.vertical.stride as usize * self.line,
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
            (3, 1) if is_dense => self.runs::<V, SIGNED, MANY, 3, 1>(simd, &runs),
            (3, 2) if is_dense => self.runs::<V, SIGNED, MANY, 3, 2>(simd, &runs),
            (5, 1) if is_dense => self.runs::<V, SIGNED, MANY, 5, 1>(simd, &runs),
            (5, 2) if is_dense => self.runs::<V, SIGNED, MANY, 5, 2>(simd, &runs),
            _ => self.runs::<V, SIGNED, MANY, 0, 1>(simd, &runs),
        }
    }

    /// All outputs, by filters of `K` columns that go on by `STRIDE` pixels from one to the next, or any if
    /// `K` is 0.
    #[inline(always)]
    fn runs<V: Columns, const SIGNED: bool, const MANY: bool, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
    ) {
        match outputs_of_tile(runs.outputs, MANY) {
            6 if MANY => self.tiles::<V, SIGNED, 6, K, STRIDE>(simd, runs),
            4 if MANY => self.tiles::<V, SIGNED, 4, K, STRIDE>(simd, runs),
            3 => self.tiles::<V, SIGNED, 3, K, STRIDE>(simd, runs),
            _ => self.tiles::<V, SIGNED, 1, K, STRIDE>(simd, runs),
        }
    }

    /// The same, so many neighbouring outputs at a time, of which each run has as many at least.
    #[inline(always)]
    fn tiles<V: Columns, const SIGNED: bool, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
    ) {
        let down = self.patches.vertical.stride as usize * self.line;
        for run in 0..runs.count {
            let corner = run * down;
            let output = run * runs.outputs * runs.lanes;
            for group in 0..self.packed.bias.len() {
                let first = first_channel(group, self.packed.channels);
                let mut at = 0;
                while at < runs.outputs {
                    // The last ones, some of them for the second time, if there are not so many left.
                    let from = at.min(runs.outputs - O);
                    let place = Place {
                        group,
                        corner: corner + from * runs.step + first,
                        output: output + from * runs.lanes + first,
                    };
                    self.outputs::<V, SIGNED, O, K, STRIDE>(simd, runs, &place);
                    at += O;
                }
            }
        }
    }

    #[inline(always)]
    fn outputs<V: Columns, const SIGNED: bool, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        runs: &Runs,
        place: &Place,
    ) {
        let (packed, horizontal) = (self.packed, &self.patches.horizontal);
        let mut sums = [simd.load_i32(&packed.bias[place.group]); O];
        let weights = &self.weights[place.group * packed.pairs..][..packed.pairs];
        let (rows, down) = (
            self.patches.vertical.filter as usize,
            self.patches.vertical.dilation as usize * self.line,
        );
        for (pair, weights) in weights.chunks_exact(horizontal.filter as usize).enumerate() {
            // The weights of a row that the filter has not are zero, whatever they are multiplied with.
            let upper = &self.image[place.corner + 2 * pair * down..];
            let lower = &self.image[place.corner + (2 * pair + 1).min(rows - 1) * down..];
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
                requantization.store::<V, SIGNED>(simd, sums[output], &self.stored, to);
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
    for_each_constant!(column in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14] {
        if column < count {
            let pairs = simd.interleave(upper.at(column), lower.at(column));
            for_each_constant!(tap in [0 1 2 3 4] {
                if tap < K && tap <= column {
                    let (output, between) = ((column - tap) / STRIDE, (column - tap) % STRIDE);
                    if between == 0 && output < O {
                        sums[output] = simd.add_products(sums[output], pairs, taps[tap]);
                    }
                }
            });
        }
    });
}

#[inline(always)]
fn load_weights<V: Columns>(simd: V, weights: &Weights) -> V::I32 {
    simd.load_pairs(bytemuck::cast_ref(weights))
}

#[inline(always)]
fn columns(image: &[i16], at: usize) -> &[i16; COLUMNS] {
    bytemuck::from_bytes(bytemuck::cast_slice(&image[at..at + COLUMNS]))
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;
