//! DEPTHWISE_CONV_2D of floats with constant weights and one output channel for each input channel.
//!
//! The input is read in place: taps that fall into the padding are left out. Where all taps of a row are inside, a few
//! neighbouring outputs share the weights that are loaded.

use nnhal::ops::padding::{Extents, Window};

use super::packing::{Packing, PackingError};
use super::patches::Patches;
use super::simd::{LANES, Simd, Work, dispatch};
use super::tile::{COLUMNS, ColumnsF32, store_f32};
use crate::buffer::AlignedSlice;

/// Neighbouring outputs that are summed side by side.
const OUTPUTS: usize = 4;

/// Filters and biases, channels padded to whole groups.
#[derive(Debug)]
pub(super) struct PackedDepthwise {
    channels: usize,
    taps: usize,
    /// By group, then tap.
    weights: AlignedSlice,
    /// By group.
    bias: Vec<ColumnsF32>,
}

impl PackedDepthwise {
    /// Packs filters of `taps` weights for each channel.
    pub(super) fn new(
        (channels, taps): (usize, usize),
        packing: &mut Packing,
        weight: impl Fn(usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<PackedDepthwise, PackingError> {
        let groups = channels.div_ceil(COLUMNS);
        let columns = |value: &dyn Fn(usize) -> f32, group: usize| {
            let columns: [f32; COLUMNS] = std::array::from_fn(|lane| {
                let channel = group * COLUMNS + lane;
                if channel < channels { value(channel) } else { 0.0 }
            });
            bytemuck::cast(columns)
        };
        let weights = packing.part(groups * taps * size_of::<ColumnsF32>(), |bytes| {
            let packed: &mut [ColumnsF32] = bytemuck::cast_slice_mut(bytes);
            for (at, packed) in packed.iter_mut().enumerate() {
                *packed = columns(&|channel| weight(at % taps, channel), at / taps);
            }
        })?;
        Ok(PackedDepthwise {
            channels,
            taps,
            weights,
            bias: (0..groups).map(|group| columns(&bias, group)).collect(),
        })
    }

    /// The packed filters.
    pub(super) fn packed(&self) -> &AlignedSlice {
        &self.weights
    }

    /// Convolves `input` into `output`, cut to a range.
    pub(super) fn run(&self, patches: &Patches, input: &[f32], output: &mut [f32], range: (f32, f32)) {
        let size =
            |extents: &Extents| extents.height as usize * extents.width as usize * extents.channels as usize;
        let images = input.chunks_exact(size(&patches.input).max(1));
        for (input, output) in images.zip(output.chunks_exact_mut(size(&patches.output).max(1))) {
            dispatch(Image {
                packed: self,
                patches,
                input,
                output,
                range,
            });
        }
    }
}

/// The taps of a window that are inside the input, for the window at `position`.
#[inline(always)]
pub(super) fn taps_inside(window: &Window, position: usize, extent: u32) -> std::ops::Range<usize> {
    let start = position as i64 * i64::from(window.stride) - i64::from(window.head);
    let dilation = i64::from(window.dilation);
    // A division takes longer than a window; most windows are not dilated.
    let steps = |distance: i64| match dilation {
        1 => distance.max(0),
        _ => (distance.max(0) + dilation - 1) / dilation,
    };
    let (first, end) = (steps(-start), steps(i64::from(extent) - start));
    let filter = i64::from(window.filter);
    first.min(filter) as usize..end.clamp(first.min(filter), filter) as usize
}

/// One image of a batch.
struct Image<'a> {
    packed: &'a PackedDepthwise,
    patches: &'a Patches,
    input: &'a [f32],
    output: &'a mut [f32],
    range: (f32, f32),
}

/// A row of outputs of one group of channels.
struct Line<'a> {
    weights: &'a [ColumnsF32],
    bias: &'a ColumnsF32,
    group: usize,
    y: usize,
    /// The filter's rows that are inside.
    rows: std::ops::Range<usize>,
}

