//! CONV_2D and FULLY_CONNECTED with constant weights, as products of patches with a packed filter matrix.

use nnhal::hal::OperandType;

use super::matmul::{PackedF32, PackedI16, Rows};
use super::parting;
use super::patches::{Patches, Sink};
use super::requantize::QuantizedOutput;
use super::simd::{LANES, Simd, Work, dispatch};
use crate::buffer::{OutOfMemory, Scratch};
use crate::kernels::element::Quant8;
use crate::threads::{Effort, Team};

/// A convolution of 32-bit floats.
pub(super) fn run_f32(
    weights: &PackedF32,
    patches: &Patches,
    input: &[f32],
    (output, range): (&mut [f32], (f32, f32)),
    (scratch, team): (&mut Scratch, &Team<'_>),
) -> Result<(), OutOfMemory> {
    let depth = weights.depth();
    let (total, columns) = (patches.count(), patches.output.channels as usize);
    let threads = team.threads_for(effort(patches, size_of_val(weights.packed().bytes())));
    let grid = parting::product(threads, (total, depth * size_of::<f32>()), columns);
    let direct = patches.are_pixels();
    let gathered = if direct { 0 } else { grid.rows_per_block * depth };
    let [gathered] = scratch.carve::<f32, 1>([gathered * threads])?;
    team.for_each_block(threads, &grid, (output, gathered), |block, gathered| {
        let (first, count) = (block.first_row(), block.rows());
        let values = if direct {
            &input[first * depth..][..count * depth]
        } else {
            let mut copies = Copies { depth, gathered };
            patches.gather(input, first, count, &mut copies);
            &gathered[..count * depth]
        };
        let rows = Rows {
            values,
            stride: depth,
            count,
        };
        weights.multiply(rows, block, range);
    });
    Ok(())
}

/// What the products of all patches with a matrix of so many bytes take.
fn effort(patches: &Patches, matrix: usize) -> Effort {
    let outputs = patches.count() as u64 * u64::from(patches.output.channels);
    Effort {
        multiply_adds: outputs.saturating_mul(patches.depth() as u64),
        bytes: matrix as u64,
    }
}

/// Patches of floats, one behind the other.
struct Copies<'a> {
    depth: usize,
    gathered: &'a mut [f32],
}

impl Sink<f32> for Copies<'_> {
    #[inline(always)]
    fn pixels(&mut self, number: usize, offset: usize, pixels: &[f32]) {
        let at = number * self.depth + offset;
        let to = &mut self.gathered[at..at + pixels.len()];
        if pixels.len() > 2 * LANES {
            to.copy_from_slice(pixels);
            return;
        }
        // Shorter than the call that copies.
        for (to, pixel) in to.iter_mut().zip(pixels) {
            *to = *pixel;
        }
    }

    #[inline(always)]
    fn padding(&mut self, number: usize, offset: usize, length: usize) {
        let at = number * self.depth + offset;
        self.gathered[at..at + length].fill(0.0);
    }
}

/// A convolution of 8-bit values; `input_zero` is subtracted on the way to 16 bits, so that padding is 0.
pub(super) fn run_q8<T: Quant8>(
    weights: &PackedI16,
    patches: &Patches,
    (input, input_zero): (&[T], i32),
    (output, stored): (&mut [T], QuantizedOutput),
    (scratch, team): (&mut Scratch, &Team<'_>),
) -> Result<(), OutOfMemory> {
    let row = weights.pairs() * 2;
    let (total, columns) = (patches.count(), patches.output.channels as usize);
    let threads = team.threads_for(effort(patches, size_of_val(weights.packed().bytes())));
    let grid = parting::product(threads, (total, row * size_of::<i16>()), columns);
    let [widened] = scratch.carve::<i16, 1>([grid.rows_per_block * row * threads])?;
    let output: &mut [u8] = bytemuck::cast_slice_mut(output);
    team.for_each_block(threads, &grid, (output, widened), |block, widened| {
        let count = block.rows();
        dispatch(Widen {
            patches,
            input,
            input_zero: input_zero as i16,
            first: block.first_row(),
            count,
            row,
            widened,
        });
        let rows = Rows {
            values: bytemuck::cast_slice(&widened[..count * row]),
            stride: weights.pairs(),
            count,
        };
        if T::LEAST < 0 {
            weights.multiply::<true>(rows, block, stored);
        } else {
            weights.multiply::<false>(rows, block, stored);
        }
    });
    Ok(())
}

/// Gathers patches of 8-bit values as 16-bit values less the zero point, in rows of an even length.
struct Widen<'a, T> {
    patches: &'a Patches,
    input: &'a [T],
    input_zero: i16,
    first: usize,
    count: usize,
    row: usize,
    widened: &'a mut [i16],
}

impl<T: Quant8> Work for Widen<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, _: S) {
        let depth = self.patches.depth();
        if self.patches.are_pixels() && depth == self.row {
            let pixels = &self.input[self.first * depth..][..self.count * depth];
            return widen(pixels, self.input_zero, &mut self.widened[..self.count * depth]);
        }
        if depth < self.row {
            (0..self.count).for_each(|number| self.widened[number * self.row + depth] = 0);
        }
        let (patches, input, first, count) = (self.patches, self.input, self.first, self.count);
        patches.gather(input, first, count, &mut self);
    }
}

impl<T: Quant8> Sink<T> for Widen<'_, T> {
    #[inline(always)]
    fn pixels(&mut self, number: usize, offset: usize, pixels: &[T]) {
        let at = number * self.row + offset;
        widen(pixels, self.input_zero, &mut self.widened[at..at + pixels.len()]);
    }

    #[inline(always)]
    fn padding(&mut self, number: usize, offset: usize, length: usize) {
        let at = number * self.row + offset;
        self.widened[at..at + length].fill(0);
    }
}

#[inline(always)]
pub(super) fn widen<T: Quant8>(from: &[T], zero: i16, to: &mut [i16]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.to_i32() as i16 - zero;
    }
}

/// Whether 8-bit weights of this type are signed.
pub(super) fn weight(ty: OperandType, byte: u8) -> i16 {
    if ty == OperandType::TENSOR_QUANT8_ASYMM {
        i16::from(byte)
    } else {
        i16::from(byte as i8)
    }
}
