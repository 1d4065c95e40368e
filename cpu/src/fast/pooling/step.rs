//! AVERAGE_POOL_2D and MAX_POOL_2D over NHWC images: some channels at a time, over the whole window.

use std::ops::Range;

use bytemuck::Pod;
use nnhal_hal::ops::pooling::{arguments, geometry};
use nnhal_hal::ops::windows::WindowGeometry;
use nnhal_hal::ops::{OperationContext, ShapeIssue};
use nnhal_hal::{OperandType, OperationType};

use crate::fast::elementwise::values::clamp;
use crate::fast::partition;
use crate::fast::serves::Serves;
use crate::fast::simd::{Instructions, LANES, WIDE, Work, dispatch};
use crate::fast::strips::seen;
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::element::Quant8;
use crate::plan::Declared;
use crate::threads::{Cost, Grid};

/// A pooling operation.
#[derive(Debug)]
pub(in crate::fast) struct PoolingStep {
    /// Whether it takes the largest element; the mean otherwise.
    is_maximum: bool,
    serves: Serves,
    /// For the types and layouts that have no fast code.
    fallback: Kernel,
}

/// Most pixels of a window: sums of so many 8-bit elements fit 32 bits.
const MOST_PIXELS: i64 = 1 << 20;

impl PoolingStep {
    /// The step of an operation, if it is one of the two and may be executed as one that it takes.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<PoolingStep> {
        let is_maximum = match declared.operation.operation_type {
            OperationType::MAX_POOL_2D => true,
            OperationType::AVERAGE_POOL_2D => false,
            _ => return None,
        };
        let serves = Serves::if_so(is_served(declared));
        (serves != Serves::Never).then_some(PoolingStep {
            is_maximum,
            serves,
            fallback,
        })
    }
}

/// Whether these are images in NHWC, and windows that are not too large.
fn is_served(context: &dyn OperationContext) -> Result<bool, ShapeIssue> {
    let arguments = arguments(context);
    if arguments.nchw(context)? {
        return Ok(false);
    }
    let [width, height] = [arguments.own(), arguments.own() + 1].map(|at| context.i32(at).map(i64::from));
    Ok(width? * height? <= MOST_PIXELS)
}

impl PlannedStep for PoolingStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => self.serves.name("f32 pooling", "f32 pooling, reference if NCHW"),
            OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => self
                .serves
                .name("8-bit pooling", "8-bit pooling, reference if NCHW"),
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        // Extents of what has no elements need not fit any memory.
        if context.outputs.tensor(0)?.bytes.is_empty() || !is_served(context.inputs.rules())? {
            return (self.fallback)(context);
        }
        let geometry = geometry(context.inputs.rules())?;
        let at = arguments(context.inputs.rules()).activation();
        let activation = Activation::from_code(at, context.inputs.i32(at)?)?;
        let pool = Pool {
            geometry: &geometry,
            is_maximum: self.is_maximum,
        };
        match context.inputs.tensor(0)?.ty() {
            OperandType::TENSOR_FLOAT32 => {
                let (bytes, range) = (size_of::<f32>(), activation.range());
                if self.is_maximum {
                    pool.compute::<f32>(context, bytes, LargestFloat(range))
                } else {
                    pool.compute::<f32>(context, bytes, MeanFloat(range))
                }
            }
            OperandType::TENSOR_QUANT8_ASYMM => pool.quantized::<u8>(context, activation),
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => pool.quantized::<i8>(context, activation),
            _ => (self.fallback)(context),
        }
    }
}

#[derive(Clone, Copy)]
struct Pool<'a> {
    geometry: &'a WindowGeometry,
    is_maximum: bool,
}

/// The part of a window that is inside the image.
struct Inside {
    /// How many rows and columns.
    rows: usize,
    columns: usize,
    /// Its first pixel, among those of all images.
    first: usize,
}

/// A pixel of the output: what comes next is found by counting, for dividing takes longer than pooling.
struct Place {
    batch: usize,
    y: usize,
    x: usize,
    /// The rows of the image that its window sees.
    rows: Range<usize>,
}

