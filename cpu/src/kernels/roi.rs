//! ROI_ALIGN and ROI_POOLING: regions of an image, all at the same size.
//!
//! Each region is divided into as many bins as the output has pixels. ROI_ALIGN gives the mean of samples
//! inside the bin, each interpolated between pixels; ROI_POOLING the largest of the pixels that the bin
//! touches.

use nnhal_hal::OperationType;
use nnhal_hal::ops::OpError;
use nnhal_hal::ops::roi::{RegionGeometry, align_geometry, pooling_geometry};

use half::f16;

use super::boxes::{BOX_LENGTH, Corners, image_of, narrow, widen};
use super::element::{Float, Quantized, by_element};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ROI_ALIGN, align),
    (OperationType::ROI_POOLING, pool),
];

/// A region along one axis, in pixels.
#[derive(Clone, Copy)]
struct Span {
    start: f32,
    bin: f32,
    extent: usize,
}

impl Span {
    /// The `bins` bins between two places, at least a pixel apart, of an axis with `extent` pixels.
    fn new(start: f32, end: f32, bins: usize, extent: usize) -> Span {
        Span {
            start,
            bin: (end - start).max(1.0) / bins as f32,
            extent,
        }
    }

    /// How many samples a bin has if the caller does not say: one for each pixel begun.
    fn samples(&self, asked: Option<u32>) -> f32 {
        asked.map_or_else(|| self.bin.ceil(), |asked| asked as f32)
    }

    /// The samples of bin `index` that lie on the image or less than a pixel before it. Others count as 0.
    fn samples_inside(&self, index: usize, count: f32) -> impl Iterator<Item = Between> + use<> {
        let Span { start, bin, extent } = *self;
        let step = bin / count;
        let first = start + bin * index as f32 + step / 2.0;
        // Samples beyond the image's end need no look: there can be very many of them.
        let inside = ((extent as f32 - first) / step).floor() + 1.0;
        let taken = inside.clamp(0.0, count) as usize;
        (0..taken)
            .map(move |sample| first + sample as f32 * step)
            .filter(move |place| (-1.0..=extent as f32).contains(place))
            .map(move |place| Between::new(place, extent))
    }

    /// No bin has more samples inside the image than this.
    fn most_samples(&self, count: f32) -> usize {
        let step = self.bin / count;
        (((self.extent + 1) as f32 / step).ceil() as usize).min(count as usize)
    }

    /// The pixels that bin `index` touches.
    fn pixels(&self, index: usize) -> std::ops::Range<usize> {
        let extent = self.extent as f32;
        let low = (self.start + self.bin * index as f32).floor().clamp(0.0, extent);
        let high = (self.start + self.bin * (index + 1) as f32)
            .ceil()
            .clamp(0.0, extent);
        low as usize..high as usize
    }
}

/// A place between two pixels of an axis.
#[derive(Clone, Copy)]
struct Between {
    lower: usize,
    upper: usize,
    fraction: f32,
}

impl Between {
    fn new(place: f32, extent: usize) -> Between {
        let place = place.max(0.0);
        let lower = place.floor() as usize;
        if lower + 1 < extent {
            Between {
                lower,
                upper: lower + 1,
                fraction: place - lower as f32,
            }
        } else {
            Between {
                lower: extent - 1,
                upper: extent - 1,
                fraction: 0.0,
            }
        }
    }
}

/// Box `at`, which must lie right and below of the image's origin.
fn region(numbers: &[f32; BOX_LENGTH], at: usize) -> Result<Corners, KernelError> {
    let region = Corners::new(*numbers).ordered(at, 1)?;
    if region.low.iter().any(|place| *place < 0.0) {
        let message = format!("(rois) has {numbers:?} as box {at}, must not be negative");
        return Err(OpError::input(1, message).into());
    }
    Ok(region)
}

