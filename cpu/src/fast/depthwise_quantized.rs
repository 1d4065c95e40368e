//! DEPTHWISE_CONV_2D of 8-bit values with constant weights and one output channel for each input channel.
//!
//! The input is copied into scratch memory as 16-bit values less the zero point, with its padding and with channels
//! in whole groups, so that every output sees a whole window. Taps are taken two at a time, as the multiplying
//! instruction does.

use nnhal::ops::padding::{Extents, Window};

use super::convolution::widen;
use super::depthwise::effort;
use super::packing::{Packing, PackingError};
use super::parting;
use super::patches::Patches;
use super::requantize::{QuantizedOutput, Requantization, in_order};
use super::simd::{COLUMN_ORDER, LANES, Simd, Work, dispatch};
use super::tile::{COLUMNS, ColumnsI16};
use crate::buffer::{AlignedSlice, OutOfMemory, Scratch};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Team;

/// Neighbouring outputs that are summed side by side.
const OUTPUTS: usize = 2;

/// Most pairs of taps of a filter that is computed here.
const MAX_PAIRS: usize = 64;

/// Padded images are at most so many times as large as the image, or [`SMALL_IMAGE`].
const MAX_PADDING: usize = 8;

/// Elements of a padded image that are no burden whatever the image: 2 MiB.
const SMALL_IMAGE: usize = 1 << 20;

/// Whether windows of this kind are computed here: those with few taps that are not so far apart that most of the
/// padded image would be padding.
pub(super) fn serves(patches: &Patches) -> bool {
    let taps = u64::from(patches.vertical.filter) * u64::from(patches.horizontal.filter);
    let image = [patches.input.height, patches.input.width, patches.input.channels]
        .into_iter()
        .fold(1, |product: usize, extent| {
            product.saturating_mul(extent as usize)
        });
    let most = image.saturating_mul(MAX_PADDING).max(SMALL_IMAGE);
    taps <= 2 * MAX_PAIRS as u64 && Padded::of(patches).len().is_some_and(|length| length <= most)
}

/// Filters, biases and multipliers, channels padded to whole groups.
#[derive(Debug)]
pub(super) struct PackedDepthwise {
    channels: usize,
    pairs: usize,
    /// By group, then pair of taps.
    weights: AlignedSlice,
    /// By group.
    bias: Vec<[[i32; LANES]; 2]>,
    /// By group.
    requantization: Vec<Requantization>,
}

impl PackedDepthwise {
    /// Packs filters of `taps` weights for each channel.
    pub(super) fn new(
        (channels, taps): (usize, usize),
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> i16,
        bias: impl Fn(usize) -> i32,
        multiplier: impl Fn(usize) -> Multiplier,
    ) -> Result<PackedDepthwise, PackingError> {
        let (groups, pairs) = (channels.div_ceil(COLUMNS), taps.div_ceil(2));
        let clamped = |group: usize, lane: usize| (group * COLUMNS + lane).min(channels - 1);
        let pair_of = |at: usize| -> ColumnsI16 {
            let (group, pair) = (at / pairs, at % pairs);
            let value = |lane: usize, which: usize| {
                let channel = group * COLUMNS + COLUMN_ORDER[lane];
                let tap = 2 * pair + which;
                if channel < channels && tap < taps {
                    weight(tap, channel)
                } else {
                    0
                }
            };
            std::array::from_fn(|half| {
                std::array::from_fn(|element| value(half * LANES + element / 2, element % 2))
            })
        };
        let weights = packing.part(groups * pairs * size_of::<ColumnsI16>(), |bytes| {
            let packed: &mut [ColumnsI16] = bytemuck::cast_slice_mut(bytes);
            for (at, packed) in packed.iter_mut().enumerate() {
                *packed = pair_of(at);
            }
        })?;
        Ok(PackedDepthwise {
            channels,
            pairs,
            weights,
            bias: (0..groups)
                .map(|group| in_order(std::array::from_fn(|lane| bias(clamped(group, lane)))))
                .collect(),
            requantization: (0..groups)
                .map(|group| {
                    Requantization::new(std::array::from_fn(|lane| multiplier(clamped(group, lane))))
                })
                .collect(),
        })
    }

