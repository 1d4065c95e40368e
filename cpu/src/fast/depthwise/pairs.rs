//! DEPTHWISE_CONV_2D of 8-bit values with constant weights and one output channel for each input channel, by
//! products of 16-bit values: where [`super::bytes`] does not compute the layer.
//!
//! The input is copied into scratch memory as 16-bit values less the zero point, a strip at a time, with its
//! padding, so that every output sees a whole window. Taps are taken two at a time, as the multiplying
//! instruction does: those of two rows of the filter, so that for the usual filters what was interleaved once
//! serves all neighbouring outputs that see it. Channels are taken in groups; the last one overlaps the one
//! before it where channels do not fill it.

use nnhal_os::buffer::{AlignedSlice, OutOfMemory};

use super::driver::{MicroKernel, Rows, cost, first_channel, pack, run};
use crate::fast::convolution::copies::{Strip, Widened};
use crate::fast::convolution::patches::Patches;
use crate::fast::matmul::tile::{COLUMNS, rows_per_block};
use crate::fast::packing::{Packing, PackingError};
use crate::fast::requantize::{OfPanels, QuantizedOutput, Requantization, in_order};
use crate::fast::simd::{COLUMN_ORDER, Instructions, LANES, Work, dispatch};
use crate::fast::strips::{Frame, Outputs};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;
use crate::scratch::Scratch;
use crate::threads::Team;

/// Pairs of weights for each of a group's columns.
pub(super) type Weights = [i16; 2 * COLUMNS];

/// Whether windows of this kind are computed here: those with taps that are not so far apart that most of the
/// padded image would be padding.
pub(in crate::fast) fn serves(patches: &Patches) -> bool {
    Frame::new(patches).is_small(patches.output.height as usize * patches.output.width as usize)
}

/// Filters, biases and multipliers, channels in groups.
#[derive(Debug)]
pub(in crate::fast) struct PackedDepthwise {
    pub(super) channels: usize,
    /// Pairs of taps of a filter.
    pub(super) pairs: usize,
    /// By group, then pair of rows of the filter, then column.
    weights: AlignedSlice,
    /// By group.
    pub(super) bias: Vec<[i32; COLUMNS]>,
    /// By group.
    pub(super) requantization: OfPanels<Requantization>,
}

/// The channel that a lane of a group is for, if it is for one. Eight channels are there twice, for two
/// pixels.
fn channel_of(group: usize, lane: usize, channels: usize) -> Option<usize> {
    let channel = first_channel(group, COLUMNS, channels) + lane;
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
        let weights = pack(packing, (groups, pairs), |group, pair| -> Weights {
            let value = |lane: usize, which: usize| {
                let row = pair / across * 2 + which;
                let channel = channel_of(group, COLUMN_ORDER[lane], channels).filter(|_| row < rows);
                channel.map_or(0, |channel| weight(row * across + pair % across, channel))
            };
            std::array::from_fn(|element| value(element / 2, element % 2))
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
        let kernel = Pairs::<T> {
            packed: self,
            patches,
            frame: Frame::new(patches),
            form: Widened::new(input_zero),
            stored,
        };
        let parts = team.parts_for(cost(patches));
        let output = bytemuck::cast_slice_mut::<T, u8>(output);
        run(&kernel, patches, (input, output), (scratch, team, parts))
    }
}

/// What computes rows of 8-bit values.
pub(super) struct Pairs<'a, T> {
    pub(super) packed: &'a PackedDepthwise,
    pub(super) patches: &'a Patches,
    frame: Frame<'a>,
    form: Widened<T>,
    pub(super) stored: QuantizedOutput,
}

impl<T: Quant8> Pairs<'_, T> {
    fn outputs(&self, rows: std::ops::Range<usize>) -> Outputs {
        let width = self.patches.output.width as usize;
        Outputs {
            first: rows.start * width,
            count: rows.len() * width,
        }
    }
}

impl<T: Quant8> MicroKernel for Pairs<'_, T> {
    type Value = T;
    type Result = u8;
    type LaidOut = i16;

    fn most_rows(&self) -> usize {
        rows_of_strip(self.patches, self.frame.line())
    }

    /// With what is read beyond the channels of the last pixel.
    fn laid_out(&self, rows: usize) -> usize {
        let length = self.frame.len(self.outputs(0..rows).count);
        length.unwrap_or(usize::MAX).saturating_add(COLUMNS)
    }

    fn compute(&self, rows: Rows<'_, T, u8>, strip: &mut [i16]) {
        dispatch(Strip {
            form: self.form,
            frame: &self.frame,
            input: rows.input,
            outputs: self.outputs(rows.rows.clone()),
            strip: &mut *strip,
        });
        dispatch(Image {
            kernel: self,
            weights: bytemuck::cast_slice(self.packed.weights.bytes()),
            strip,
            line: self.frame.line(),
            rows: rows.rows.len(),
            output: rows.output,
        });
    }
}

/// How many rows of outputs are computed from one strip of the padded image, whose lines have so many values:
/// as many as leave it in a second-level cache, and so many at least that few lines are in two strips.
fn rows_of_strip(patches: &Patches, line: usize) -> usize {
    let stride = patches.vertical.stride.max(1) as usize;
    let lines = rows_per_block(line * size_of::<i16>());
    let overlap = (patches.vertical.effective() as usize).saturating_sub(stride);
    lines.saturating_sub(overlap).max(8 * overlap).max(stride) / stride
}

/// Some rows of one image of a batch.
pub(super) struct Image<'a, T> {
    pub(super) kernel: &'a Pairs<'a, T>,
    pub(super) weights: &'a [Weights],
    /// A strip of the padded image, which begins with the first row's windows, and how many values a line of
    /// it has.
    pub(super) strip: &'a [i16],
    pub(super) line: usize,
    /// How many rows of the output there are in `output`.
    pub(super) rows: usize,
    pub(super) output: &'a mut [u8],
}

impl<T: Quant8> Work for Image<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        if S::HAS_WIDE {
            self.of_image::<S::Wide, true>(simd.wide());
        } else {
            self.of_image::<S::Wide, false>(simd.wide());
        }
    }
}

#[cfg(test)]
#[path = "pairs_tests.rs"]
mod tests;
