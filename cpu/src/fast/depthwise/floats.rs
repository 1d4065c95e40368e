//! DEPTHWISE_CONV_2D of floats with constant weights and one output channel for each input channel.
//!
//! The input is read in place: taps that fall into the padding are left out. For the usual filters a few
//! neighbouring outputs are computed together, at the edges of the image as well, so that each input value is
//! loaded once for all of them.

use std::ops::Range;

use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use super::driver::{MicroKernel, Rows, cost, first_channel, pack, run, taps_inside};
use crate::fast::convolution::patches::Patches;
use crate::fast::packing::{Packing, PackingError};
use crate::fast::simd::{Instructions, LANES, Simd, WIDE, Work, dispatch};
use crate::scratch::Scratch;
use crate::threads::Team;

/// Filters and biases, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    pub(super) channels: usize,
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
        let channel = |group: usize, lane: usize| {
            let channel = first_channel(group, lanes, channels) + lane;
            (channel < channels).then_some(channel)
        };
        Ok(PackedDepthwise {
            channels,
            taps,
            weights: pack(packing, (groups, taps * lanes), |group, at| {
                let channel = channel(group, at % lanes);
                channel.map_or(0.0, |channel| weight(at / lanes, channel))
            })?,
            bias: (0..groups * lanes)
                .map(|at| channel(at / lanes, at % lanes).map_or(0.0, &bias))
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
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<(), OutOfMemory> {
        let packed = self;
        let kernel = Floats {
            packed,
            patches,
            range,
        };
        let parts = team.parts_for(cost(patches));
        run(&kernel, patches, (input, output), (scratch, team, parts))
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
        dispatch(Image {
            packed: self,
            weights: bytemuck::cast_slice(self.weights.bytes()),
            patches,
            range,
            input,
            first_row,
            rows,
            output,
        });
    }
}

/// What computes rows of floats.
struct Floats<'a> {
    packed: &'a PackedDepthwise,
    patches: &'a Patches,
    range: (f32, f32),
}

impl MicroKernel for Floats<'_> {
    type Value = f32;
    type Result = f32;
    type LaidOut = f32;

    fn laid_out(&self, _: usize) -> usize {
        0
    }

    fn compute(&self, rows: Rows<'_, f32, f32>, _: &mut [f32]) {
        let Rows { input, rows, output } = rows;
        self.packed
            .run_rows(self.patches, (input, 0), (rows, output), self.range);
    }
}

/// Rows of the output of one image.
pub(super) struct Image<'a> {
    pub(super) packed: &'a PackedDepthwise,
    weights: &'a [f32],
    pub(super) patches: &'a Patches,
    pub(super) range: (f32, f32),
    pub(super) input: &'a [f32],
    /// Which row of the image is the first of `input`.
    pub(super) first_row: usize,
    pub(super) rows: Range<usize>,
    pub(super) output: &'a mut [f32],
}

/// Rows of outputs that are computed side by side.
pub(super) struct Lines<'a> {
    pub(super) y: usize,
    /// The filter's rows that are inside, of the first.
    pub(super) rows: Range<usize>,
    pub(super) output: &'a mut [f32],
}

impl Work for Image<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        match self.packed.channels {
            0 => {}
            1..LANES => self.of_any_filter::<_, LANES, true>(simd.narrow()),
            LANES..WIDE if S::HAS_WIDE => self.of_groups::<_, LANES, 8, true>(simd.narrow()),
            LANES..WIDE => self.of_groups::<_, LANES, 8, false>(simd.narrow()),
            _ if !S::HAS_WIDE => self.of_groups::<_, WIDE, 4, false>(simd.wide()),
            _ if self.is_for_tiles_of_eight() => self.of_groups::<_, WIDE, 8, true>(simd.wide()),
            _ => self.of_groups::<_, WIDE, 4, true>(simd.wide()),
        }
    }
}

impl<'a> Image<'a> {
    // Loops by index, not closures or iterators over vectors: those that are not inlined are compiled without
    // the processor's vectors, which then travel through memory.