impl Work for Image<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let packed = self.packed;
        let weights: &[ColumnsF32] = bytemuck::cast_slice(packed.weights.bytes());
        let extent = self.patches.input.height;
        for y in 0..self.patches.output.height as usize {
            let rows = taps_inside(&self.patches.vertical, y, extent);
            for (group, bias) in packed.bias.iter().enumerate() {
                let line = Line {
                    weights: &weights[group * packed.taps..][..packed.taps],
                    bias,
                    group,
                    y,
                    rows: rows.clone(),
                };
                if packed.channels - group * COLUMNS > LANES {
                    self.line::<S, 2>(simd, &line);
                } else {
                    self.line::<S, 1>(simd, &line);
                }
            }
        }
    }
}

impl Image<'_> {
    #[inline(always)]
    fn line<S: Simd, const V: usize>(&mut self, simd: S, line: &Line<'_>) {
        let window = self.patches.horizontal;
        let extent = self.patches.input.width;
        let width = self.patches.output.width as usize;
        let whole = 0..window.filter as usize;
        let mut x = 0;
        while x < width {
            let taps = taps_inside(&window, x, extent);
            let is_whole = taps == whole
                && x + OUTPUTS <= width
                && taps_inside(&window, x + OUTPUTS - 1, extent) == whole;
            if is_whole {
                self.outputs::<S, V, OUTPUTS>(simd, line, x, taps);
                x += OUTPUTS;
            } else {
                self.outputs::<S, V, 1>(simd, line, x, taps);
                x += 1;
            }
        }
    }

    #[inline(always)]
    fn outputs<S: Simd, const V: usize, const X: usize>(
        &mut self,
        simd: S,
        line: &Line<'_>,
        x: usize,
        taps: std::ops::Range<usize>,
    ) {
        let (vertical, horizontal) = (&self.patches.vertical, &self.patches.horizontal);
        let channels = self.packed.channels;
        let first = line.group * COLUMNS;
        let width = self.patches.input.width as usize;
        let step = horizontal.stride as usize * channels;
        let start = (x * horizontal.stride as usize + taps.start * horizontal.dilation as usize)
            .wrapping_sub(horizontal.head as usize);
        let mut sums = [load_all::<S, V>(simd, line.bias); X];
        let rows = if taps.is_empty() { 0..0 } else { line.rows.clone() };
        for row in rows {
            let y =
                line.y * vertical.stride as usize + row * vertical.dilation as usize - vertical.head as usize;
            let mut at = (y * width + start) * channels + first;
            for weights in &line.weights[row * horizontal.filter as usize..][taps.clone()] {
                let weights = load_all::<S, V>(simd, weights);
                for (output, sums) in sums.iter_mut().enumerate() {
                    let values = load::<S, V>(simd, &self.input[at + output * step..]);
                    for half in 0..V {
                        sums[half] = simd.mul_add(values[half], weights[half], sums[half]);
                    }
                }
                at += horizontal.dilation as usize * channels;
            }
        }
        let (low, high) = (simd.splat(self.range.0), simd.splat(self.range.1));
        let position = line.y * self.patches.output.width as usize + x;
        for (output, sums) in sums.iter().enumerate() {
            let pixel = &mut self.output[(position + output) * channels..][first..channels];
            let lanes = pixel.len().min(COLUMNS);
            store_f32(simd, [sums[0], sums[V - 1]], low, high, &mut pixel[..lanes]);
        }
    }
}

/// The first lanes of `from`; what it lacks is zero.
#[inline(always)]
fn load<S: Simd, const V: usize>(simd: S, from: &[f32]) -> [S::F32; V] {
    let mut lanes = [[0.0; LANES]; V];
    let lanes: &[[f32; LANES]] = match from.get(..V * LANES) {
        Some(whole) => bytemuck::cast_slice(whole),
        None => {
            lanes.as_flattened_mut()[..from.len()].copy_from_slice(from);
            &lanes
        }
    };
    load_all(simd, lanes)
}

#[inline(always)]
fn load_all<S: Simd, const V: usize>(simd: S, lanes: &[[f32; LANES]]) -> [S::F32; V] {
    let mut vectors = [simd.splat(0.0); V];
    for (vector, lanes) in vectors.iter_mut().zip(lanes) {
        *vector = simd.load(lanes);
    }
    vectors
}

#[cfg(test)]
mod tests {
    use nnhal::ops::padding::Window;

    use super::taps_inside;

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
