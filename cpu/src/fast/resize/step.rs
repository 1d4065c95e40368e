//! RESIZE_BILINEAR of 32-bit floats and 8-bit values in NHWC, to the same bits as the reference.
//!
//! Each of the four products that are summed is `pixel * row weight * column weight`, from left to right. Its
//! first half is the same for all outputs of a row, so it is made once for each pixel of the two lines that
//! the row lies between; the places and weights of columns are made once for all rows.
//!
//! Signed 8-bit images are resized as their unsigned twins. Those whose positions are all in sixteenths of a
//! pixel, as those that grow by a power of two are, are summed in integers ([`super::sixteenths`]).

use nnhal_hal::ops::OperationContext;
use nnhal_hal::ops::resize::{ResizeGeometry, geometry};
use nnhal_hal::{OperandType, OperationType};
use nnhal_os::buffer::OutOfMemory;

use super::rows::{Column, OVERHANG, Rows};
use super::sixteenths::{InSixteenths, are_sixteenths};
use crate::fast::elementwise::quantized_operands::is_of_8_bits;
use crate::fast::partition;
use crate::fast::rounding::low_bits;
use crate::fast::serves::Serves;
use crate::fast::simd::{Instructions, LANES, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::element::Quant8;
use crate::kernels::resize::Axis;
use crate::plan::Declared;
use crate::plan::cost::{BYTES_PER_RESIZED, MOST_LEFT_OUT};
use crate::scratch::Scratch;
use crate::threads::{Block, Cost, Team};

/// A bilinear resizing.
#[derive(Debug)]
pub(in crate::fast) struct ResizeStep {
    serves: Serves,
    /// For other types and layouts.
    fallback: Kernel,
}

impl ResizeStep {
    /// The step of an operation, if it is a bilinear resizing and may be executed as one that it takes.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<ResizeStep> {
        let context: &dyn OperationContext = declared;
        let is_nchw = context.bool_or(3, false) == Ok(true);
        let serves = match geometry(context) {
            Err(_) if is_nchw => Serves::Never,
            geometry => Serves::if_so(geometry.map(|geometry| is_served(&geometry))),
        };
        let is_bilinear = context.operation() == OperationType::RESIZE_BILINEAR;
        (is_bilinear && serves != Serves::Never).then_some(ResizeStep { serves, fallback })
    }
}

/// Whether these are images in NHWC, and not much larger before than after.
pub(in crate::fast) fn is_served(geometry: &ResizeGeometry) -> bool {
    let line = u64::from(geometry.input.width) * u64::from(geometry.input.channels);
    let is_mostly_left_out = geometry.input.width / MOST_LEFT_OUT > geometry.output.width;
    !geometry.nchw && !is_mostly_left_out && line <= u64::from(u32::MAX)
}

impl PlannedStep for ResizeStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => self
                .serves
                .name("f32 resizing", "f32 resizing, reference if NCHW or much smaller"),
            ty if is_of_8_bits(ty) => self.serves.name(
                "8-bit resizing",
                "8-bit resizing, reference if NCHW or much smaller",
            ),
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        // Extents of what has no elements need not fit any memory.
        if context.outputs.tensor(0)?.bytes.is_empty() {
            return (self.fallback)(context);
        }
        let geometry = geometry(context.inputs.rules())?;
        if !is_served(&geometry) {
            return (self.fallback)(context);
        }
        match context.inputs.tensor(0)?.ty() {
            OperandType::TENSOR_FLOAT32 => resize::<f32>(context, &geometry, |rows| dispatch(rows)),
            OperandType::TENSOR_QUANT8_ASYMM => resize_quantized::<u8>(context, &geometry),
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => resize_quantized::<i8>(context, &geometry),
            _ => (self.fallback)(context),
        }
    }
}

fn resize_quantized<T: Quant8>(
    context: &mut KernelContext<'_>,
    geometry: &ResizeGeometry,
) -> Result<(), KernelError> {
    let in_sixteenths = are_sixteenths(geometry);
    resize::<T>(context, geometry, |rows| fill_bytes(rows, in_sixteenths))
}

/// Computes rows of 8-bit values, which may lie [in sixteenths](are_sixteenths).
pub(in crate::fast) fn fill_bytes<T: Quant8>(rows: Rows<'_, T>, in_sixteenths: bool) {
    if in_sixteenths {
        dispatch(InSixteenths(rows));
    } else {
        dispatch(rows);
    }
}

/// An element that is computed with as a float.
pub(in crate::fast) trait Sample: bytemuck::Pod + Send + Sync {
    fn widen(self) -> f32;
    /// What a sum of weighted samples gives.
    fn of(sum: f32) -> Self;
}

impl Sample for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of(sum: f32) -> f32 {
        sum
    }
}

