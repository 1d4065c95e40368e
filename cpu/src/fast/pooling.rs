//! AVERAGE_POOL_2D and MAX_POOL_2D over NHWC images: a row of taps at a time, all channels side by side.

use std::ops::Range;

use nnhal::hal::OperandType;
use nnhal::ops::pooling::{arguments, geometry};
use nnhal::ops::windows::WindowGeometry;

use super::depthwise::taps_inside;
use super::parting;
use super::simd::{Instructions, LANES, Work, dispatch};
use super::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::element::Quant8;
use crate::threads::{Effort, Grid};

/// A pooling operation.
#[derive(Debug)]
pub(super) struct PoolingStep {
    /// Whether it takes the largest element; the mean otherwise.
    pub(super) is_maximum: bool,
    /// For the types and layouts that have no fast code.
    pub(super) fallback: Kernel,
}

impl PlannedStep for PoolingStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 pooling",
            OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => "8-bit pooling",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        // Extents of what has no elements need not fit any memory.
        if context.outputs.tensor(0)?.bytes.is_empty() {
            return (self.fallback)(context);
        }
        let geometry = geometry(context.inputs.rules())?;
        let input = context.inputs.tensor(0)?;
        let at = arguments(context.inputs.rules()).activation();
        let activation = Activation::from_code(at, context.inputs.i32(at)?)?;
        // Sums of so many 8-bit elements fit 32 bits.
        let window = u64::from(geometry.vertical.filter) * u64::from(geometry.horizontal.filter);
        if geometry.nchw || window > 1 << 20 {
            return (self.fallback)(context);
        }
        let pool = Pool {
            geometry: &geometry,
            is_maximum: self.is_maximum,
        };
        match input.ty() {
            OperandType::TENSOR_FLOAT32 => {
                let (input, output) = (input.data()?, context.outputs.data(0)?);
                let threads = context.team.threads_for(pool.effort(size_of::<f32>()));
                let grid = pool.grid(threads);
                let none: &mut [u8] = &mut [];
                context
                    .team
                    .for_each_block(threads, &grid, (output, none), |mut block, _| {
                        dispatch(Floats {
                            pool,
                            input,
                            first: block.first_row(),
                            output: block.all(),
                            range: activation.range(),
                        });
                    });
                Ok(())
            }
            OperandType::TENSOR_QUANT8_ASYMM => quantized::<u8>(&pool, context, activation),
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => quantized::<i8>(&pool, context, activation),
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
    batch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    /// Where the window's first row and column would be.
    corner: (i64, i64),
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

    fn effort(&self, element: usize) -> Effort {
        Effort {
            multiply_adds: 0,
            bytes: self.sizes().1.saturating_mul(element as u64),
        }
    }

    /// The output, pixel by pixel.
    fn grid(&self, threads: usize) -> Grid {
        parting::rows(threads, self.sizes().0 as usize, self.channels())
    }

    /// Every window in the order of the output's pixels.
    #[inline(always)]
    fn window(&self, pixel: usize) -> Inside {
        let geometry = self.geometry;
        let (width, height) = (geometry.output.width as usize, geometry.output.height as usize);
        let (y, x) = (pixel / width % height, pixel % width);
        let start = |window: &nnhal::ops::padding::Window, at: usize| {
            at as i64 * i64::from(window.stride) - i64::from(window.head)
        };
        Inside {
            batch: pixel / (width * height),
            rows: taps_inside(&geometry.vertical, y, geometry.input.height),
            columns: taps_inside(&geometry.horizontal, x, geometry.input.width),
            corner: (start(&geometry.vertical, y), start(&geometry.horizontal, x)),
        }
    }

    /// The elements of one row of a window, pixel after pixel.
    #[inline(always)]
    fn row<'i, T>(&self, input: &'i [T], window: &Inside, row: usize) -> &'i [T] {
        let (height, width) = (
            self.geometry.input.height as usize,
            self.geometry.input.width as usize,
        );
        let y = window.corner.0 as isize + row as isize;
        let x = window.corner.1 as isize + window.columns.start as isize;
        let first = ((window.batch * height).wrapping_add_signed(y) * width).wrapping_add_signed(x);
        let channels = self.channels();
        &input[first * channels..][..window.columns.len() * channels]
    }
}