impl Pool<'_> {
    fn channels(&self) -> usize {
        self.geometry.input.channels as usize
    }

    /// Pixels of the output, and elements of all windows together.
    fn sizes(&self) -> (u64, u64) {
        let (geometry, product) = (self.geometry, |left: u64, right: u32| {
            left.saturating_mul(right.into())
        });
        let output = [
            geometry.output.batch,
            geometry.output.height,
            geometry.output.width,
        ];
        let pixels = output.into_iter().fold(1, product);
        let window = [
            geometry.vertical.filter,
            geometry.horizontal.filter,
            geometry.input.channels,
        ];
        (pixels, window.into_iter().fold(pixels, product))
    }

    fn cost(&self, element: usize) -> Cost {
        Cost {
            multiply_adds: 0,
            bytes: self.sizes().1.saturating_mul(element as u64),
        }
    }

    /// The output, pixel by pixel.
    fn grid(&self, threads: usize) -> Grid {
        partition::rows(threads, self.sizes().0 as usize, self.channels())
    }

    /// A pixel by its number.
    fn place(&self, pixel: usize) -> Place {
        let output = &self.geometry.output;
        let (height, width) = (output.height as usize, output.width as usize);
        let line = pixel / width.max(1);
        let y = line % height.max(1);
        Place {
            batch: line / height.max(1),
            y,
            x: pixel % width.max(1),
            rows: self.seen_rows(y),
        }
    }

    #[inline(always)]
    fn seen_rows(&self, y: usize) -> Range<usize> {
        seen(
            &self.geometry.vertical,
            self.geometry.input.height as usize,
            &(y..y + 1),
        )
    }

    /// Goes on to the next pixel.
    #[inline(always)]
    fn step(&self, place: &mut Place) {
        place.x += 1;
        if place.x < self.geometry.output.width as usize {
            return;
        }
        (place.x, place.y) = (0, place.y + 1);
        if place.y == self.geometry.output.height as usize {
            (place.y, place.batch) = (0, place.batch + 1);
        }
        place.rows = self.seen_rows(place.y);
    }

    /// What the window of a pixel sees.
    #[inline(always)]
    fn window(&self, place: &Place) -> Inside {
        let input = &self.geometry.input;
        let columns = seen(
            &self.geometry.horizontal,
            input.width as usize,
            &(place.x..place.x + 1),
        );
        let line = place.batch * input.height as usize + place.rows.start;
        Inside {
            rows: place.rows.len(),
            columns: columns.len(),
            first: line * input.width as usize + columns.start,
        }
    }
}

/// Channels that are taken at once where there are so many: their accumulators stay in registers.
const MANY: usize = 4 * LANES;

/// How elements of a window become one: the accumulators of all channels are combined with each pixel in
/// turn.
trait Accumulate<T> {
    /// What is accumulated.
    type Sum: Copy;

    /// Before the first pixel.
    fn start(&self) -> Self::Sum;

    fn combine(&self, sum: Self::Sum, element: T) -> Self::Sum;

    /// What is stored of so many pixels.
    fn finish(&self, sum: Self::Sum, pixels: usize) -> T;
}

/// Some pixels of the output.
struct Pixels<'a, T, A> {
    pool: Pool<'a>,
    input: &'a [T],
    output: &'a mut [T],
    /// Which pixel is the first.
    first: usize,
    accumulate: A,
}

impl<T: Copy, A: Accumulate<T>> Work for Pixels<'_, T, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let channels = self.pool.channels();
        let mut place = self.pool.place(self.first);
        for values in self.output.chunks_exact_mut(channels.max(1)) {
            let from = Source {
                pool: &self.pool,
                input: self.input,
                window: self.pool.window(&place),
                accumulate: &self.accumulate,
            };
            self.pool.step(&mut place);
            let mut first = 0;
            while first + MANY <= channels {
                from.channels::<MANY>(first, values);
                first += MANY;
            }
            // The last ones overlap those before them where channels do not fill a vector.
            while first < channels && channels >= WIDE {
                from.channels::<WIDE>(first.min(channels - WIDE), values);
                first += WIDE;
            }
            while first < channels && channels >= LANES {
                from.channels::<LANES>(first.min(channels - LANES), values);
                first += LANES;
            }
            while first < channels {
                from.channels::<1>(first, values);
                first += 1;
            }
        }
    }
}

/// What a pixel of the output is made of.
struct Source<'a, T, A> {
    pool: &'a Pool<'a>,
    input: &'a [T],
    window: Inside,
    accumulate: &'a A,
}

impl<T: Copy, A: Accumulate<T>> Source<'_, T, A> {
    /// Computes `N` neighbouring channels.
    #[inline(always)]
    fn channels<const N: usize>(&self, first: usize, values: &mut [T]) {
        let Inside {
            rows,
            columns,
            first: corner,
        } = self.window;
        let (channels, width) = (self.pool.channels(), self.pool.geometry.input.width as usize);
        let mut sums = [self.accumulate.start(); N];
        for row in 0..rows {
            let pixels = &self.input[(corner + row * width) * channels..][..columns * channels];
            for column in 0..columns {
                // A loop of known length, so that sums stay in registers: with a length that is looked up
                // they are in memory, where each step waits for the one before.
                let elements: &[T; N] = neighbours(pixels, column * channels + first);
                for lane in 0..N {
                    sums[lane] = self.accumulate.combine(sums[lane], elements[lane]);
                }
            }
        }
        for (value, sum) in values[first..first + N].iter_mut().zip(sums) {
            *value = self.accumulate.finish(sum, rows * columns);
        }
    }
}

