//! AVERAGE_POOL_2D, L2_POOL_2D and MAX_POOL_2D: only positions inside the image count.
//!
//! A quantised mean is rounded to nearest; ties go up for the unsigned type and away from zero for the signed
//! one, so that the two can be one step from the 128 that lie between other results. Source: TFLite's
//! reference kernels for AVERAGE_POOL_2D, which the NN HAL reference calls.

use std::ops::Range;

use half::f16;
use nnhal_hal::ops::pooling::{arguments, geometry};
use nnhal_hal::ops::windows::WindowGeometry;
use nnhal_hal::{OperationType, tflite};

use super::activation_range::{Activation, clamp};
use super::convolution::taps;
use super::element::{Float, Quantized, by_element};
use super::image::{Image, Pixel, Taps};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::AVERAGE_POOL_2D, |context| {
        pool(context, Pool::Average)
    }),
    (OperationType::L2_POOL_2D, |context| pool(context, Pool::L2)),
    (OperationType::MAX_POOL_2D, |context| pool(context, Pool::Max)),
    (tflite::AVERAGE_POOL_2D, |context| pool(context, Pool::Average)),
    (tflite::MAX_POOL_2D, |context| pool(context, Pool::Max)),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Average,
    L2,
    Max,
}

fn pool(context: &mut KernelContext<'_>, pool: Pool) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => float(context, pool),
        [u8, i8, i16] => quantized(context, pool),
    })
}

fn activation(context: &KernelContext<'_>) -> Result<Activation, KernelError> {
    let at = arguments(context.inputs.rules()).activation();
    Ok(Activation::from_code(at, context.inputs.i32(at)?)?)
}

fn float<T: Float>(context: &mut KernelContext<'_>, pool: Pool) -> Result<(), KernelError> {
    let range = activation(context)?.range();
    let start = if pool == Pool::Max { f32::NEG_INFINITY } else { 0.0 };
    for_each_window::<T, f32>(
        context,
        start,
        |value, element| {
            let element = element.to_f32();
            match pool {
                Pool::Average => value + element,
                Pool::L2 => value + element * element,
                // A NaN stays one, wherever in the window it is.
                Pool::Max if element > value || element.is_nan() => element,
                Pool::Max => value,
            }
        },
        |value, count| {
            let result = match pool {
                Pool::Average => value / count as f32,
                Pool::L2 => (value / count as f32).sqrt(),
                Pool::Max => value,
            };
            T::from_f32(clamp(result, range))
        },
    )
}

fn quantized<T: Quantized>(context: &mut KernelContext<'_>, pool: Pool) -> Result<(), KernelError> {
    let output = context.outputs.tensor(0)?;
    let (scale, zero_point) = (output.scale(), output.zero_point());
    let (low, high) = activation(context)?.quantized_range(scale, zero_point, T::LEAST, T::MOST);
    let start = if pool == Pool::Max { T::LEAST } else { 0 };
    for_each_window::<T, i64>(
        context,
        i64::from(start),
        |value, element| {
            let element = i64::from(element.to_i32());
            if pool == Pool::Max {
                value.max(element)
            } else {
                value + element
            }
        },
        |value, count| {
            let result = if pool == Pool::Max {
                value
            } else {
                rounded_mean(value, count as i64)
            };
            // Within the type: the largest or the mean of its elements.
            T::saturate((result as i32).clamp(low, high))
        },
    )
}

/// The mean of `count` elements, rounded to nearest, ties away from zero.
fn rounded_mean(sum: i64, count: i64) -> i64 {
    if sum > 0 {
        (sum + count / 2) / count
    } else {
        (sum - count / 2) / count
    }
}

/// Folds every window, channel by channel, and writes what `finish` makes of the fold and the number of
/// elements.
fn for_each_window<T: bytemuck::Pod, V: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    start: V,
    fold: impl Fn(V, T) -> V,
    finish: impl Fn(V, usize) -> T,
) -> Result<(), KernelError> {
    let geometry = geometry(context.inputs.rules())?;
    let windows = Windows::new(&geometry);
    let data = context.inputs.data::<T>(0)?;
    let output = context.outputs.data::<T>(0)?;
    // An image that there is none of may have as many channels as there can be.
    if output.is_empty() {
        return Ok(());
    }
    let [values] = context.scratch.carve::<V, 1>([windows.input.channels])?;
    for pixel in windows.output.pixels() {
        values.fill(start);
        let count = windows.fold(data, &pixel, values, &fold);
        let at = windows.output.at(pixel.batch, pixel.row, pixel.column);
        for (channel, value) in values.iter().enumerate() {
            output[at + channel * windows.output.channel_step] = finish(*value, count);
        }
    }
    Ok(())
}

struct Windows<'a> {
    geometry: &'a WindowGeometry,
    input: Image,
    output: Image,
}

