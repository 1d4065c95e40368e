//! CONV_2D and FULLY_CONNECTED with constant weights, as products of patches with a packed filter matrix.
//!
//! Patches are read in place: in the image if no window reaches beyond it, else in strips of it with the
//! padding. Only those of filters that are far apart in the image, or far larger, are copied one behind the
//! other; and, of 8-bit values, those that tiles multiply, and those of filters with gaps in a row if their
//! channels do not make whole fours, or whole pairs where products are taken by pairs.

use nnhal_hal::OperandType;
use nnhal_hal::ops::padding::Extents;
use nnhal_os::buffer::OutOfMemory;

use super::copies::{Floats, Form, Gather, Source, Unsigned, Widened, sign_bit};
use super::patches::Patches;
use crate::fast::epilogue::Epilogue;
use crate::fast::matmul::float_matrix::FloatMatrix;
use crate::fast::matmul::lines::Lines;
use crate::fast::matmul::packed_bytes::{FOUR, PackedBytes, RowLayout};
use crate::fast::matmul::pairs::PackedI16;
use crate::fast::partition;
use crate::fast::requantize::QuantizedOutput;
use crate::fast::simd::{Instructions, Work, dispatch, has_wide};
use crate::fast::strips::{Frame, Outputs};
use crate::interrupt::Interrupt as _;
use crate::kernels::element::Quant8;
use crate::scratch::Scratch;
use crate::threads::{Block, Cost, Grid, Parts, Team};

/// Bytes of which some times as many stay in a first-level cache.
const NEAREST_BYTES: usize = 16 * 1024;

