//! DEPTHWISE_CONV_2D of floats with constant weights and one output channel for each input channel.
//!
//! The input is read in place: taps that fall into the padding are left out. For the usual filters a few
//! neighbouring outputs are computed together, at the edges of the image as well, so that each input value is
//! loaded once for all of them. Channels are taken in groups of a vector's lanes; the last group overlaps the
//! one before it where the channels do not fill it, so that every group is whole.

use std::ops::Range;

use nnhal_hal::ops::padding::{Extents, Window};
use nnhal_os::buffer::AlignedSlice;

use crate::fast::convolution::patches::Patches;
use crate::fast::convolution::products::vector_speed;
use crate::fast::matmul::tile::for_each_constant;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::partition;
use crate::fast::simd::strided::Strided;
use crate::fast::simd::{Instructions, LANES, Simd, WIDE, Work, dispatch};
use crate::threads::{Cost, Team};

/// Filters and biases, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    channels: usize,
    taps: usize,
    /// By group, tap and lane.
    weights: AlignedSlice,
    /// By group and lane.
    bias: Vec<f32>,
}

/// Lanes of a group.
fn lanes(channels: usize) -> usize {
    if channels < WIDE { LANES } else { WIDE }
}

impl PackedDepthwise {
    /// Packs filters of `taps` weights for each channel.
    pub(in crate::fast) fn new(
        (channels, taps): (usize, usize),
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedDepthwise, PackingError> {
        let lanes = lanes(channels);
        let groups = channels.div_ceil(lanes);
        // Lanes without a channel, of a single group, are not stored.
        let of_lane = |value: &dyn Fn(usize) -> f32, group: usize, lane: usize| {
            let channel = first_channel(group, lanes, channels) + lane;
            if channel < channels { value(channel) } else { 0.0 }
        };
        let weights = packing.part(groups * taps * lanes * size_of::<f32>(), |bytes| {
            let packed: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            for (at, packed) in packed.chunks_exact_mut(lanes).enumerate() {
                let (group, tap) = (at / taps, at % taps);
                for (lane, packed) in packed.iter_mut().enumerate() {
                    *packed = of_lane(&|channel| weight(tap, channel), group, lane);
                }
            }
        })?;
        Ok(PackedDepthwise {
            channels,
            taps,
            weights,
            bias: (0..groups * lanes)
                .map(|at| of_lane(&bias, at / lanes, at % lanes))
                .collect(),
        })
    }

    /// The packed filters.
    pub(in crate::fast) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }

    /// Convolves `input` into `output`, clamped to a range.
    pub(in crate::fast) fn run(
        &self,
        patches: &Patches,
        input: &[f32],
        (output, range): (&mut [f32], (f32, f32)),
        team: &Team<'_>,
    ) {
        let size =
            |extents: &Extents| extents.height as usize * extents.width as usize * extents.channels as usize;
        let (height, image) = (patches.output.height as usize, size(&patches.output));
        let images = input.chunks_exact(size(&patches.input).max(1));
        let threads = team.threads_for(cost(patches));
        let grid = partition::rows(threads, height, image / height.max(1));
        for (input, output) in images.zip(output.chunks_exact_mut(image.max(1))) {
            let none: &mut [u8] = &mut [];
            team.for_each_block(threads, &grid, (output, none), |mut block, _| {
                let rows = block.first_row()..block.first_row() + block.rows();
                self.run_rows(patches, (input, 0), (rows, block.all()), range);
            });
        }
    }

    /// Computes the rows `rows` of one image's output, which are what `output` holds, from the rows of its
    /// input from `first_row` on.
    pub(in crate::fast) fn run_rows(
        &self,
        patches: &Patches,
        (input, first_row): (&[f32], usize),
        (rows, output): (Range<usize>, &mut [f32]),
        range: (f32, f32),
    ) {
        dispatch(Rows {
            packed: self,
            weights: bytemuck::cast_slice(self.weights.bytes()),
            patches,
            input,
            first_row,
            rows,
            output,
            range,
        });
    }
}

/// The first channel of a group.
#[inline(always)]
fn first_channel(group: usize, lanes: usize, channels: usize) -> usize {
    (group * lanes).min(channels.saturating_sub(lanes))
}

