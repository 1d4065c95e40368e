//! SOFTMAX of 8-bit values along the last axis, to the same bits as the reference: the exponentials of all
//! differences to a largest value, of which there are 256, are worked out beforehand.

use crate::fast::simd::{Instructions, Work};
use crate::fast::tables::byte_table::{LookUp, OfBytes};
use crate::kernels::softmax::{Exponentials, Share, summand};

/// Values of a byte.
const BYTES: usize = 1 << u8::BITS;

/// From so many values on, shares are worked out for each value that there can be, and looked up.
const MANY: usize = 2 * BYTES;

/// Values whose exponentials wait at a time.
const AT_ONCE: usize = 128;

/// What SOFTMAX makes of 8-bit values of one scale with one beta.
#[derive(Debug)]
pub(in crate::fast) struct QuantizedSoftmax {
    /// By how far values are below the largest one.
    exponentials: [u32; BYTES],
    /// The same as they are summed.
    summands: [u32; BYTES],
    /// What makes signed values unsigned ones, and the other way.
    flip: u8,
}

impl QuantizedSoftmax {
    pub(in crate::fast) fn new(beta: f32, scale: f32, is_signed: bool) -> QuantizedSoftmax {
        let exponentials = Exponentials::new(beta, scale);
        let of = |difference: usize| exponentials.of(-(difference as i32)).unwrap_or(0);
        QuantizedSoftmax {
            exponentials: std::array::from_fn(|difference| of(difference) as u32),
            summands: std::array::from_fn(|difference| summand(of(difference)) as u32),
            flip: if is_signed { 0x80 } else { 0 },
        }
    }

    /// The shares of the values of one lane.
    #[inline(always)]
    fn lane<S: Instructions>(&self, simd: S, values: &[u8], output: &mut [u8]) {
        let largest = values
            .iter()
            .fold(0, |largest: u8, value| largest.max(value ^ self.flip));
        let difference = |value: &u8| usize::from(largest - (value ^ self.flip));
        let sum = values
            .iter()
            .map(|value| u64::from(self.summands[difference(value)]))
            .sum();
        let share = Share::of(sum);
        if values.len() < MANY {
            let mut exponentials = [0; AT_ONCE];
            for (values, output) in values.chunks(AT_ONCE).zip(output.chunks_mut(AT_ONCE)) {
                for (exponential, value) in exponentials.iter_mut().zip(values) {
                    *exponential = self.exponentials[difference(value)];
                }
                self.shares(&share, &exponentials[..values.len()], output);
            }
            return;
        }
        let mut by_difference = [0; BYTES];
        self.shares(&share, &self.exponentials, &mut by_difference);
        // No value is above the largest one.
        let table: OfBytes = std::array::from_fn(|byte| {
            by_difference[usize::from(largest.wrapping_sub(byte as u8 ^ self.flip))]
        });
        let look_up = LookUp {
            table: &table,
            bytes: values,
            output,
        };
        look_up.run(simd);
    }

    /// What [`Share`] makes of exponentials, without branches: nothing here is negative.
    #[inline(always)]
    fn shares(&self, share: &Share, exponentials: &[u32], output: &mut [u8]) {
        let (reciprocal, shift) = (u64::from(share.reciprocal as u32), share.exponent + 31 - 8);
        let half = 1 << (shift - 1);
        for (result, exponential) in output.iter_mut().zip(exponentials) {
            let product = (reciprocal * u64::from(*exponential) + (1 << 30)) >> 31;
            *result = ((product + half) >> shift).min(255) as u8 ^ self.flip;
        }
    }
}

/// SOFTMAX of some lanes of equal length.
pub(in crate::fast) struct QuantizedLanes<'a> {
    pub(in crate::fast) softmax: &'a QuantizedSoftmax,
    pub(in crate::fast) length: usize,
    pub(in crate::fast) input: &'a [u8],
    pub(in crate::fast) output: &'a mut [u8],
}

impl Work for QuantizedLanes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let lanes = self.output.chunks_exact_mut(self.length);
        for (input, output) in self.input.chunks_exact(self.length).zip(lanes) {
            self.softmax.lane(simd, input, output);
        }
    }
}
