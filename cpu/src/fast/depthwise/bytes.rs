//! The layers of [`super::pairs`] for instructions that multiply four bytes of a lane at once
//! and add them: those with sixteen channels at least, whose multipliers are all below 1/2.
//!
//! Four taps that are above each other, or beside each other if the filter has one row, are multiplied at
//! once: what they see is laid side by side for each channel, some outputs of a row at a time, so that it is
//! in the first-level cache when it is read. Neighbouring outputs share what they see of each column, and
//! rows of outputs what they see in the same four rows if their filters have less than four: with the weights
//! one tap further down there is the next row's sum. Channels are taken in groups; the last one overlaps the
//! one before it where channels do not fill it.
//!
//! Values are taken as unsigned, signed ones 128 higher, and weights as signed, less their zero point `y`.
//! With the zero point `z` of what is so taken, `sum((u - z) * (w - y)) = sum(u * v) - z * sum(v)`, where the
//! last sum is known when the model is prepared and padding is `z`.

use nnhal_os::buffer::OutOfMemory;

use super::byte_filters::{FOUR, Four, Weights};
pub(in crate::fast) use super::byte_filters::{Layer, PackedDepthwise};
use super::byte_plan::{MOST_OUTPUTS, Plan};
use super::driver::{MicroKernel, Rows, cost, first_channel, for_each_product, run, tiles};
use crate::fast::convolution::copies::sign_bit;
use crate::fast::convolution::patches::Patches;
use crate::fast::matmul::tile::{COLUMNS, for_each_constant};
use crate::fast::requantize::{QuantizedOutput, Requantization, ToSteps};
use crate::fast::simd::strided::{Strided, StridedMut};
use crate::fast::simd::{ByteForm, Columns, Instructions, Work, dispatch};
use crate::kernels::element::Quant8;
use crate::scratch::Scratch;
use crate::threads::Team;

impl PackedDepthwise {
    /// Convolves `input` into `output`.
    pub(in crate::fast) fn run<T: Quant8>(
        &self,
        patches: &Patches,
        input: &[T],
        (output, stored): (&mut [T], QuantizedOutput),
        (scratch, team): (&mut Scratch, &Team<'_>),
    ) -> Result<(), OutOfMemory> {
        let parts = team.parts_for(cost(patches));
        // A single row could not be parted.
        let patches = if parts.threads == 1 {
            self.line_up(patches)
        } else {
            *patches
        };
        let flip = sign_bit::<T>();
        let kernel = Bytes {
            plan: Plan::new(self, &patches),
            zero: self.layer.value_zero as u8,
            flip,
            clamps_negative: stored.clamps_negative(),
            form: stored.form(flip != 0),
        };
        let (input, output) = (
            bytemuck::cast_slice::<T, u8>(input),
            bytemuck::cast_slice_mut::<T, u8>(output),
        );
        run(&kernel, &patches, (input, output), (scratch, team, parts))
    }
}

/// What computes rows of bytes.
pub(super) struct Bytes<'a> {
    plan: Plan<'a>,
    /// What padding holds, as unsigned.
    pub(super) zero: u8,
    /// What makes values unsigned.
    pub(super) flip: u8,
    /// Whether results below real 0 are clamped.
    clamps_negative: bool,
    form: ByteForm,
}

impl MicroKernel for Bytes<'_> {
    type Value = u8;
    type Result = u8;
    type LaidOut = Four;

    fn laid_out(&self, _: usize) -> usize {
        self.plan.fours + self.plan.line.div_ceil(FOUR)
    }

    fn compute(&self, rows: Rows<'_, u8, u8>, memory: &mut [Four]) {
        let (fours, line) = memory.split_at_mut(self.plan.fours);
        let line = &mut bytemuck::cast_slice_mut::<Four, u8>(line)[..self.plan.line];
        line.fill(self.zero ^ self.flip);
        dispatch(Image {
            kernel: self,
            plan: &self.plan,
            block: rows,
            fours,
            line,
            down: 0,
        });
    }
}