/// What one image takes, of floats or 8-bit values. Its products are summed at about a third of the speed of
/// a matrix product of floats.
pub(in crate::fast) fn cost(patches: &Patches) -> Cost {
    let taps = u64::from(patches.vertical.filter) * u64::from(patches.horizontal.filter);
    let extents = &patches.output;
    let outputs = [extents.height, extents.width, extents.channels]
        .into_iter()
        .fold(1, |product: u64, extent| {
            product.saturating_mul(u64::from(extent))
        });
    Cost {
        multiply_adds: outputs.saturating_mul(3 * taps) / vector_speed(),
        bytes: 0,
    }
}

/// The taps of a window that are inside the input, for the window at `position`.
#[inline(always)]
pub(in crate::fast) fn taps_inside(window: &Window, position: usize, extent: u32) -> Range<usize> {
    let start = position as i64 * i64::from(window.stride) - i64::from(window.head);
    let dilation = i64::from(window.dilation);
    let filter = i64::from(window.filter);
    let first = steps(-start, dilation).min(filter);
    let end = steps(i64::from(extent) - start, dilation);
    first as usize..end.min(filter).max(first) as usize
}

/// How many steps of a dilated window reach over a distance.
#[inline(always)]
fn steps(distance: i64, dilation: i64) -> i64 {
    // A division takes longer than a window; most windows are not dilated.
    match dilation {
        1 => distance.max(0),
        _ => (distance.max(0) + dilation - 1) / dilation,
    }
}

/// Rows of the output of one image.
struct Rows<'a> {
    packed: &'a PackedDepthwise,
    weights: &'a [f32],
    patches: &'a Patches,
    input: &'a [f32],
    /// Which row of the image is the first of `input`.
    first_row: usize,
    rows: Range<usize>,
    output: &'a mut [f32],
    range: (f32, f32),
}

/// A row of outputs.
struct Line<'a> {
    y: usize,
    /// The filter's rows that are inside.
    rows: Range<usize>,
    output: &'a mut [f32],
}

impl Work for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        match self.packed.channels {
            0 => {}
            1..LANES => self.of_few_channels(simd.narrow()),
            LANES..WIDE if S::HAS_WIDE => self.of_groups::<_, LANES, 8, true>(simd.narrow()),
            LANES..WIDE => self.of_groups::<_, LANES, 8, false>(simd.narrow()),
            _ if !S::HAS_WIDE => self.of_groups::<_, WIDE, 4, false>(simd.wide()),
            _ if self.is_for_tiles_of_eight() => self.of_groups::<_, WIDE, 8, true>(simd.wide()),
            _ => self.of_groups::<_, WIDE, 4, true>(simd.wide()),
        }
    }
}

impl<'a> Rows<'a> {
    // Loops by index, not closures or iterators over vectors: those that are not inlined are compiled without
    // the processor's vectors, which then travel through memory.

    /// For fewer channels than a vector has lanes.
    #[inline(always)]
    fn of_few_channels<V: Simd<LANES>>(mut self, simd: V) {
        let width = self.patches.output.width as usize;
        for (y, output) in self.take_lines() {
            let mut line = self.line(y, output);
            for x in 0..width {
                self.output_of_few_channels(simd, &mut line, x);
            }
        }
    }

    /// For groups of `N` channels, of which `O` neighbouring outputs of a row, or of `TWO` rows, are summed
    /// side by side: as many sums as leave registers for weights.
    #[inline(always)]
    fn of_groups<V: Simd<N>, const N: usize, const O: usize, const TWO: bool>(mut self, simd: V) {
        let (vertical, horizontal) = (self.patches.vertical, self.patches.horizontal);
        let is_dense = vertical.dilation == 1 && horizontal.dilation == 1;
        match (vertical.filter, horizontal.filter, horizontal.stride) {
            (3, 3, 1) if TWO && is_dense && vertical.stride == 1 => self.filtered_by_two::<V, N, O, 3>(simd),
            (5, 5, 1) if TWO && is_dense && vertical.stride == 1 => self.filtered_by_two::<V, N, O, 5>(simd),
            (3, 3, 1) if is_dense => self.filtered::<V, N, O, 3, 1>(simd),
            (3, 3, 2) if is_dense => self.filtered::<V, N, O, 3, 2>(simd),
            (5, 5, 1) if is_dense => self.filtered::<V, N, O, 5, 1>(simd),
            (5, 5, 2) if is_dense => self.filtered::<V, N, O, 5, 2>(simd),
            _ => {
                let width = self.patches.output.width as usize;
                for (y, output) in self.take_lines() {
                    let mut line = self.line(y, output);
                    for x in 0..width {
                        self.output::<V, N>(simd, &mut line, x);
                    }
                }
            }
        }
    }