fn align(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let (geometry, [row_samples, column_samples]) = align_geometry(context.inputs.rules())?;
    let image = Image::new(&geometry.input, geometry.nchw);
    let result = Image::new(&geometry.output, geometry.nchw);
    let batch_split = context.inputs.data::<i32>(2)?;
    let mut pace = context.pace();
    let [pixels, boxes, sums] =
        context
            .scratch
            .carve::<f32, 3>([image.elements(), result.batch * BOX_LENGTH, result.channels])?;
    widen(&context.inputs.tensor(0)?, pixels)?;
    widen(&context.inputs.tensor(1)?, boxes)?;
    let (boxes, _) = boxes.as_chunks::<BOX_LENGTH>();
    let mut output = context.outputs.tensor(0)?;
    for (at, numbers) in boxes.iter().enumerate() {
        let batch = image_of(batch_split, at, 2, image.batch)?;
        let region = region(numbers, at)?;
        let [rows, columns] = spans(&geometry, &region, &result);
        let (high, wide) = (rows.samples(row_samples), columns.samples(column_samples));
        let samples = high * wide;
        for (row, column) in bins(&result) {
            sums.fill(0.0);
            for vertical in rows.samples_inside(row, high) {
                pace.work(columns.most_samples(wide).saturating_mul(sums.len()))?;
                for horizontal in columns.samples_inside(column, wide) {
                    add_sample(pixels, &image, batch, (vertical, horizontal), sums);
                }
            }
            let mean = sums.iter().map(|sum| sum / samples);
            write_pixel(&mut output, &result, (at, row, column), mean)?;
        }
    }
    Ok(())
}

/// Rows and columns of all bins of a region.
fn bins(result: &Image) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (height, width) = (result.height, result.width);
    (0..height).flat_map(move |row| (0..width).map(move |column| (row, column)))
}

/// The spans of a region along the height and the width.
fn spans(geometry: &RegionGeometry, region: &Corners, result: &Image) -> [Span; 2] {
    let [left, right] = [region.low[0], region.high[0]].map(|place| place / geometry.width_stride);
    let [top, bottom] = [region.low[1], region.high[1]].map(|place| place / geometry.height_stride);
    [
        Span::new(top, bottom, result.height, geometry.input.height as usize),
        Span::new(left, right, result.width, geometry.input.width as usize),
    ]
}

#[inline]
fn add_sample(
    pixels: &[f32],
    image: &Image,
    batch: usize,
    (row, column): (Between, Between),
    sums: &mut [f32],
) {
    let corners = [
        (
            row.lower,
            column.lower,
            (1.0 - row.fraction) * (1.0 - column.fraction),
        ),
        (row.lower, column.upper, (1.0 - row.fraction) * column.fraction),
        (row.upper, column.lower, row.fraction * (1.0 - column.fraction)),
        (row.upper, column.upper, row.fraction * column.fraction),
    ]
    .map(|(row, column, weight)| (image.at(batch, row, column), weight));
    for (channel, sum) in sums.iter_mut().enumerate() {
        let offset = channel * image.channel_step;
        *sum += corners
            .iter()
            .map(|(at, weight)| pixels[at + offset] * weight)
            .sum::<f32>();
    }
}

/// Writes all channels of a pixel of the output.
fn write_pixel(
    output: &mut crate::kernel::TensorMut<'_>,
    result: &Image,
    (region, row, column): (usize, usize, usize),
    values: impl Iterator<Item = f32>,
) -> Result<(), KernelError> {
    let at = result.at(region, row, column);
    if result.channel_step == 1 {
        return narrow(output, at, values.take(result.channels));
    }
    for (channel, value) in values.enumerate() {
        narrow(output, at + channel * result.channel_step, std::iter::once(value))?;
    }
    Ok(())
}

fn pool(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let zero = context.inputs.tensor(0)?.zero_point();
    by_element!(context, {
        [f32, f16] => pool_of(context, Float::from_f32(0.0)),
        [u8, i8] => pool_of(context, Quantized::saturate(zero)),
    })
}

/// Bins without pixels give `zero`.
fn pool_of<T: bytemuck::Pod + PartialOrd>(
    context: &mut KernelContext<'_>,
    zero: T,
) -> Result<(), KernelError> {
    let geometry = pooling_geometry(context.inputs.rules())?;
    let image = Image::new(&geometry.input, geometry.nchw);
    let result = Image::new(&geometry.output, geometry.nchw);
    let batch_split = context.inputs.data::<i32>(2)?;
    let pixels = context.inputs.data::<T>(0)?;
    let mut pace = context.pace();
    let [boxes] = context.scratch.carve::<f32, 1>([result.batch * BOX_LENGTH])?;
    widen(&context.inputs.tensor(1)?, boxes)?;
    let (boxes, _) = boxes.as_chunks::<BOX_LENGTH>();
    let output = context.outputs.data::<T>(0)?;
    for (at, numbers) in boxes.iter().enumerate() {
        let batch = image_of(batch_split, at, 2, image.batch)?;
        let region = region(numbers, at)?;
        let [rows, columns] = pooled_spans(&geometry, &region, &result);
        for (row, column) in bins(&result) {
            let (rows, columns) = (rows.pixels(row), columns.pixels(column));
            let to = result.at(at, row, column);
            pace.work(
                rows.len()
                    .saturating_mul(columns.len())
                    .saturating_mul(result.channels),
            )?;
            for channel in 0..result.channels {
                let values = rows.clone().flat_map(|row| {
                    columns
                        .clone()
                        .map(move |column| image.at(batch, row, column) + channel * image.channel_step)
                });
                let largest = values
                    .map(|at| pixels[at])
                    .reduce(|best, value| if value > best { value } else { best });
                output[to + channel * result.channel_step] = largest.unwrap_or(zero);
            }
        }
    }
    Ok(())
}