impl<T: Quant8> Sample for T {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from(self.to_unsigned())
    }

    #[inline(always)]
    fn of(sum: f32) -> T {
        // Not negative, and a mean of such samples: 0.5 more and the fraction cut off is rounded to nearest.
        T::from_unsigned(low_bits((sum + 0.5).trunc()) as u8)
    }
}

/// Resizes with what fills rows.
fn resize<T: Sample>(
    context: &mut KernelContext<'_>,
    geometry: &ResizeGeometry,
    fill: impl Fn(Rows<'_, T>) + Sync,
) -> Result<(), KernelError> {
    let row = geometry.output.width as usize * geometry.output.channels as usize;
    let (from, to) = (context.inputs.data::<T>(0)?, context.outputs.data::<T>(0)?);
    let memory = (&mut *context.scratch, context.team);
    let compute = |resized: &Resized<'_, T>, mut block: Block<'_, T>, lines: &mut [f32]| {
        fill(resized.rows(block.first_row(), block.all(), lines));
    };
    for_each_block((geometry, from), (to, row, cost(geometry)), 0, memory, compute)?;
    Ok(())
}

/// What is the same for all rows of a resized image.
pub(in crate::fast) struct Resized<'a, T> {
    geometry: &'a ResizeGeometry,
    columns: &'a [Column],
    from: &'a [T],
}

impl<T> Resized<'_, T> {
    /// Rows from one on, with memory that [`for_each_block`] has for them.
    pub(in crate::fast) fn rows<'r>(
        &'r self,
        first: usize,
        to: &'r mut [T],
        lines: &'r mut [f32],
    ) -> Rows<'r, T> {
        Rows {
            geometry: self.geometry,
            columns: self.columns,
            from: self.from,
            first,
            to,
            lines,
        }
    }
}

/// How much work it is.
pub(in crate::fast) fn cost(geometry: &ResizeGeometry) -> Cost {
    let output = &geometry.output;
    let rows = u64::from(output.batch) * u64::from(output.height);
    Cost {
        multiply_adds: (2 * rows).saturating_mul(line(geometry) as u64),
        bytes: rows * u64::from(output.width) * u64::from(output.channels) * BYTES_PER_RESIZED,
    }
}

/// Values that there is room for in place of a line of the input.
fn line(geometry: &ResizeGeometry) -> usize {
    (geometry.input.width as usize)
        .saturating_mul(geometry.output.channels as usize)
        .saturating_add(OVERHANG)
}