    /// For filters of `K` rows of `K` taps, not dilated.
    #[inline(always)]
    fn filtered<V: Simd<N>, const N: usize, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
    ) {
        let inside = self.whole_windows();
        for (y, output) in self.take_lines() {
            let line = self.line(y, output);
            self.filtered_line::<V, N, O, K, STRIDE>(simd, &inside, line);
        }
    }

    #[inline(always)]
    fn filtered_line<V: Simd<N>, const N: usize, const O: usize, const K: usize, const STRIDE: usize>(
        &self,
        simd: V,
        inside: &Range<usize>,
        mut line: Line<'_>,
    ) {
        let width = self.patches.output.width as usize;
        let mut x = 0;
        while x < width {
            // The last ones, some of them for the second time, if there are not so many left.
            let first = x.min(width.saturating_sub(O));
            if inside.start <= first && first + O <= inside.end {
                self.outputs::<V, N, O, K, STRIDE, false>(simd, &mut line, first);
            } else {
                self.outputs::<V, N, O, K, STRIDE, true>(simd, &mut line, first);
            }
            x += O;
        }
    }

    /// The same with stride 1, two rows at a time where all rows of their windows are inside: most rows of
    /// the input are loaded once for both.
    #[inline(always)]
    fn filtered_by_two<V: Simd<N>, const N: usize, const O: usize, const K: usize>(&mut self, simd: V) {
        let width = self.patches.output.width as usize;
        let inside = self.whole_windows();
        let mut output = std::mem::take(&mut self.output);
        let mut y = self.rows.start;
        while y < self.rows.end {
            let line = width * self.packed.channels;
            let (first, rest) = output.split_at_mut(line);
            let upper = self.line(y, first);
            if y + 1 < self.rows.end && upper.rows == (0..K) && self.rows_inside(y + 1) == (0..K) {
                let (second, rest) = rest.split_at_mut(line);
                let lines = [upper.output, second];
                self.filtered_lines::<V, N, O, K>(simd, &inside, (y, lines));
                (y, output) = (y + 2, rest);
            } else {
                self.filtered_line::<V, N, O, K, 1>(simd, &inside, upper);
                (y, output) = (y + 1, rest);
            }
        }
    }

    #[inline(always)]
    fn filtered_lines<V: Simd<N>, const N: usize, const O: usize, const K: usize>(
        &self,
        simd: V,
        inside: &Range<usize>,
        (y, mut lines): (usize, [&mut [f32]; 2]),
    ) {
        let width = self.patches.output.width as usize;
        let mut x = 0;
        while x < width {
            let first = x.min(width.saturating_sub(O));
            if inside.start <= first && first + O <= inside.end {
                self.outputs_of_two::<V, N, O, K, false>(simd, (y, &mut lines), first);
            } else {
                self.outputs_of_two::<V, N, O, K, true>(simd, (y, &mut lines), first);
            }
            x += O;
        }
    }

    /// The outputs of a row whose windows are inside the input from left to right.
    fn whole_windows(&self) -> Range<usize> {
        let width = self.patches.output.width as usize;
        whole_windows(&self.patches.horizontal, width, self.patches.input.width)
    }

    /// Whether few outputs of a row are computed twice eight at a time.
    fn is_for_tiles_of_eight(&self) -> bool {
        let width = self.patches.output.width as usize;
        width.div_ceil(8) * 9 <= width.div_ceil(4) * 5
    }

    /// The rows of the output, each with its number.
    #[inline(always)]
    fn take_lines(&mut self) -> impl Iterator<Item = (usize, &'a mut [f32])> + use<'a> {
        let width = self.patches.output.width as usize * self.packed.channels;
        let output = std::mem::take(&mut self.output);
        self.rows.clone().zip(output.chunks_exact_mut(width.max(1)))
    }

    #[inline(always)]
    fn line<'o>(&self, y: usize, output: &'o mut [f32]) -> Line<'o> {
        let rows = self.rows_inside(y);
        Line { y, rows, output }
    }

    /// The filter's rows that are inside for a row of outputs.
    #[inline(always)]
    fn rows_inside(&self, y: usize) -> Range<usize> {
        taps_inside(&self.patches.vertical, y, self.patches.input.height)
    }

    /// Where a row of the input starts which a row of the filter sees.
    #[inline(always)]
    fn row_start(&self, y: usize, row: usize) -> usize {
        let window = &self.patches.vertical;
        let y = y * window.stride as usize + row * window.dilation as usize - window.head as usize;
        (y - self.first_row) * self.patches.input.width as usize * self.packed.channels
    }

    /// Neighbouring outputs; at an `EDGE` their windows may reach into the padding, and some of them beyond
    /// the line.
    #[inline(always)]
    fn outputs<
        V: Simd<N>,
        const N: usize,
        const O: usize,
        const K: usize,
        const STRIDE: usize,
        const EDGE: bool,
    >(
        &self,
        simd: V,
        line: &mut Line<'_>,
        x: usize,
    ) {
        let channels = self.packed.channels;
        let columns = self.columns(x * STRIDE);
        let stored = self.patches.output.width as usize - x;
        let (weights, biases) = self.groups::<N>();
        let Range { start: top, end } = line.rows;
        // Rows follow each other, so that where each starts is not worked out for each group.
        let start = if top < end { self.row_start(line.y, top) } else { 0 };
        let across = self.patches.input.width as usize * channels;
        for (group, bias) in biases.iter().enumerate() {
            let weights = &weights[group * K * K..][..K * K];
            let first = first_channel(group, N, channels);
            let mut sums = [simd.load(bias); O];
            for row in top..end {
                let seen = self.seen(start + (row - top) * across + first, first, &columns);
                let weights = &weights[row * K..][..K];
                let mut taps = [simd.splat(0.0); K];
                for_each_constant!(tap in [0 1 2 3 4] {
                    if tap < K {
                        taps[tap] = simd.load(&weights[tap]);
                    }
                });
                accumulate::<V, N, O, K, STRIDE, EDGE>(simd, &seen, &taps, &mut sums);
            }
            for_each_constant!(output in [0 1 2 3 4 5 6 7] {
                if output < O && (!EDGE || output < stored) {
                    let at = (x + output) * channels + first;
                    self.store::<V, N>(simd, sums[output], &mut line.output[at..]);
                }
            });
        }
    }

    /// Neighbouring outputs of the rows `y` and `y + 1`, whose windows are inside from top to bottom.
    #[inline(always)]
    fn outputs_of_two<V: Simd<N>, const N: usize, const O: usize, const K: usize, const EDGE: bool>(
        &self,
        simd: V,
        (y, lines): (usize, &mut [&mut [f32]; 2]),
        x: usize,
    ) {
        let channels = self.packed.channels;
        let columns = self.columns(x);
        let stored = self.patches.output.width as usize - x;
        let (weights, biases) = self.groups::<N>();
        let start = self.row_start(y, 0);
        let line = self.patches.input.width as usize * channels;
        for (group, bias) in biases.iter().enumerate() {
            let weights = &weights[group * K * K..][..K * K];
            let first = first_channel(group, N, channels);
            let mut upper = [simd.load(bias); O];
            let mut lower = upper;
            for_each_constant!(row in [0 1 2 3 4 5] {
                if row <= K {
                    let seen = self.seen(start + row * line + first, first, &columns);
                    let mut taps = [[simd.splat(0.0); K]; 2];
                    for_each_constant!(tap in [0 1 2 3 4] {
                        if tap < K {
                            if row < K {
                                taps[0][tap] = simd.load(&weights[row * K + tap]);
                            }
                            if row > 0 {
                                taps[1][tap] = simd.load(&weights[(row - 1) * K + tap]);
                            }
                        }
                    });
                    let rows = (row < K, row > 0);
                    accumulate_two::<V, N, O, K, EDGE>(simd, &seen, &taps, rows, (&mut upper, &mut lower));
                }
            });
            for_each_constant!(output in [0 1 2 3 4 5 6 7] {
                if output < O && (!EDGE || output < stored) {
                    let at = (x + output) * channels + first;
                    self.store::<V, N>(simd, upper[output], &mut lines[0][at..]);
                    self.store::<V, N>(simd, lower[output], &mut lines[1][at..]);
                }
            });
        }
    }

    /// What neighbouring windows see from a column of the padded input on.
    #[inline(always)]
    fn columns(&self, left: usize) -> SeenColumns {
        let head = self.patches.horizontal.head as usize;
        let width = self.patches.input.width as usize;
        SeenColumns {
            inside: head.saturating_sub(left)..(head + width).saturating_sub(left),
            corner: left.wrapping_sub(head).wrapping_mul(self.packed.channels),
        }
    }

    /// What they see of the row of the input in which this channel of the first pixel is at `start`.
    #[inline(always)]
    fn seen(&self, start: usize, channel: usize, columns: &SeenColumns) -> Seen<'a> {
        let channels = self.packed.channels;
        let row = self.patches.input.width as usize * channels;
        Seen {
            pixels: &self.input[start..start + row - channel],
            channels,
            columns: columns.clone(),
        }
    }

    /// One output, whose window may reach into the padding.
    #[inline(always)]
    fn output<V: Simd<N>, const N: usize>(&self, simd: V, line: &mut Line<'_>, x: usize) {
        let channels = self.packed.channels;
        let window = &self.patches.horizontal;
        let taps = taps_inside(window, x, self.patches.input.width);
        let across = window.filter as usize;
        let step = window.dilation as usize * channels;
        let (weights, biases) = self.groups::<N>();
        for (group, bias) in biases.iter().enumerate() {
            let weights = &weights[group * self.packed.taps..][..self.packed.taps];
            let first = first_channel(group, N, channels);
            let mut sum = simd.load(bias);
            let rows = if taps.is_empty() { 0..0 } else { line.rows.clone() };
            for row in rows {
                let mut at = self.row_start(line.y, row) + self.column_start(x, &taps) + first;
                for weights in &weights[row * across..][taps.clone()] {
                    let values = simd.load(first_lanes(&self.input[at..]));
                    sum = simd.mul_add(values, simd.load(weights), sum);
                    at += step;
                }
            }
            self.store::<V, N>(simd, sum, &mut line.output[x * channels + first..]);
        }
    }

    /// The same for less channels than lanes.
    #[inline(always)]
    fn output_of_few_channels<V: Simd<LANES>>(&self, simd: V, line: &mut Line<'_>, x: usize) {
        let channels = self.packed.channels;
        let window = &self.patches.horizontal;
        let taps = taps_inside(window, x, self.patches.input.width);
        let step = window.dilation as usize * channels;
        let (weights, biases) = self.groups::<LANES>();
        let mut sum = simd.load(&biases[0]);
        let rows = if taps.is_empty() { 0..0 } else { line.rows.clone() };
        for row in rows {
            let mut at = self.row_start(line.y, row) + self.column_start(x, &taps);
            for weights in &weights[row * window.filter as usize..][taps.clone()] {
                let mut lanes = [0.0; LANES];
                for (lane, value) in lanes.iter_mut().zip(&self.input[at..at + channels]) {
                    *lane = *value;
                }
                sum = simd.mul_add(simd.load(&lanes), simd.load(weights), sum);
                at += step;
            }
        }
        let mut lanes = [0.0; LANES];
        self.store::<V, LANES>(simd, sum, &mut lanes);
        line.output[x * channels..(x + 1) * channels].copy_from_slice(&lanes[..channels]);
    }

    /// Where the first tap of an output's window lies in a row.
    #[inline(always)]
    fn column_start(&self, x: usize, taps: &Range<usize>) -> usize {
        let window = &self.patches.horizontal;
        let column = x * window.stride as usize + taps.start * window.dilation as usize;
        (column - window.head as usize) * self.packed.channels
    }

    /// The weights, by group and tap, and the biases, by group.
    #[inline(always)]
    fn groups<const N: usize>(&self) -> (&'a [[f32; N]], &'a [[f32; N]]) {
        (self.weights.as_chunks().0, self.packed.bias.as_chunks().0)
    }

    /// Cuts the sums of a group to the range and stores them.
    #[inline(always)]
    fn store<V: Simd<N>, const N: usize>(&self, simd: V, sums: V::F32, to: &mut [f32]) {
        let (low, high) = (simd.splat(self.range.0), simd.splat(self.range.1));
        let results = simd.at_most(simd.at_least(sums, low), high);
        simd.store(results, &mut to[..N].as_chunks_mut::<N>().0[0]);
    }
}