/// The spans of a region whose borders are pixels, the last one inside.
fn pooled_spans(geometry: &RegionGeometry, region: &Corners, result: &Image) -> [Span; 2] {
    let mut region = *region;
    let strides = [geometry.width_stride, geometry.height_stride];
    for axis in [0, 1] {
        region.low[axis] = (region.low[axis] / strides[axis]).round();
        region.high[axis] = (region.high[axis] / strides[axis]).round() + 1.0;
    }
    let in_pixels = RegionGeometry {
        height_stride: 1.0,
        width_stride: 1.0,
        ..*geometry
    };
    spans(&in_pixels, &region, result)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType as T, OperationType};

    use super::Span;
    use crate::kernels::testing::OneOperation;

    struct Call {
        region: [f32; 4],
        batch: i32,
        bins: i32,
        stride: f32,
        samples: i32,
    }

    const CALL: Call = Call {
        region: [0.0, 0.0, 4.0, 4.0],
        batch: 0,
        bins: 1,
        stride: 2.0,
        samples: 0,
    };

    fn regions(operation: OperationType, call: &Call) -> Result<Vec<f32>, String> {
        let mut one = OneOperation::new(operation)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0])
            .tensor(T::TENSOR_FLOAT32, &[1, 4], &call.region)
            .tensor(T::TENSOR_INT32, &[1], &[call.batch])
            .i32(call.bins)
            .i32(call.bins)
            .f32(call.stride)
            .f32(call.stride);
        if operation == OperationType::ROI_ALIGN {
            one = one.i32(call.samples).i32(call.samples);
        }
        let (_, data) = one
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()?;
        Ok(data)
    }

    #[test]
    fn the_whole_image_gives_its_largest_pixel_and_a_mean() {
        assert_eq!(regions(OperationType::ROI_POOLING, &CALL), Ok(vec![4.0]));
        // Samples at 0.5 and 1.5, the second beyond the centre of the last pixel.
        assert_eq!(regions(OperationType::ROI_ALIGN, &CALL), Ok(vec![3.25]));
    }

    #[test]
    fn a_region_far_larger_than_the_image_is_sampled_only_inside() {
        let far = Call {
            region: [0.0, 0.0, 1e30, 1e30],
            ..CALL
        };
        assert!(regions(OperationType::ROI_ALIGN, &far).is_ok());
        assert_eq!(regions(OperationType::ROI_POOLING, &far), Ok(vec![4.0]));
    }

    #[test]
    fn samples_are_between_pixels_that_exist() {
        for (start, end) in [(0.0, 1.0), (0.0, 1e38), (1e30, 3e30), (6.5, 7.0)] {
            for bins in [1, 3, 1 << 20] {
                let span = Span::new(start, end, bins, 7);
                for index in [0, bins / 2, bins - 1] {
                    for asked in [None, Some(1), Some(1024)] {
                        let count = span.samples(asked);
                        assert!(
                            span.samples_inside(index, count)
                                .all(|between| between.lower < 7 && between.upper < 7)
                        );
                    }
                    assert!(span.pixels(index).end <= 7);
                }
            }
        }
    }

    #[test]
    fn hostile_values_give_an_error() {
        for operation in [OperationType::ROI_ALIGN, OperationType::ROI_POOLING] {
            let refuses = |call: Call| assert!(regions(operation, &call).is_err());
            for batch in [-1, 1, i32::MAX, i32::MIN] {
                refuses(Call { batch, ..CALL });
            }
            for region in [
                [0.0, 0.0, f32::NAN, 1.0],
                [0.0, 0.0, f32::INFINITY, 1.0],
                [-1.0, 0.0, 1.0, 1.0],
                [2.0, 0.0, 1.0, 1.0],
            ] {
                refuses(Call { region, ..CALL });
            }
            for bins in [0, -1, i32::MAX] {
                refuses(Call { bins, ..CALL });
            }
            for stride in [0.0, -1.0, f32::NAN, f32::INFINITY] {
                refuses(Call { stride, ..CALL });
            }
        }
        for samples in [-1, i32::MAX] {
            assert!(regions(OperationType::ROI_ALIGN, &Call { samples, ..CALL }).is_err());
        }
    }
}