/// Rows of one image's output.
pub(super) struct Image<'a> {
    pub(super) kernel: &'a Bytes<'a>,
    pub(super) plan: &'a Plan<'a>,
    pub(super) block: Rows<'a, u8, u8>,
    pub(super) fours: &'a mut [Four],
    pub(super) line: &'a mut [u8],
    /// How many rows of outputs are above those that are computed, of those that what is laid out is for.
    down: usize,
}

impl Work for Image<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        if self.kernel.clamps_negative {
            self.rows::<S, true>(simd);
        } else {
            self.rows::<S, false>(simd);
        }
    }
}

impl Image<'_> {
    #[inline(always)]
    fn rows<S: Instructions, const CLAMPED: bool>(mut self, simd: S) {
        let plan = self.plan;
        let width = plan.patches.output.width as usize;
        for first in tiles(width, plan.chunk) {
            for y in self.block.rows.clone().step_by(plan.rows) {
                if plan.is_across {
                    self.lay_out_line(simd.wide(), y, first);
                } else {
                    self.lay_out(simd.wide(), y, first);
                }
                for below in 0..plan.rows.min(self.block.rows.end - y) {
                    self.down = below;
                    self.chunk::<S, CLAMPED>(simd, y + below - self.block.rows.start, first);
                }
            }
        }
    }

    /// Computes the outputs of a chunk.
    #[inline(always)]
    fn chunk<S: Instructions, const CLAMPED: bool>(&mut self, simd: S, row: usize, first: usize) {
        let simd = simd.wide();
        match self.plan.tile {
            // Where no instruction multiplies bytes nothing is packed for this. Tiles would be megabytes of
            // code there.
            _ if !S::HAS_WIDE => self.groups::<_, CLAMPED, 1, 1, 1>(simd, row, first),
            8 => self.tiles::<_, CLAMPED, 8>(simd, row, first),
            7 => self.tiles::<_, CLAMPED, 7>(simd, row, first),
            4 => self.tiles::<_, CLAMPED, 4>(simd, row, first),
            _ => self.tiles::<_, CLAMPED, 1>(simd, row, first),
        }
    }

    #[inline(always)]
    fn tiles<V: Columns, const CLAMPED: bool, const O: usize>(&mut self, simd: V, row: usize, first: usize) {
        let window = &self.plan.patches.horizontal;
        let (_, taps) = self.plan.packed.layer.fours();
        match (taps, window.stride) {
            (3, 1) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 3, 1>(simd, row, first),
            (3, 2) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 3, 2>(simd, row, first),
            (5, 1) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 5, 1>(simd, row, first),
            (5, 2) if window.dilation == 1 => self.groups::<V, CLAMPED, O, 5, 2>(simd, row, first),
            _ => self.groups::<V, CLAMPED, O, 1, 1>(simd, row, first),
        }
    }

    /// All groups of channels, by `K` taps in a row that go on by `STRIDE` columns from one output to the
    /// next, or any if `K` is 1.
    #[inline(always)]
    fn groups<V: Columns, const CLAMPED: bool, const O: usize, const K: usize, const STRIDE: usize>(
        &mut self,
        simd: V,
        row: usize,
        first: usize,
    ) {
        let plan = self.plan;
        let channels = plan.packed.layer.channels;
        let (fours, taps) = plan.packed.layer.fours();
        let weights: &[Weights] = bytemuck::cast_slice(plan.packed.weights.bytes());
        let of_group = plan.packed.layer.parts() * fours * taps;
        let step = plan.patches.horizontal.stride as usize * channels;
        let apart = if K == 1 { step } else { channels };
        let output = (row * plan.patches.output.width as usize + first) * channels;
        for (number, group) in plan.packed.groups.iter().enumerate() {
            let weights = &weights[number * of_group..][..group.parts * fours * taps];
            let by = plan.packed.by.of(number);
            let channel = first_channel(number, COLUMNS, channels);
            for from in tiles(plan.chunk, O) {
                let mut sums = [simd.load_i32(&group.bias); O];
                for part in 0..group.parts {
                    for four in 0..fours {
                        for tap in (0..taps).step_by(K) {
                            let weights = &weights[(part * fours + four) * taps + tap..][..K];
                            let start = from * step + channel + four * plan.steps.0 + tap * plan.steps.1;
                            let seen = (&self.fours[start..], apart);
                            accumulate::<V, O, K, STRIDE>(simd, seen, (weights, self.down), &mut sums);
                        }
                    }
                }
                let to = &mut self.block.output[output + from * channels + channel..];
                let place = (to, channels);
                match by {
                    Requantization::Floats(by, _) if V::TRUNCATES => {
                        store::<V, _, CLAMPED, O>(simd, (&sums, by, &self.kernel.form), place);
                    }
                    // Where there could be floats, integers are rare, and less code for them is enough.
                    Requantization::Once(by) if V::TRUNCATES => {
                        store::<V, _, false, O>(simd, (&sums, by, &self.kernel.form), place);
                    }
                    Requantization::Once(by) => {
                        store::<V, _, CLAMPED, O>(simd, (&sums, by, &self.kernel.form), place)
                    }
                    _ => unreachable!("layers are looked at before they are packed"),
                }
            }
        }
    }
}