/// The columns of the input that neighbouring outputs see.
#[derive(Clone)]
struct SeenColumns {
    /// Which of them are inside.
    inside: Range<usize>,
    /// Where the first of them would be; modulo 2^64 if it is in the padding.
    corner: usize,
}

/// A row of the input that neighbouring outputs see.
struct Seen<'a> {
    /// Its values from the first channel of a group on.
    pixels: &'a [f32],
    channels: usize,
    columns: SeenColumns,
}

/// Adds the products of a row of the filter with the pixels that neighbouring outputs see.
#[inline(always)]
fn accumulate<
    V: Simd<N>,
    const N: usize,
    const O: usize,
    const K: usize,
    const STRIDE: usize,
    const EDGE: bool,
>(
    simd: V,
    seen: &Seen<'_>,
    weights: &[V::F32; K],
    sums: &mut [V::F32; O],
) {
    let count = (O - 1) * STRIDE + K;
    let inside = if EDGE {
        None
    } else {
        Some(Strided::<_, N>::new(
            &seen.pixels[seen.columns.corner..],
            (count, seen.channels),
        ))
    };
    for_each_constant!(column in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18] {
        if column < count && (!EDGE || seen.columns.inside.contains(&column)) {
            let values = match &inside {
                Some(inside) => inside.at(column),
                None => first_lanes(&seen.pixels[seen.columns.corner.wrapping_add(column * seen.channels)..]),
            };
            let values = simd.load(values);
            for_each_constant!(tap in [0 1 2 3 4] {
                if tap < K && tap <= column {
                    let (output, between) = ((column - tap) / STRIDE, (column - tap) % STRIDE);
                    if between == 0 && output < O {
                        sums[output] = simd.mul_add(values, weights[tap], sums[output]);
                    }
                }
            });
        }
    });
}