    /// The packed filters.
    pub(super) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }

    /// Convolves `input` into `output`.
    pub(super) fn run<T: Quant8>(
        &self,
        patches: &Patches,
        (input, input_zero): (&[T], i32),
        (output, stored): (&mut [T], QuantizedOutput),
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<(), OutOfMemory> {
        let padded = Padded::of(patches);
        let [image] = scratch.carve::<i16, 1>([padded.len().unwrap_or(usize::MAX)])?;
        let size =
            |extents: &Extents| extents.height as usize * extents.width as usize * extents.channels as usize;
        let output: &mut [u8] = bytemuck::cast_slice_mut(output);
        let (height, size_out) = (patches.output.height as usize, size(&patches.output));
        let threads = team.threads_for(effort(patches));
        let filling = parting::rows(threads, padded.height, padded.width * padded.channels);
        let grid = parting::rows(threads, height, size_out / height.max(1));
        let images = input.chunks_exact(size(&patches.input).max(1));
        for (input, output) in images.zip(output.chunks_exact_mut(size_out.max(1))) {
            let none: &mut [u8] = &mut [];
            team.for_each_block(threads, &filling, (&mut *image, none), |mut block, _| {
                dispatch(Fill {
                    padded: &padded,
                    patches,
                    input,
                    zero: input_zero as i16,
                    first: block.first_row(),
                    lines: block.all(),
                });
            });
            let image = &*image;
            let none: &mut [u8] = &mut [];
            team.for_each_block(threads, &grid, (output, none), |mut block, _| {
                let image = Image {
                    packed: self,
                    patches,
                    padded: &padded,
                    image,
                    rows: block.first_row()..block.first_row() + block.rows(),
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

/// The extents of an image with its padding around it, channels in whole groups.
struct Padded {
    height: usize,
    width: usize,
    channels: usize,
}

impl Padded {
    fn of(patches: &Patches) -> Padded {
        let span = |window: &Window, output: u32| {
            (output as usize).saturating_sub(1) * window.stride as usize + window.effective() as usize
        };
        Padded {
            height: span(&patches.vertical, patches.output.height),
            width: span(&patches.horizontal, patches.output.width),
            channels: (patches.input.channels as usize).next_multiple_of(COLUMNS),
        }
    }

    /// How many elements there are; `None` for more than can be counted.
    fn len(&self) -> Option<usize> {
        self.height.checked_mul(self.width)?.checked_mul(self.channels)
    }
}

/// Copies an image into the middle of the padded one; what the padding holds is zero.
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
    fn run<S: Simd>(self, _: S) {
        let Padded { width, channels, .. } = *self.padded;
        let extents = &self.patches.input;
        let (top, left) = (
            self.patches.vertical.head as usize,
            self.patches.horizontal.head as usize,
        );
        let source = extents.channels as usize;
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
            let from = &self.input[y * extents.width as usize * source..][..columns * source];
            if source == channels {
                widen(from, self.zero, middle);
                continue;
            }
            for (from, to) in from.chunks_exact(source).zip(middle.chunks_exact_mut(channels)) {
                let (to, rest) = to.split_at_mut(source);
                widen(from, self.zero, to);
                rest.fill(0);
            }
        }
    }
}

/// Some rows of one image of a batch.
struct Image<'a> {
    packed: &'a PackedDepthwise,
    patches: &'a Patches,
    padded: &'a Padded,
    image: &'a [i16],
    /// Which rows of the output there are in `output`.
    rows: std::ops::Range<usize>,
    output: &'a mut [u8],
    stored: QuantizedOutput,
}

struct Signed<'a, const SIGNED: bool>(Image<'a>);

impl<const SIGNED: bool> Work for Signed<'_, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        self.0.run::<S, SIGNED>(simd);
    }
}

