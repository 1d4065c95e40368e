//! DEPTHWISE_CONV_2D with constant weights and one output channel for each input channel.
//!
//! The input is copied into scratch memory with its padding, so that every output sees a whole window; then each
//! group of channels keeps its sums in registers over all taps.

use nnhal::ops::padding::Extents;

use super::convolution::QuantizedOutput;
use super::patches::Patches;
use super::requantize::Requantization;
use super::tile::{LEVEL, Level, vectorized};
use crate::buffer::{OutOfMemory, Scratch};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;

/// Channels that are summed side by side.
const LANES: usize = 16;

/// Filters, biases and multipliers, channels padded to whole groups.
#[derive(Debug)]
pub(super) struct PackedDepthwise<W, S> {
    channels: usize,
    taps: usize,
    /// By group, then tap.
    weights: Vec<[W; LANES]>,
    /// By group.
    bias: Vec<[S; LANES]>,
    /// By group; empty for floats.
    requantization: Vec<Requantization<LANES>>,
}

impl<W: Copy + Default, S: Copy + Default> PackedDepthwise<W, S> {
    /// Packs filters of `taps` weights for each channel.
    pub(super) fn new(
        channels: usize,
        taps: usize,
        weight: impl Fn(usize, usize) -> W,
        bias: impl Fn(usize) -> S,
        multiplier: Option<&dyn Fn(usize) -> Multiplier>,
    ) -> PackedDepthwise<W, S> {
        let groups = channels.div_ceil(LANES);
        let lanes = |group: usize| {
            (0..LANES)
                .map(move |lane| group * LANES + lane)
                .filter(move |c| *c < channels)
        };
        let mut packed = PackedDepthwise {
            channels,
            taps,
            weights: vec![[W::default(); LANES]; groups * taps],
            bias: vec![[S::default(); LANES]; groups],
            requantization: Vec::new(),
        };
        for group in 0..groups {
            for channel in lanes(group) {
                packed.bias[group][channel % LANES] = bias(channel);
                for tap in 0..taps {
                    packed.weights[group * taps + tap][channel % LANES] = weight(tap, channel);
                }
            }
            if let Some(multiplier) = multiplier {
                packed
                    .requantization
                    .push(Requantization::new(std::array::from_fn(|lane| {
                        multiplier((group * LANES + lane).min(channels - 1))
                    })));
            }
        }
        packed
    }
}

/// The input of one image with its padding around it, channels padded to whole groups.
struct Padded {
    height: usize,
    width: usize,
    channels: usize,
}

impl Padded {
    fn of(patches: &Patches) -> Padded {
        let span = |window: &nnhal::ops::padding::Window, output: u32| {
            (output as usize - 1) * window.stride as usize + window.effective() as usize
        };
        Padded {
            height: span(&patches.vertical, patches.output.height),
            width: span(&patches.horizontal, patches.output.width),
            channels: (patches.input.channels as usize).next_multiple_of(LANES),
        }
    }

    fn len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// Copies one image into the middle; what the padding holds is zero.
    fn fill<T, U: Copy + Default>(
        &self,
        patches: &Patches,
        image: &[T],
        target: &mut [U],
        convert: impl Fn(&T) -> U,
    ) {
        let Extents {
            height,
            width,
            channels,
            ..
        } = patches.input;
        let (height, width, channels) = (height as usize, width as usize, channels as usize);
        let (top, left) = (patches.vertical.head as usize, patches.horizontal.head as usize);
        target.fill(U::default());
        for y in 0..height.min(self.height.saturating_sub(top)) {
            for x in 0..width.min(self.width.saturating_sub(left)) {
                let from = &image[(y * width + x) * channels..][..channels];
                let to = &mut target[((top + y) * self.width + left + x) * self.channels..][..channels];
                for (to, from) in to.iter_mut().zip(from) {
                    *to = convert(from);
                }
            }
        }
    }
}