impl Pool<'_> {
    /// The largest values of neighbouring channels in a window. A NaN stays one, wherever in the window it is.
    #[inline(always)]
    fn largest(&self, input: &[f32], window: &Inside, first: usize) -> [f32; LANES] {
        let mut largest = [f32::NEG_INFINITY; LANES];
        for row in window.rows.clone() {
            for pixel in self.row(input, window, row).chunks_exact(self.channels()) {
                let elements = &pixel[first..first + LANES];
                for lane in 0..LANES {
                    let takes = elements[lane] > largest[lane] || elements[lane].is_nan();
                    largest[lane] = if takes { elements[lane] } else { largest[lane] };
                }
            }
        }
        largest
    }
}

struct Floats<'a> {
    pool: Pool<'a>,
    input: &'a [f32],
    /// Some pixels, and which is their first.
    output: &'a mut [f32],
    first: usize,
    range: (f32, f32),
}

impl Work for Floats<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let channels = self.pool.channels();
        let start = if self.pool.is_maximum {
            f32::NEG_INFINITY
        } else {
            0.0
        };
        let (low, high) = self.range;
        for (number, values) in self.output.chunks_exact_mut(channels.max(1)).enumerate() {
            let window = self.pool.window(self.first + number);
            if self.pool.is_maximum && channels >= LANES {
                for group in 0..channels.div_ceil(LANES) {
                    // The last one overlaps the one before it where channels do not fill it.
                    let first = (group * LANES).min(channels - LANES);
                    let largest = self.pool.largest(self.input, &window, first);
                    for (value, most) in values[first..first + LANES].iter_mut().zip(largest) {
                        *value = most.clamp(low, high);
                    }
                }
                continue;
            }
            values.fill(start);
            for row in window.rows.clone() {
                for pixel in self.pool.row(self.input, &window, row).chunks_exact(channels) {
                    if self.pool.is_maximum {
                        for (value, element) in values.iter_mut().zip(pixel) {
                            // A NaN stays one, wherever in the window it is.
                            let takes = *element > *value || element.is_nan();
                            *value = if takes { *element } else { *value };
                        }
                    } else {
                        for (value, element) in values.iter_mut().zip(pixel) {
                            *value += *element;
                        }
                    }
                }
            }
            let count = if self.pool.is_maximum {
                1.0
            } else {
                (window.rows.len() * window.columns.len()) as f32
            };
            for value in values {
                let result = *value / count;
                *value = if result < low {
                    low
                } else if result > high {
                    high
                } else {
                    result
                };
            }
        }
    }
}

fn quantized<T: Quant8>(
    pool: &Pool<'_>,
    context: &mut KernelContext<'_>,
    activation: Activation,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let output = context.outputs.tensor(0)?;
    let range = activation.quantized_range(output.scale(), output.zero_point(), T::LEAST, T::MOST);
    // Elements are widened, which takes as long as four times the bytes.
    let threads = context.team.threads_for(pool.effort(4));
    let [sums] = context
        .scratch
        .carve::<i32, 1>([pool.channels().saturating_mul(threads)])?;
    let (input, output) = (input.data::<T>()?, output.into_data::<T>()?);
    context
        .team
        .for_each_block(threads, &pool.grid(threads), (output, sums), |mut block, sums| {
            dispatch(Quantized {
                pool: *pool,
                input,
                first: block.first_row(),
                output: block.all(),
                sums,
                range,
            });
        });
    Ok(())
}

struct Quantized<'a, T> {
    pool: Pool<'a>,
    input: &'a [T],
    /// Some pixels, and which is their first.
    output: &'a mut [T],
    first: usize,
    sums: &'a mut [i32],
    range: (i32, i32),
}

impl<T: Quant8> Work for Quantized<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let channels = self.pool.channels();
        let start = if self.pool.is_maximum { T::LEAST } else { 0 };
        let (low, high) = self.range;
        for (number, values) in self.output.chunks_exact_mut(channels.max(1)).enumerate() {
            let window = self.pool.window(self.first + number);
            self.sums.fill(start);
            for row in window.rows.clone() {
                for pixel in self.pool.row(self.input, &window, row).chunks_exact(channels) {
                    if self.pool.is_maximum {
                        for (sum, element) in self.sums.iter_mut().zip(pixel) {
                            *sum = (*sum).max(element.to_i32());
                        }
                    } else {
                        for (sum, element) in self.sums.iter_mut().zip(pixel) {
                            *sum += element.to_i32();
                        }
                    }
                }
            }
            let count = if self.pool.is_maximum {
                1
            } else {
                (window.rows.len() * window.columns.len()) as i32
            };
            for (value, sum) in values.iter_mut().zip(self.sums.iter()) {
                // To nearest, ties away from zero.
                let half = if *sum > 0 { count / 2 } else { -(count / 2) };
                *value = T::saturate(((sum + half) / count).clamp(low, high));
            }
        }
    }
}