/// Adds the products of four rows of a filter with the columns that neighbouring outputs see; weights are
/// taken for those of rows that are so many further down.
#[inline(always)]
fn accumulate<V: Columns, const O: usize, const K: usize, const STRIDE: usize>(
    simd: V,
    (seen, apart): (&[Four], usize),
    (weights, down): (&[Weights], usize),
    sums: &mut [V::I32; O],
) {
    let mut taps = [simd.splat_i32(0); K];
    for_each_constant!(tap in [0 1 2 3 4] {
        if tap < K {
            taps[tap] = simd.load_i32(&bytemuck::cast(weights[tap]));
            if down > 0 {
                // The first weight is in the lowest byte, and those that are shifted out are none.
                taps[tap] = simd.shift_left(taps[tap], down as i32 * u8::BITS as i32);
            }
        }
    });
    let count = (O - 1) * STRIDE + K;
    let seen = Strided::<_, COLUMNS>::new(seen, (count, apart));
    for_each_product!(
        (O, K, STRIDE),
        column if true => values = simd.load_i32(&bytemuck::cast(*seen.at(column))),
        (output, tap) => sums[output] = simd.add_byte_products(sums[output], values, taps[tap])
    );
}

/// Scales and stores the sums of neighbouring outputs.
#[inline(always)]
fn store<V: Columns, B: ToSteps, const CLAMPED: bool, const O: usize>(
    simd: V,
    (sums, by, form): (&[V::I32; O], &B, &ByteForm),
    (to, apart): (&mut [u8], usize),
) {
    let mut columns = [simd.splat_i32(0); MOST_OUTPUTS];
    for_each_constant!(output in [0 1 2 3 4 5 6 7] {
        if output < O {
            columns[output] = by.scale::<V, CLAMPED>(simd, sums[output]);
        }
    });
    let mut to = StridedMut::<_, COLUMNS>::new(to, (O, apart));
    for_each_constant!(four in [0 1] {
        if four * FOUR < O {
            let columns = columns.as_chunks::<FOUR>().0[four];
            let bytes = simd.bytes_of_four::<true>(columns, form);
            for_each_constant!(which in [0 1 2 3] {
                if four * FOUR + which < O {
                    *to.at(four * FOUR + which) = bytes[which];
                }
            });
        }
    });
}

#[cfg(test)]
#[path = "bytes_tests.rs"]
mod tests;