/// A depthwise convolution of 32-bit floats.
pub(super) fn run_f32(
    packed: &PackedDepthwise<f32, f32>,
    patches: &Patches,
    input: &[f32],
    output: &mut [f32],
    (low, high): (f32, f32),
    scratch: &mut Scratch,
) -> Result<(), OutOfMemory> {
    let padded = Padded::of(patches);
    let [image] = scratch.carve::<f32, 1>([padded.len()])?;
    each_image(patches, input, output, |input, output| {
        padded.fill(patches, input, image, |value| *value);
        let store = |group: usize, at: usize, sums: &[f32; LANES]| {
            let width = LANES.min(packed.channels - group * LANES);
            for (target, sum) in output[at..at + width].iter_mut().zip(sums) {
                *target = if *sum < low {
                    low
                } else if *sum > high {
                    high
                } else {
                    *sum
                };
            }
        };
        match *LEVEL {
            // Without the instruction a fused product is a slow call.
            Level::Portable => {
                each_sum(
                    packed,
                    patches,
                    &padded,
                    image,
                    |sum, value, weight| sum + value * weight,
                    store,
                );
            }
            level => vectorized(level, || {
                let fused = |sum, value: f32, weight| value.mul_add(weight, sum);
                each_sum(packed, patches, &padded, image, fused, store);
            }),
        }
    });
    Ok(())
}

/// A depthwise convolution of 8-bit values.
pub(super) fn run_q8<T: Quant8>(
    packed: &PackedDepthwise<i32, i32>,
    patches: &Patches,
    (input, input_zero): (&[T], i32),
    (output, stored): (&mut [T], QuantizedOutput),
    scratch: &mut Scratch,
) -> Result<(), OutOfMemory> {
    let padded = Padded::of(patches);
    let level = *LEVEL;
    let [image] = scratch.carve::<i16, 1>([padded.len()])?;
    each_image(patches, input, output, |input, output| {
        padded.fill(patches, input, image, |value| {
            (value.to_i32() - input_zero) as i16
        });
        vectorized(level, || {
            each_sum(
                packed,
                patches,
                &padded,
                image,
                |sum: i32, value, weight| sum.wrapping_add(i32::from(value) * weight),
                |group, at, sums| {
                    let target = &mut output[at..];
                    let width = LANES.min(packed.channels - group * LANES);
                    let scaled = packed.requantization[group].apply(level, sums);
                    for (target, value) in target[..width].iter_mut().zip(scaled) {
                        *target = T::saturate(
                            value
                                .saturating_add(stored.zero_point)
                                .clamp(stored.low, stored.high),
                        );
                    }
                },
            );
        });
    });
    Ok(())
}

fn each_image<T>(patches: &Patches, input: &[T], output: &mut [T], mut work: impl FnMut(&[T], &mut [T])) {
    let size =
        |extents: &Extents| extents.height as usize * extents.width as usize * extents.channels as usize;
    let images = input.chunks_exact(size(&patches.input).max(1));
    for (input, output) in images.zip(output.chunks_exact_mut(size(&patches.output).max(1))) {
        work(input, output);
    }
}

/// Sums every window of every group of channels and hands the sums to `store(group, offset in the output, sums)`.
#[inline(always)]
fn each_sum<T: Copy, W: Copy, S: Copy>(
    packed: &PackedDepthwise<W, S>,
    patches: &Patches,
    padded: &Padded,
    image: &[T],
    multiply_add: impl Fn(S, T, W) -> S,
    mut store: impl FnMut(usize, usize, &[S; LANES]),
) {
    let (across, dilation) = (
        patches.horizontal.filter as usize,
        patches.horizontal.dilation as usize,
    );
    let down = patches.vertical.dilation as usize * padded.width * padded.channels;
    let (height, width) = (patches.output.height as usize, patches.output.width as usize);
    for y in 0..height {
        let top = y * patches.vertical.stride as usize * padded.width;
        for (group, bias) in packed.bias.iter().enumerate() {
            let weights = &packed.weights[group * packed.taps..][..packed.taps];
            for x in 0..width {
                let corner = (top + x * patches.horizontal.stride as usize) * padded.channels + group * LANES;
                let mut sums = *bias;
                for (row, weights) in weights.chunks_exact(across).enumerate() {
                    let line = &image[corner + row * down..];
                    for (tap, weights) in weights.iter().enumerate() {
                        let values = &line[tap * dilation * padded.channels..][..LANES];
                        for lane in 0..LANES {
                            sums[lane] = multiply_add(sums[lane], values[lane], weights[lane]);
                        }
                    }
                }
                store(group, (y * width + x) * packed.channels + group * LANES, &sums);
            }
        }
    }
}
