//! CONV_2D and FULLY_CONNECTED with constant weights, as products of patches with a packed filter matrix.

use nnhal::hal::OperandType;

use super::matmul::{Destination, PackedF32, PackedI16, rows_per_block};
use super::patches::{Patches, Run};
use crate::buffer::{OutOfMemory, Scratch};
use crate::kernels::element::Quant8;

/// A convolution of 32-bit floats.
pub(super) fn run_f32(
    weights: &PackedF32,
    patches: &Patches,
    input: &[f32],
    output: &mut [f32],
    range: (f32, f32),
    scratch: &mut Scratch,
) -> Result<(), OutOfMemory> {
    let depth = weights.depth();
    let columns = patches.output.channels as usize;
    let total = patches.count();
    let block = rows_per_block(depth * size_of::<f32>()).min(total.max(1));
    let direct = patches.are_pixels();
    let [gathered] = scratch.carve::<f32, 1>([if direct { 0 } else { block * depth }])?;
    let mut first = 0;
    while first < total {
        let count = block.min(total - first);
        let rows = if direct {
            &input[first * depth..][..count * depth]
        } else {
            patches.gather(input, first, count, |number, offset, run| {
                let at = number * depth + offset;
                match run {
                    Run::Pixels(pixels) => gathered[at..at + pixels.len()].copy_from_slice(pixels),
                    Run::Padding(length) => gathered[at..at + length].fill(0.0),
                }
            });
            &gathered[..count * depth]
        };
        let mut destination = Destination {
            output: &mut output[first * columns..],
            stride: columns,
        };
        weights.multiply(rows, depth, count, &mut destination, range);
        first += count;
    }
    Ok(())
}

/// How quantised results are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuantizedOutput {
    pub(super) zero_point: i32,
    pub(super) low: i32,
    pub(super) high: i32,
}

/// A convolution of 8-bit values; `input_zero` is subtracted on the way to 16 bits, so that padding is 0.
pub(super) fn run_q8<T: Quant8>(
    weights: &PackedI16,
    patches: &Patches,
    (input, input_zero): (&[T], i32),
    (output, stored): (&mut [T], QuantizedOutput),
    scratch: &mut Scratch,
) -> Result<(), OutOfMemory> {
    let depth = patches.depth();
    let row = weights.pairs() * 2;
    let columns = patches.output.channels as usize;
    let total = patches.count();
    let block = rows_per_block(row * size_of::<i16>()).min(total.max(1));
    let [widened] = scratch.carve::<i16, 1>([block * row])?;
    let widen = |value: T| (value.to_i32() - input_zero) as i16;
    let mut first = 0;
    while first < total {
        let count = block.min(total - first);
        if depth < row {
            (0..count).for_each(|number| widened[number * row + depth] = 0);
        }
        patches.gather(input, first, count, |number, offset, run| {
            let at = number * row + offset;
            match run {
                Run::Pixels(pixels) => {
                    for (target, pixel) in widened[at..at + pixels.len()].iter_mut().zip(pixels) {
                        *target = widen(*pixel);
                    }
                }
                Run::Padding(length) => widened[at..at + length].fill(0),
            }
        });
        let rows: &[i32] = bytemuck::cast_slice(&widened[..count * row]);
        let target = &mut output[first * columns..];
        weights.multiply(rows, count, |row, column, values| {
            let line = &mut target[row * columns + column..][..values.len()];
            for (target, value) in line.iter_mut().zip(values) {
                *target =
                    T::saturate((value.saturating_add(stored.zero_point)).clamp(stored.low, stored.high));
            }
        });
        first += count;
    }
    Ok(())
}

/// Whether 8-bit weights of this type are signed.
pub(super) fn weight(ty: OperandType, byte: u8) -> i16 {
    if ty == OperandType::TENSOR_QUANT8_ASYMM {
        i16::from(byte)
    } else {
        i16::from(byte as i8)
    }
}