    /// For groups of `N` channels, of which `O` neighbouring outputs of a row, or of `TWO` rows, are summed
    /// side by side: as many sums as leave registers for weights.
    #[inline(always)]
    fn of_groups<V: Simd<N>, const N: usize, const O: usize, const TWO: bool>(self, simd: V) {
        let (vertical, horizontal) = (self.patches.vertical, self.patches.horizontal);
        let is_dense = vertical.dilation == 1 && horizontal.dilation == 1;
        match (vertical.filter, horizontal.filter, horizontal.stride) {
            (3, 3, 1) if TWO && is_dense && vertical.stride == 1 => self.filtered::<V, N, O, 3, 1, 2>(simd),
            (5, 5, 1) if TWO && is_dense && vertical.stride == 1 => self.filtered::<V, N, O, 5, 1, 2>(simd),
            (3, 3, 1) if is_dense => self.filtered::<V, N, O, 3, 1, 1>(simd),
            (3, 3, 2) if is_dense => self.filtered::<V, N, O, 3, 2, 1>(simd),
            (5, 5, 1) if is_dense => self.filtered::<V, N, O, 5, 1, 1>(simd),
            (5, 5, 2) if is_dense => self.filtered::<V, N, O, 5, 2, 1>(simd),
            _ => self.of_any_filter::<V, N, false>(simd),
        }
    }

    /// Whether few outputs of a row are computed twice eight at a time.
    fn is_for_tiles_of_eight(&self) -> bool {
        let width = self.patches.output.width as usize;
        width.div_ceil(8) * 9 <= width.div_ceil(4) * 5
    }

    /// The filter's rows that are inside for a row of outputs.
    #[inline(always)]
    pub(super) fn rows_inside(&self, y: usize) -> Range<usize> {
        taps_inside(&self.patches.vertical, y, self.patches.input.height)
    }

    /// Where a row of the input starts which a row of the filter sees.
    #[inline(always)]
    pub(super) fn row_start(&self, y: usize, row: usize) -> usize {
        let window = &self.patches.vertical;
        let y = y * window.stride as usize + row * window.dilation as usize - window.head as usize;
        (y - self.first_row) * self.patches.input.width as usize * self.packed.channels
    }

    /// One output after the other, with fewer channels than lanes if they are `FEW`.
    #[inline(always)]
    fn of_any_filter<V: Simd<N>, const N: usize, const FEW: bool>(mut self, simd: V) {
        let width = self.patches.output.width as usize;
        let output = std::mem::take(&mut self.output);
        let lines = output.chunks_exact_mut((width * self.packed.channels).max(1));
        for (y, output) in self.rows.clone().zip(lines) {
            let rows = self.rows_inside(y);
            let mut line = Lines { y, rows, output };
            for x in 0..width {
                self.output::<V, N, FEW>(simd, &mut line, x);
            }
        }
    }

    /// One output, whose window may reach into the padding.
    #[inline(always)]
    fn output<V: Simd<N>, const N: usize, const FEW: bool>(&self, simd: V, line: &mut Lines<'_>, x: usize) {
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
                    let values = if FEW {
                        let mut lanes = [0.0; N];
                        for (lane, value) in lanes.iter_mut().zip(&self.input[at..at + channels]) {
                            *lane = *value;
                        }
                        simd.load(&lanes)
                    } else {
                        simd.load(first_lanes(&self.input[at..]))
                    };
                    sum = simd.mul_add(values, simd.load(weights), sum);
                    at += step;
                }
            }
            let to = &mut line.output[x * channels + first..];
            if FEW {
                let mut lanes = [0.0; N];
                self.store::<V, N>(simd, sum, &mut lanes);
                to[..channels].copy_from_slice(&lanes[..channels]);
            } else {
                self.store::<V, N>(simd, sum, to);
            }
        }
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
    pub(super) fn groups<const N: usize>(&self) -> (&'a [[f32; N]], &'a [[f32; N]]) {
        (self.weights.as_chunks().0, self.packed.bias.as_chunks().0)
    }

    /// Cuts the sums of a group to the range and stores them.
    #[inline(always)]
    pub(super) fn store<V: Simd<N>, const N: usize>(&self, simd: V, sums: V::F32, to: &mut [f32]) {
        let (low, high) = (simd.splat(self.range.0), simd.splat(self.range.1));
        let results = simd.at_most(simd.at_least(sums, low), high);
        simd.store(results, &mut to[..N].as_chunks_mut::<N>().0[0]);
    }
}

/// The first values.
#[inline(always)]
pub(super) fn first_lanes<const N: usize>(from: &[f32]) -> &[f32; N] {
    &from[..N].as_chunks().0[0]
}

#[cfg(test)]
#[path = "floats_tests.rs"]
mod tests;