impl<'a> Windows<'a> {
    fn new(geometry: &'a WindowGeometry) -> Windows<'a> {
        Windows {
            geometry,
            input: Image::new(&geometry.input, geometry.nchw),
            output: Image::new(&geometry.output, geometry.nchw),
        }
    }

    /// Folds what the window of an output pixel sees into `values`, one for each channel, and returns how
    /// many elements of each channel it saw.
    fn fold<T: Copy, V: Copy>(
        &self,
        data: &[T],
        pixel: &Pixel,
        values: &mut [V],
        fold: impl Fn(V, T) -> V,
    ) -> usize {
        let rows = inside(taps(&self.geometry.vertical, pixel.row), self.input.height);
        let columns = inside(taps(&self.geometry.horizontal, pixel.column), self.input.width);
        for row in rows.clone() {
            for column in columns.clone() {
                let seen = &data[self.input.at(pixel.batch, row, column)..];
                if self.input.channel_step == 1 {
                    for (value, element) in values.iter_mut().zip(seen) {
                        *value = fold(*value, *element);
                    }
                } else {
                    for (value, element) in values
                        .iter_mut()
                        .zip(seen.iter().step_by(self.input.channel_step))
                    {
                        *value = fold(*value, *element);
                    }
                }
            }
        }
        rows.len() * columns.len()
    }
}

/// The positions inside an image that neighbouring taps look at.
fn inside(taps: Taps, extent: usize) -> Range<usize> {
    let below = |position: i64| usize::try_from(position).unwrap_or(0).min(extent);
    below(taps.first)..below(taps.first + taps.count as i64)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use super::rounded_mean;
    use crate::kernels::testing::OneOperation;

    #[test]
    fn means_round_ties_away_from_zero() {
        assert_eq!(rounded_mean(5, 2), 3);
        assert_eq!(rounded_mean(-5, 2), -3);
        assert_eq!(rounded_mean(-4, 3), -1);
    }

    fn pool(operation: OperationType, arguments: &[i32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        arguments
            .iter()
            .fold(
                OneOperation::new(operation).tensor(T::TENSOR_FLOAT32, &[1, 1, 3, 1], &[3.0_f32, -4.0, 5.0]),
                |operation, value| operation.i32(*value),
            )
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()
    }

    #[test]
    fn padding_does_not_count() {
        let same = [1, 1, 1, 3, 1, 0];
        let at = |operation| pool(operation, &same).unwrap().1;
        assert_eq!(at(OperationType::AVERAGE_POOL_2D), [-0.5, 4.0 / 3.0, 0.5]);
        assert_eq!(at(OperationType::MAX_POOL_2D), [3.0, 5.0, 5.0]);
        assert_eq!(at(OperationType::L2_POOL_2D)[0], 12.5_f32.sqrt());
    }

    #[test]
    fn hostile_window_arguments_give_an_error() {
        for arguments in [
            [1, 1, 1, 0, 1, 0],
            [1, 1, 1, -1, 1, 0],
            [2, 1, 1, i32::MAX, 1, 0],
            [2, 1, 1, 1, 2, 0],
            [1, 0, 1, 1, 1, 0],
            [9, 1, 1, 1, 1, 0],
            [1, 1, 1, 1, 1, 9],
        ] {
            assert!(
                pool(OperationType::MAX_POOL_2D, &arguments).is_err(),
                "{arguments:?}"
            );
        }
        // The window would lie in the padding as a whole.
        let error = pool(OperationType::AVERAGE_POOL_2D, &[2, 0, 0, 0, 1, 1, 2, 1, 0]).unwrap_err();
        assert!(error.contains("must be below 2"), "{error}");
    }

    #[test]
    fn windows_as_large_as_32_bits_allow_are_pooled() {
        let (dims, data) = pool(OperationType::MAX_POOL_2D, &[1, 1, 1, i32::MAX, i32::MAX, 0]).unwrap();
        assert_eq!((dims, data), (vec![1, 1, 3, 1], vec![5.0; 3]));
    }

    #[test]
    fn quantisation_must_not_change() {
        let quantized = |scale| Operand {
            scale,
            ..Operand::new(T::TENSOR_QUANT8_ASYMM, &[1, 1, 1, 1])
        };
        let error = [2, 1, 1, 1, 1, 0]
            .into_iter()
            .fold(
                OneOperation::new(OperationType::MAX_POOL_2D).operand(quantized(0.5), &[1_u8]),
                OneOperation::i32,
            )
            .output_operand(quantized(0.25))
            .run()
            .unwrap_err();
        assert!(error.contains("must have those of input 0"), "{error}");
    }

    #[test]
    fn sixteen_bit_steps_are_pooled() {
        let of = |operation| {
            let steps = Operand::new(T::TENSOR_QUANT16_SYMM, &[1, 1, 3, 1]).with_quantization(0.5, 0);
            [1, 1, 1, 3, 1, 0]
                .into_iter()
                .fold(
                    OneOperation::new(operation).operand(steps.clone(), &[30_000_i16, -301, -32_768]),
                    OneOperation::i32,
                )
                .output_operand(steps)
                .run_one::<i16>()
                .unwrap()
                .1
        };
        assert_eq!(of(tflite::MAX_POOL_2D), [30_000, 30_000, -301]);
        assert_eq!(of(tflite::AVERAGE_POOL_2D), [14_850, -1023, -16_535]);
    }
}