/// The elements of `N` neighbouring channels.
#[inline(always)]
fn neighbours<T, const N: usize>(pixels: &[T], first: usize) -> &[T; N] {
    match pixels[first..].first_chunk() {
        Some(elements) => elements,
        None => unreachable!("{N} channels from {first} on are within {}", pixels.len()),
    }
}

/// The largest float, clamped to a range. A NaN stays one, wherever in the window it is.
#[derive(Clone, Copy)]
struct LargestFloat((f32, f32));

impl Accumulate<f32> for LargestFloat {
    type Sum = f32;

    #[inline(always)]
    fn start(&self) -> f32 {
        f32::NEG_INFINITY
    }

    #[inline(always)]
    fn combine(&self, largest: f32, element: f32) -> f32 {
        let takes = element > largest || element.is_nan();
        if takes { element } else { largest }
    }

    #[inline(always)]
    fn finish(&self, largest: f32, _: usize) -> f32 {
        clamp(largest, self.0.0, self.0.1)
    }
}

/// The mean of floats, clamped to a range.
#[derive(Clone, Copy)]
struct MeanFloat((f32, f32));

impl Accumulate<f32> for MeanFloat {
    type Sum = f32;

    #[inline(always)]
    fn start(&self) -> f32 {
        0.0
    }

    #[inline(always)]
    fn combine(&self, sum: f32, element: f32) -> f32 {
        sum + element
    }

    #[inline(always)]
    fn finish(&self, sum: f32, pixels: usize) -> f32 {
        clamp(sum / pixels as f32, self.0.0, self.0.1)
    }
}

/// The largest 8-bit value, clamped to a range.
#[derive(Clone, Copy)]
struct LargestQuantized((i32, i32));

impl<T: Quant8> Accumulate<T> for LargestQuantized {
    type Sum = i32;

    #[inline(always)]
    fn start(&self) -> i32 {
        T::LEAST
    }

    #[inline(always)]
    fn combine(&self, largest: i32, element: T) -> i32 {
        largest.max(element.to_i32())
    }

    #[inline(always)]
    fn finish(&self, largest: i32, _: usize) -> T {
        T::saturate(largest.clamp(self.0.0, self.0.1))
    }
}

/// The mean of 8-bit values to nearest, ties away from zero, clamped to a range.
#[derive(Clone, Copy)]
struct MeanQuantized((i32, i32));

impl<T: Quant8> Accumulate<T> for MeanQuantized {
    type Sum = i32;

    #[inline(always)]
    fn start(&self) -> i32 {
        0
    }

    #[inline(always)]
    fn combine(&self, sum: i32, element: T) -> i32 {
        sum + element.to_i32()
    }

    #[inline(always)]
    fn finish(&self, sum: i32, pixels: usize) -> T {
        let count = pixels as i32;
        let half = if sum > 0 { count / 2 } else { -(count / 2) };
        T::saturate(((sum + half) / count).clamp(self.0.0, self.0.1))
    }
}

impl Pool<'_> {
    /// Computes the output from elements that take so many bytes when they are accumulated.
    fn compute<T: Pod + Send + Sync>(
        &self,
        context: &mut KernelContext<'_>,
        bytes: usize,
        accumulate: impl Accumulate<T> + Copy + Sync,
    ) -> Result<(), KernelError> {
        let (input, output) = (context.inputs.data::<T>(0)?, context.outputs.data::<T>(0)?);
        let threads = context.team.threads_for(self.cost(bytes));
        let none: &mut [u8] = &mut [];
        let grid = self.grid(threads);
        context
            .team
            .for_each_block(threads, &grid, (output, none), |mut block, _| {
                dispatch(Pixels {
                    pool: *self,
                    input,
                    first: block.first_row(),
                    output: block.all(),
                    accumulate,
                });
            });
        Ok(())
    }

    fn quantized<T: Quant8>(
        &self,
        context: &mut KernelContext<'_>,
        activation: Activation,
    ) -> Result<(), KernelError> {
        let output = context.outputs.tensor(0)?;
        let range = activation.quantized_range(output.scale(), output.zero_point(), T::LEAST, T::MOST);
        // Elements are widened, which takes as long as four times the bytes.
        let bytes = 4;
        if self.is_maximum {
            self.compute::<T>(context, bytes, LargestQuantized(range))
        } else {
            self.compute::<T>(context, bytes, MeanQuantized(range))
        }
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