impl Image<'_> {
    #[inline(always)]
    fn run<S: Simd, const SIGNED: bool>(mut self, simd: S) {
        let packed = self.packed;
        let offsets = self.tap_offsets();
        let offsets = &offsets[..packed.pairs];
        let (first, width) = (self.rows.start, self.patches.output.width as usize);
        let step = self.patches.horizontal.stride as usize * self.padded.channels;
        for y in self.rows.clone() {
            let top = y * self.patches.vertical.stride as usize * self.padded.width * self.padded.channels;
            for group in 0..packed.bias.len() {
                let start = top + group * COLUMNS;
                let mut x = 0;
                while x + OUTPUTS <= width {
                    let corner = start + x * step;
                    self.outputs::<S, SIGNED, OUTPUTS>(simd, group, corner, (y - first) * width + x, offsets);
                    x += OUTPUTS;
                }
                while x < width {
                    let corner = start + x * step;
                    self.outputs::<S, SIGNED, 1>(simd, group, corner, (y - first) * width + x, offsets);
                    x += 1;
                }
            }
        }
    }

    /// Where the taps of each pair lie from a window's corner. A filter's last tap, if it has no other, is paired
    /// with itself; the weight is zero.
    #[inline(always)]
    fn tap_offsets(&self) -> [[usize; 2]; MAX_PAIRS] {
        let across = self.patches.horizontal.filter as usize;
        let taps = across * self.patches.vertical.filter as usize;
        let (down, right) = (
            self.patches.vertical.dilation as usize * self.padded.width * self.padded.channels,
            self.patches.horizontal.dilation as usize * self.padded.channels,
        );
        let offset = |tap: usize| tap / across * down + tap % across * right;
        let mut offsets = [[0; 2]; MAX_PAIRS];
        for (pair, offsets) in offsets.iter_mut().enumerate().take(taps.div_ceil(2)) {
            *offsets = [offset(2 * pair), offset((2 * pair + 1).min(taps - 1))];
        }
        offsets
    }

    #[inline(always)]
    fn outputs<S: Simd, const SIGNED: bool, const X: usize>(
        &mut self,
        simd: S,
        group: usize,
        corner: usize,
        position: usize,
        offsets: &[[usize; 2]],
    ) {
        let packed = self.packed;
        let step = self.patches.horizontal.stride as usize * self.padded.channels;
        let [low, high] = &packed.bias[group];
        let mut sums = [[simd.load_i32(low), simd.load_i32(high)]; X];
        let weights: &[ColumnsI16] = bytemuck::cast_slice(packed.weights.bytes());
        let weights = &weights[group * packed.pairs..][..offsets.len()];
        for (weights, [first, second]) in weights.iter().zip(offsets) {
            let weights = [simd.load_pairs(&weights[0]), simd.load_pairs(&weights[1])];
            for (output, sums) in sums.iter_mut().enumerate() {
                let at = corner + output * step;
                let pairs =
                    simd.interleave(columns(self.image, at + first), columns(self.image, at + second));
                for half in 0..2 {
                    sums[half] = simd.add_products(sums[half], pairs[half], weights[half]);
                }
            }
        }
        let channels = packed.channels;
        for (output, sums) in sums.iter().enumerate() {
            let pixel = &mut self.output[(position + output) * channels..][group * COLUMNS..channels];
            let lanes = pixel.len().min(COLUMNS);
            let requantization = &packed.requantization[group];
            requantization.store::<S, SIGNED, 2>(simd, *sums, &self.stored, &mut pixel[..lanes]);
        }
    }
}

#[inline(always)]
fn columns(image: &[i16], at: usize) -> &[i16; COLUMNS] {
    bytemuck::from_bytes(bytemuck::cast_slice(&image[at..at + COLUMNS]))
}