/// Adds the products of two rows of the filter with the pixels that neighbouring outputs of two rows see,
/// stride 1; `rows` says for which of them there is one.
#[inline(always)]
fn accumulate_two<V: Simd<N>, const N: usize, const O: usize, const K: usize, const EDGE: bool>(
    simd: V,
    seen: &Seen<'_>,
    weights: &[[V::F32; K]; 2],
    rows: (bool, bool),
    (upper, lower): (&mut [V::F32; O], &mut [V::F32; O]),
) {
    let count = O - 1 + K;
    let inside = if EDGE {
        None
    } else {
        Some(Strided::<_, N>::new(
            &seen.pixels[seen.columns.corner..],
            (count, seen.channels),
        ))
    };
    for_each_constant!(column in [0 1 2 3 4 5 6 7 8 9 10 11] {
        if column < count && (!EDGE || seen.columns.inside.contains(&column)) {
            let values = match &inside {
                Some(inside) => inside.at(column),
                None => first_lanes(&seen.pixels[seen.columns.corner.wrapping_add(column * seen.channels)..]),
            };
            let values = simd.load(values);
            for_each_constant!(tap in [0 1 2 3 4] {
                if tap < K && tap <= column && column - tap < O {
                    let output = column - tap;
                    if rows.0 {
                        upper[output] = simd.mul_add(values, weights[0][tap], upper[output]);
                    }
                    if rows.1 {
                        lower[output] = simd.mul_add(values, weights[1][tap], lower[output]);
                    }
                }
            });
        }
    });
}

