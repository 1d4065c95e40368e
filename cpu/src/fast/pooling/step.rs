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
use crate::threads::Cost;

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
            OperandType::TENSOR_FLOAT32 => pool.floats(context, activation),
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

    /// Elements of all windows together.
    fn elements(&self) -> u64 {
        let (geometry, product) = (self.geometry, |left: u64, right: u32| {
            left.saturating_mul(right.into())
        });
        let output = [
            geometry.output.batch,
            geometry.output.height,
            geometry.output.width,
        ];
        let window = [
            geometry.vertical.filter,
            geometry.horizontal.filter,
            geometry.input.channels,
        ];
        output.into_iter().chain(window).fold(1, product)
    }

    fn cost(&self, element: usize) -> Cost {
        Cost {
            multiply_adds: 0,
            bytes: self.elements().saturating_mul(element as u64),
        }
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

/// How elements of a window become one: what is accumulated of each channel is combined with each pixel in
/// turn. Functions of a few instructions, so that they are inlined.
#[derive(Clone, Copy)]
struct Accumulate<A, C, F> {
    /// Before the first pixel.
    start: A,
    combine: C,
    /// What is stored of so many pixels.
    finish: F,
}

/// Some pixels of the output.
struct Pixels<'a, T, A, C, F> {
    pool: Pool<'a>,
    input: &'a [T],
    output: &'a mut [T],
    /// Which pixel is the first.
    first: usize,
    accumulate: Accumulate<A, C, F>,
}

impl<T: Copy, A: Copy, C: Fn(A, T) -> A, F: Fn(A, usize) -> T> Work for Pixels<'_, T, A, C, F> {
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
struct Source<'a, T, A, C, F> {
    pool: &'a Pool<'a>,
    input: &'a [T],
    window: Inside,
    accumulate: &'a Accumulate<A, C, F>,
}

impl<T: Copy, A: Copy, C: Fn(A, T) -> A, F: Fn(A, usize) -> T> Source<'_, T, A, C, F> {
    /// Computes `N` neighbouring channels.
    #[inline(always)]
    fn channels<const N: usize>(&self, first: usize, values: &mut [T]) {
        let Inside {
            rows,
            columns,
            first: corner,
        } = self.window;
        let (channels, width) = (self.pool.channels(), self.pool.geometry.input.width as usize);
        let mut sums = [self.accumulate.start; N];
        for row in 0..rows {
            let pixels = &self.input[(corner + row * width) * channels..][..columns * channels];
            for column in 0..columns {
                // A loop of known length, so that sums stay in registers: with a length that is looked up
                // they are in memory, where each step waits for the one before.
                let elements: &[T; N] = neighbours(pixels, column * channels + first);
                for lane in 0..N {
                    sums[lane] = (self.accumulate.combine)(sums[lane], elements[lane]);
                }
            }
        }
        for (value, sum) in values[first..first + N].iter_mut().zip(sums) {
            *value = (self.accumulate.finish)(sum, rows * columns);
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

impl Pool<'_> {
    /// Computes the output from elements that take so many bytes when they are accumulated.
    fn compute<T, A, C, F>(
        &self,
        context: &mut KernelContext<'_>,
        bytes: usize,
        accumulate: Accumulate<A, C, F>,
    ) -> Result<(), KernelError>
    where
        T: Pod + Send + Sync,
        A: Copy + Sync,
        C: Fn(A, T) -> A + Copy + Sync,
        F: Fn(A, usize) -> T + Copy + Sync,
    {
        let (input, output) = (context.inputs.data::<T>(0)?, context.outputs.data::<T>(0)?);
        let (cost, channels) = (self.cost(bytes), self.channels());
        partition::for_each_part((context.team, cost), (output, channels), |elements, output| {
            dispatch(Pixels {
                pool: *self,
                input,
                first: elements.start / channels,
                output,
                accumulate,
            });
        });
        Ok(())
    }

    fn floats(&self, context: &mut KernelContext<'_>, activation: Activation) -> Result<(), KernelError> {
        let (bytes, (low, high)) = (size_of::<f32>(), activation.range());
        if self.is_maximum {
            let largest = Accumulate {
                start: f32::NEG_INFINITY,
                // A NaN stays one, wherever in the window it is.
                combine: |largest, element: f32| {
                    let takes = element > largest || element.is_nan();
                    if takes { element } else { largest }
                },
                finish: move |largest, _| clamp(largest, low, high),
            };
            return self.compute(context, bytes, largest);
        }
        let mean = Accumulate {
            start: 0.0,
            combine: |sum, element: f32| sum + element,
            finish: move |sum, pixels| clamp(sum / pixels as f32, low, high),
        };
        self.compute(context, bytes, mean)
    }

    fn quantized<T: Quant8>(
        &self,
        context: &mut KernelContext<'_>,
        activation: Activation,
    ) -> Result<(), KernelError> {
        let output = context.outputs.tensor(0)?;
        let (scale, zero_point) = (output.scale(), output.zero_point());
        let (low, high) = activation.quantized_range(scale, zero_point, T::LEAST, T::MOST);
        // Elements are widened, which takes as long as four times the bytes.
        let bytes = 4;
        if self.is_maximum {
            let largest = Accumulate {
                start: T::LEAST,
                combine: |largest: i32, element: T| largest.max(element.to_i32()),
                finish: move |largest: i32, _| T::saturate(largest.clamp(low, high)),
            };
            return self.compute(context, bytes, largest);
        }
        let mean = Accumulate {
            start: 0,
            combine: |sum, element: T| sum + element.to_i32(),
            // To nearest, ties away from zero.
            finish: move |sum: i32, pixels| {
                let count = pixels as i32;
                let half = if sum > 0 { count / 2 } else { -(count / 2) };
                T::saturate(((sum + half) / count).clamp(low, high))
            },
        };
        self.compute(context, bytes, mean)
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