/// Has threads compute what becomes of the rows of a resized image, `row` elements of each, and gives each
/// thread the memory for lines, behind `more` floats.
pub(in crate::fast) fn for_each_block<T: Sample, R: Send>(
    (geometry, from): (&ResizeGeometry, &[T]),
    (output, row, cost): (&mut [R], usize, Cost),
    more: usize,
    (scratch, team): (&mut Scratch, &Team<'_>),
    compute: impl Fn(&Resized<'_, T>, Block<'_, R>, &mut [f32]) + Sync,
) -> Result<(), OutOfMemory> {
    let extents = &geometry.output;
    let (width, channels) = (extents.width as usize, extents.channels as usize);
    let rows = extents.batch as usize * extents.height as usize;
    let parts = team.parts_for(cost);
    let words = size_of::<Column>() / size_of::<u32>();
    let each = line(geometry).saturating_mul(2).saturating_add(more);
    let lengths = [width.saturating_mul(words), each.saturating_mul(parts.threads)];
    let [columns, memory] = scratch.carve::<u32, 2>(lengths)?;
    let columns: &mut [Column] = bytemuck::cast_slice_mut(columns);
    let axis = Axis::columns(geometry);
    for (x, column) in columns.iter_mut().enumerate() {
        let between = axis.between(x);
        *column = Column {
            left: (between.lower * channels) as u32,
            right: (between.upper * channels) as u32,
            fraction: between.fraction,
        };
    }
    let resized = Resized {
        geometry,
        columns,
        from,
    };
    let grid = partition::rows(parts, rows, row);
    team.for_each_block(
        parts.threads,
        &grid,
        (output, bytemuck::cast_slice_mut(memory)),
        |block, memory| {
            compute(&resized, block, memory);
        },
    );
    Ok(())
}

impl<T: Sample> Work for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, _: S) {
        let (channels, length, width) = (self.channels(), self.line(), self.width());
        let lines = std::mem::take(&mut self.lines);
        let (upper, rest) = lines.split_at_mut(length);
        let lower = &mut rest[..length];
        for row in 0..self.to.len() / width {
            let around = self.around(self.first + row);
            weigh(around.upper, 1.0 - around.fraction, upper);
            weigh(around.lower, around.fraction, lower);
            let results = &mut self.to[row * width..][..width];
            for (column, results) in self.columns.iter().zip(results.chunks_exact_mut(channels)) {
                let (left, right) = (column.left as usize, column.right as usize);
                let corners = Corners {
                    upper_left: &upper[left..][..channels],
                    lower_left: &lower[left..][..channels],
                    upper_right: &upper[right..][..channels],
                    lower_right: &lower[right..][..channels],
                };
                if channels < LANES {
                    for (at, result) in results.iter_mut().enumerate() {
                        *result = T::of(corners.between(at, column.fraction));
                    }
                    continue;
                }
                for group in 0..channels.div_ceil(LANES) {
                    // The last one overlaps the one before it where channels do not fill it.
                    let first = (group * LANES).min(channels - LANES);
                    let eight = Corners {
                        upper_left: &corners.upper_left[first..first + LANES],
                        lower_left: &corners.lower_left[first..first + LANES],
                        upper_right: &corners.upper_right[first..first + LANES],
                        lower_right: &corners.lower_right[first..first + LANES],
                    };
                    let mut sums = [0.0; LANES];
                    for (lane, sum) in sums.iter_mut().enumerate() {
                        *sum = eight.between(lane, column.fraction);
                    }
                    for (result, sum) in results[first..first + LANES].iter_mut().zip(sums) {
                        *result = T::of(sum);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn weigh<T: Sample>(from: &[T], weight: f32, to: &mut [f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = from.widen() * weight;
    }
}

/// The channels of the four pixels around an output, those of each times the weight of its line.
struct Corners<'a> {
    upper_left: &'a [f32],
    lower_left: &'a [f32],
    upper_right: &'a [f32],
    lower_right: &'a [f32],
}

impl Corners<'_> {
    #[inline(always)]
    fn between(&self, at: usize, column: f32) -> f32 {
        self.upper_left[at] * (1.0 - column)
            + self.lower_left[at] * (1.0 - column)
            + self.upper_right[at] * column
            + self.lower_right[at] * column
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    #[test]
    fn results_have_the_bits_of_the_reference() {
        // Extents of input and output, channels, corners aligned, centres of pixels.
        let cases = [
            ([5, 7], [13, 29], 21, false, false),
            ([5, 7], [13, 29], 8, true, false),
            ([3, 4], [9, 8], 3, false, true),
            ([9, 8], [4, 3], 17, false, true),
            ([1, 1], [6, 5], 10, true, false),
            ([6, 5], [1, 1], 1, false, false),
            ([2, 4000], [300, 2], 1, false, false),
            ([2, 8], [5, 2], 3, true, false),
            // In sixteenths, and with too many channels for one vector.
            ([3, 5], [17, 33], 21, true, false),
            ([4, 3], [64, 24], 3, false, false),
            ([4, 3], [16, 24], 1, false, true),
            ([3, 3], [6, 12], 75, false, true),
            ([3, 3], [24, 12], 40, false, true),
        ];
        for ([height, width], [rows, columns], channels, aligned, centres) in cases {
            let dims = [2, height, width, channels];
            let count = dims.iter().product::<u32>();
            let compute = |kernels, ty| {
                let operation = OneOperation::new(OperationType::RESIZE_BILINEAR);
                let operation = if ty == OperandType::TENSOR_FLOAT32 {
                    let values: Vec<f32> = (0..count).map(|at| (at * 37 % 101) as f32 * 0.37 - 9.0).collect();
                    operation.tensor(ty, &dims, &values)
                } else {
                    let values: Vec<u8> = (0..count).map(|at| (at * 37 % 256) as u8).collect();
                    operation.operand(Operand::new(ty, &dims).with_quantization(0.5, 3), &values)
                };
                operation
                    .i32(columns as i32)
                    .i32(rows as i32)
                    .tensor(OperandType::BOOL, &[], &[0_u8])
                    .tensor(OperandType::BOOL, &[], &[u8::from(aligned)])
                    .tensor(OperandType::BOOL, &[], &[u8::from(centres)])
                    .output_operand(Operand::new(ty, &[2, rows, columns, channels]).with_quantization(
                        if ty == OperandType::TENSOR_FLOAT32 {
                            0.0
                        } else {
                            0.5
                        },
                        if ty == OperandType::TENSOR_FLOAT32 { 0 } else { 3 },
                    ))
                    .with_constants()
                    .run_by(kernels, &RunOptions::default())
                    .unwrap()
                    .remove(0)
                    .bytes
            };
            for ty in [
                OperandType::TENSOR_FLOAT32,
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                let (found, exact) = (compute(KernelSet::Fast, ty), compute(KernelSet::Reference, ty));
                assert!(found == exact, "{ty} {dims:?} to {rows} by {columns}");
            }
        }
    }
}