/// The outputs of a row whose windows are inside the input.
fn whole_windows(window: &Window, width: usize, extent: u32) -> Range<usize> {
    let whole = 0..window.filter as usize;
    let is_whole = |x: &usize| taps_inside(window, *x, extent) == whole;
    let first = (0..width).find(is_whole).unwrap_or(width);
    let after = (first..width).rev().find(is_whole).map_or(first, |last| last + 1);
    first..after
}

/// The first values.
#[inline(always)]
fn first_lanes<const N: usize>(from: &[f32]) -> &[f32; N] {
    &from[..N].as_chunks().0[0]
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ops::padding::Window;
    use nnhal_hal::{OperandType, OperationType};

    use super::{taps_inside, whole_windows};
    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// Filter, stride, dilation, extents of the image, channels.
    type Case = (u32, u32, u32, [u32; 2], u32);

    #[test]
    fn filters_of_every_kind_give_what_the_reference_gives() {
        let cases: [Case; 16] = [
            (3, 1, 1, [5, 9], 40),
            (3, 1, 1, [4, 7], 19),
            (3, 2, 1, [9, 11], 16),
            (3, 2, 1, [3, 3], 33),
            (5, 1, 1, [7, 12], 24),
            (5, 2, 1, [12, 13], 17),
            (3, 1, 2, [9, 9], 21),
            (3, 1, 1, [6, 8], 8),
            (3, 2, 1, [7, 10], 13),
            (5, 1, 1, [6, 6], 3),
            (2, 1, 1, [5, 6], 18),
            (4, 3, 1, [8, 8], 9),
            (3, 1, 1, [5, 14], 8),
            (3, 2, 1, [7, 21], 11),
            (5, 1, 1, [6, 14], 9),
            (5, 2, 1, [9, 24], 8),
        ];
        for (filter, stride, dilation, [height, width], channels) in cases {
            let value = |at: u32, by: u32| (at * by % 37) as f32 / 8.0 - 2.0;
            let values = |count: u32, by: u32| (0..count).map(|at| value(at, by)).collect::<Vec<_>>();
            let output = |extent: u32| extent.div_ceil(stride);
            let compute = |kernels| {
                OneOperation::new(OperationType::DEPTHWISE_CONV_2D)
                    .tensor(
                        OperandType::TENSOR_FLOAT32,
                        &[2, height, width, channels],
                        &values(2 * height * width * channels, 7),
                    )
                    .tensor(
                        OperandType::TENSOR_FLOAT32,
                        &[1, filter, filter, channels],
                        &values(filter * filter * channels, 11),
                    )
                    .tensor(OperandType::TENSOR_FLOAT32, &[channels], &values(channels, 3))
                    .i32(1)
                    .i32(stride as i32)
                    .i32(stride as i32)
                    .i32(1)
                    .i32(1)
                    .tensor(OperandType::BOOL, &[], &[0_u8])
                    .i32(dilation as i32)
                    .i32(dilation as i32)
                    .output(
                        OperandType::TENSOR_FLOAT32,
                        &[2, output(height), output(width), channels],
                    )
                    .with_constants()
                    .run_by(kernels, &RunOptions::default())
                    .unwrap()
                    .remove(0)
                    .data::<f32>()
            };
            let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
            for (found, exact) in found.iter().zip(&exact) {
                assert!(
                    (found - exact).abs() < 1e-3,
                    "{filter} {stride} {dilation} {channels}"
                );
            }
        }
    }

    #[test]
    fn windows_inside_are_those_between_the_paddings() {
        let window = |filter, stride, head| Window {
            filter,
            stride,
            dilation: 1,
            head,
            tail: 0,
        };
        assert_eq!(whole_windows(&window(3, 1, 1), 5, 5), 1..4);
        assert_eq!(whole_windows(&window(3, 2, 0), 2, 5), 0..2);
        assert_eq!(whole_windows(&window(5, 1, 2), 3, 3), 3..3);
    }

    #[test]
    fn taps_in_the_padding_are_left_out() {
        let window = Window {
            filter: 3,
            stride: 2,
            dilation: 2,
            head: 3,
            tail: 1,
        };
        // Positions -3, -1, 1; then 1, 3, 5 of 5; then 7 and beyond.
        assert_eq!(taps_inside(&window, 0, 5), 2..3);
        assert_eq!(taps_inside(&window, 2, 5), 0..2);
        assert_eq!(taps_inside(&window, 5, 5), 0..0);
        assert_eq!(taps_inside(&window, 0, 1), 2..2);
    }
}