/// A convolution of 32-bit floats; `epilogue` is that of its first row.
pub(in crate::fast) fn run_f32(
    weights: &FloatMatrix,
    patches: &Patches,
    input: &[f32],
    (output, epilogue): (&mut [f32], Epilogue<'_>),
    memory: (&mut Scratch, &Team<'_>),
) -> Result<(), OutOfMemory> {
    let matrix = (weights.packed().bytes().len(), weights.times_as_fast());
    run(
        (Floats, 1, weights.depth()),
        (patches, matrix),
        (input, output),
        |rows| weights.scratch(rows),
        memory,
        |lines, own, block, first| weights.multiply(lines, own, block, epilogue.at_row(first)),
    )
}

/// A convolution by rows in a form, which have so many values, and whose parts are multiples of a unit; of a
/// matrix of so many bytes, whose products are so many times as fast as those of floats. `own` says how much
/// memory products of so many rows take beside copies. `multiply` is told the first of all rows.
fn run<F: Form + Sync, R: Send>(
    (form, unit, apart): (F, usize, usize),
    (patches, (matrix, times)): (&Patches, (usize, u64)),
    (input, output): (&[F::From], &mut [R]),
    own: impl Fn(usize) -> usize,
    (scratch, team): (&mut Scratch, &Team<'_>),
    multiply: impl Fn(Lines<'_, F::To>, &mut [F::To], Block<'_, R>, usize) + Sync,
) -> Result<(), OutOfMemory>
where
    F::From: Sync,
    F::To: Send,
{
    let parts = team.parts_for(cost(patches, matrix, times));
    let is_of_pixels = patches.are_pixels();
    let (grid, frame) = if is_of_pixels {
        let rows = (patches.count(), apart * size_of::<F::To>());
        (grid(parts, rows, (patches, matrix)), None)
    } else {
        let each = parts.of_each(patches.output.batch as usize);
        framing::<F::To>(patches, matrix, each, (unit, apart))
    };
    let source = Source {
        patches,
        frame,
        unit,
        apart,
    };
    let threads = grid.most_threads(parts.threads);
    let own = own(grid.rows_per_block);
    let length = own.checked_add(source.copies::<F>(grid.rows_per_block));
    let length = length.ok_or(OutOfMemory { bytes: usize::MAX })?;
    let memory = scratch.shares::<F::To>(threads, length)?;
    // Single pixels are rows of one large image.
    let size = |extents: &Extents, all: usize| match is_of_pixels {
        true => all.max(1),
        false => patches.image_size(extents).max(1),
    };
    let (size_in, size_out) = (
        size(&patches.input, input.len()),
        size(&patches.output, output.len()),
    );
    let images = input.chunks_exact(size_in).zip(output.chunks_exact_mut(size_out));
    for (image, (input, output)) in images.enumerate() {
        if image > 0 && team.check().is_err() {
            break;
        }
        team.for_each_block(threads, &grid, (output, &mut *memory), |block, memory| {
            let (own, copies) = memory.split_at_mut(own);
            let outputs = Outputs {
                first: block.first_row(),
                count: block.rows(),
            };
            let lines = source.lines(form, input, outputs, copies);
            multiply(lines, own, block, image * grid.rows + outputs.first);
        });
    }
    Ok(())
}

/// The windows of some outputs of an image, read in place or in a strip with the padding that is made in
/// `copies`.
pub(in crate::fast) fn lines_f32<'l>(
    frame: &Frame<'_>,
    input: &'l [f32],
    outputs: Outputs,
    copies: &'l mut [f32],
) -> Lines<'l, f32> {
    if frame.is_image() {
        return frame.windows(frame.of_image(input, outputs), outputs, 1);
    }
    frame.fill(input, outputs, (&mut *copies, 0.0), |from, to| {
        to.copy_from_slice(from)
    });
    frame.windows(copies, outputs, 1)
}

/// How the outputs of an image are parted, and how windows lie in strips for each part, if they shall: copied
/// rows would have so many values, and their parts are multiples of a unit.
fn framing<T>(
    patches: &Patches,
    matrix: usize,
    parts: Parts,
    (unit, apart): (usize, usize),
) -> (Grid, Option<Frame<'_>>) {
    // Parts begin with a unit of their own where the filter's rows do.
    let fits = patches.horizontal.dilation == 1 || patches.input.channels.is_multiple_of(unit as u32);
    let each = patches.output.height as usize * patches.output.width as usize;
    let step = u64::from(patches.vertical.stride) * u64::from(patches.horizontal.stride);
    let step = step.min(patches.depth() as u64) as usize;
    let in_strips = step.saturating_mul(patches.input.channels as usize * size_of::<T>());
    let mut strips = grid(parts, (each, in_strips), (patches, matrix));
    if let Some(frame) = Frame::of(patches, strips.rows_per_block).filter(|_| fits) {
        if frame.is_image() || matrix > NEAREST_BYTES {
            return (strips, Some(frame));
        }
        // Of a small matrix another pass costs little, and copies are read where they were just written.
        let line = (patches.output.width as usize).max(1);
        // But of no fewer lines than windows have, which are copied for the block behind them, too.
        let lines = (NEAREST_BYTES / (in_strips * line).max(1)).max(patches.vertical.filter as usize);
        strips.rows_per_block = strips.rows_per_block.min(lines.saturating_mul(line));
        let frame = Frame::of(patches, strips.rows_per_block);
        return (strips, frame);
    }
    let row = apart * size_of::<T>();
    (grid(parts, (each, row), (patches, matrix)), None)
}

fn grid(parts: Parts, rows: (usize, usize), (patches, matrix): (&Patches, usize)) -> Grid {
    partition::product(parts, rows, (patches.output.channels as usize, matrix))
}

/// What the products of all patches with a matrix of so many bytes take, which are so many times as fast as
/// those of floats.
pub(in crate::fast) fn cost(patches: &Patches, matrix: usize, times: u64) -> Cost {
    let outputs = patches.count() as u64 * u64::from(patches.output.channels);
    Cost {
        multiply_adds: outputs.saturating_mul(patches.depth() as u64) / (times * vector_speed()),
        bytes: matrix as u64,
    }
}

/// How many times as fast as with AVX2 floats are multiplied.
pub(in crate::fast) fn vector_speed() -> u64 {
    if has_wide() { 2 } else { 1 }
}

/// A convolution of 8-bit values; `input_zero` is subtracted on the way to 16 bits, so that padding is 0.
pub(in crate::fast) fn run_q8<T: Quant8>(
    weights: &PackedI16,
    patches: &Patches,
    (input, input_zero): (&[T], i32),
    (output, stored): (&mut [T], QuantizedOutput),
    memory: (&mut Scratch, &Team<'_>),
) -> Result<(), OutOfMemory> {
    let matrix = (weights.packed().bytes().len(), 1);
    run(
        (Widened::<T>::new(input_zero), 2, 2 * weights.pairs()),
        (patches, matrix),
        (input, bytemuck::cast_slice_mut::<T, u8>(output)),
        |_| 0,
        memory,
        |lines, _, block, _| weights.multiply(lines, block, (stored, T::LEAST < 0)),
    )
}

/// The same with weights for rows of unsigned bytes, which are read in place where they are unsigned single
/// pixels, or windows that do not need what is around the image.
pub(in crate::fast) fn run_bytes<T: Quant8>(
    weights: &PackedBytes,
    patches: &Patches,
    (input, input_zero): (&[T], i32),
    (output, stored): (&mut [T], QuantizedOutput),
    (scratch, team): (&mut Scratch, &Team<'_>),
) -> Result<(), OutOfMemory> {
    let (depth, is_signed) = (weights.depth(), T::LEAST < 0);
    let (matrix, times) = (weights.packed().bytes().len(), weights.times_as_fast());
    let form = Unsigned::<T>::new(input_zero as u8 ^ sign_bit::<T>());
    let output = bytemuck::cast_slice_mut::<T, u8>(output);
    if weights.reads_windows() {
        return run(
            (form, FOUR, depth),
            (patches, (matrix, times)),
            (input, output),
            |_| 0,
            (scratch, team),
            |lines, _, block, _| weights.multiply_windows(lines, block, (stored, is_signed)),
        );
    }
    let parts = team.parts_for(cost(patches, matrix, times));
    let grid = grid(parts, (patches.count(), depth), (patches, matrix));
    let threads = grid.most_threads(parts.threads);
    let layout = weights.layout(grid.rows_per_block, patches.are_pixels() && !is_signed);
    // In whole numbers of the terms that are behind them.
    let copies = if layout.in_place {
        0
    } else {
        (grid.rows_per_block * layout.apart).div_ceil(size_of::<i32>())
    };
    let length = copies + grid.rows_per_block;
    let memory = scratch.shares::<i32>(threads, length)?;
    team.for_each_block(threads, &grid, (output, memory), |block, memory| {
        let (first, count) = (block.first_row(), block.rows());
        let (copied, terms) = memory[..length].split_at_mut(copies);
        let rows: &[u8] = if layout.in_place {
            &bytemuck::cast_slice(input)[first * depth..]
        } else {
            let copied: &mut [u8] = &mut bytemuck::cast_slice_mut(copied)[..count * layout.apart];
            if patches.are_pixels() {
                dispatch(CopyRows {
                    weights,
                    rows: bytemuck::cast_slice(&input[first * depth..][..count * depth]),
                    flip: sign_bit::<T>(),
                    to: (&mut *copied, layout),
                });
            } else {
                dispatch(Gather {
                    form,
                    patches,
                    input,
                    outputs: Outputs { first, count },
                    unit: FOUR,
                    apart: layout.apart,
                    rows: &mut *copied,
                });
            }
            copied
        };
        weights.multiply((rows, layout), terms, block, (stored, is_signed));
    });
    Ok(())
}

/// Copies pixels as rows.
struct CopyRows<'a> {
    weights: &'a PackedBytes,
    rows: &'a [u8],
    flip: u8,
    to: (&'a mut [u8], RowLayout),
}

impl Work for CopyRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        self.weights.copy_rows(self.rows, self.flip, self.to);
    }
}

/// Whether 8-bit weights of this type are signed.
pub(in crate::fast) fn weight(ty: OperandType, byte: u8) -> i16 {
    if ty == OperandType::TENSOR_QUANT8_ASYMM {
        i16::from(byte)
    } else {
        i16::from(byte as i8)
    }
}

#[cfg(test)]
#[path = "byte_windows_tests.rs"]
mod byte_windows_tests;
#[cfg(test)]
#[path = "products_tests.rs"]
mod tests;
