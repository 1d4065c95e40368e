//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR.
//!
//! Positions and weights are 32-bit floats for all types, as in the NN HAL reference and the kernels of
//! TFLite that it calls. Positions with few fractional bits would drift from the real ones along wide images.

use half::f16;
use nnhal_hal::OperationType;
use nnhal_hal::ops::resize::{ResizeGeometry, geometry};

use super::blocks::by_element_size;
use super::element::{Float, Quant8, by_element};
use super::image::Image;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::RESIZE_BILINEAR, bilinear),
    (OperationType::RESIZE_NEAREST_NEIGHBOR, nearest_neighbor),
];

/// One axis: from how many pixels to how many, and how positions correspond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    input: usize,
    output: usize,
    align_corners: bool,
    half_pixel_centers: bool,
}

/// The two pixels around a position, and how far it is from the first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between {
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    pub(crate) fraction: f32,
}

impl Axis {
    /// Of rows.
    pub(crate) fn rows(geometry: &ResizeGeometry) -> Axis {
        Axis {
            input: geometry.input.height as usize,
            output: geometry.output.height as usize,
            align_corners: geometry.align_corners,
            half_pixel_centers: geometry.half_pixel_centers,
        }
    }

    /// Of columns.
    pub(crate) fn columns(geometry: &ResizeGeometry) -> Axis {
        Axis {
            input: geometry.input.width as usize,
            output: geometry.output.width as usize,
            ..Axis::rows(geometry)
        }
    }

    /// Extents of input and output between corresponding positions.
    fn spans(&self) -> (usize, usize) {
        if self.align_corners && self.output > 1 {
            (self.input - 1, self.output - 1)
        } else {
            (self.input, self.output)
        }
    }

    fn nearest(&self, index: usize) -> usize {
        let (input, output) = self.spans();
        let scale = input as f32 / output as f32;
        let offset = if self.half_pixel_centers { 0.5 } else { 0.0 };
        let position = (index as f32 + offset) * scale;
        let position = if self.align_corners {
            position.round()
        } else {
            position.floor()
        };
        (position as usize).min(self.input - 1)
    }

    /// The pixels around an output's position.
    pub(crate) fn between(&self, index: usize) -> Between {
        let (input, output) = self.spans();
        let scale = input as f32 / output as f32;
        let position = if self.half_pixel_centers {
            (index as f32 + 0.5) * scale - 0.5
        } else {
            index as f32 * scale
        };
        let last = self.input - 1;
        let lower = (position.floor().max(0.0) as usize).min(last);
        Between {
            lower,
            upper: (position.ceil() as usize).min(last),
            fraction: position - lower as f32,
        }
    }
}

fn bilinear(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    by_element!(context, {
        [f32, f16] => bilinear_float(context),
        [u8, i8] => bilinear_quantized(context),
    })
}

fn bilinear_float<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    interpolate(context, |pixels: [T; 4], row, column| {
        T::from_f32(weighted(pixels.map(T::to_f32), row, column))
    })
}

/// Signed images are interpolated as their unsigned twins, so that both give the same.
fn bilinear_quantized<T: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    interpolate(context, |pixels: [T; 4], row, column| {
        let pixels = pixels.map(|pixel| f32::from(pixel.to_unsigned()));
        // Not negative: 0.5 more and the fraction cut off is rounded to nearest.
        T::from_unsigned((weighted(pixels, row, column) + 0.5) as u8)
    })
}

/// The value between upper left, lower left, upper right and lower right, in the order of TFLite's sum.
#[inline]
fn weighted([upper_left, lower_left, upper_right, lower_right]: [f32; 4], row: f32, column: f32) -> f32 {
    upper_left * (1.0 - row) * (1.0 - column)
        + lower_left * row * (1.0 - column)
        + upper_right * (1.0 - row) * column
        + lower_right * row * column
}

/// Writes what `combine` makes of the four pixels around each output position, given as in [`weighted`].
fn interpolate<T: bytemuck::Pod>(
    context: &mut KernelContext<'_>,
    combine: impl Fn([T; 4], f32, f32) -> T,
) -> Result<(), KernelError> {
    let geometry = geometry(context.inputs.rules())?;
    let (rows, columns) = (Axis::rows(&geometry), Axis::columns(&geometry));
    let input = Image::new(&geometry.input, geometry.nchw);
    let output = Image::new(&geometry.output, geometry.nchw);
    let from = context.inputs.data::<T>(0)?;
    let to = context.outputs.data::<T>(0)?;
    for pixel in output.pixels() {
        let row = rows.between(pixel.row);
        let column = columns.between(pixel.column);
        let corners = [
            (row.lower, column.lower),
            (row.upper, column.lower),
            (row.lower, column.upper),
            (row.upper, column.upper),
        ]
        .map(|(row, column)| input.at(pixel.batch, row, column));
        let at = output.at(pixel.batch, pixel.row, pixel.column);
        for channel in 0..output.channels {
            let pixels = corners.map(|corner| from[corner + channel * input.channel_step]);
            to[at + channel * output.channel_step] = combine(pixels, row.fraction, column.fraction);
        }
    }
    Ok(())
}

fn nearest_neighbor(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let ty = context.inputs.tensor(0)?.ty();
    by_element_size!(ty, nearest(context))
}

fn nearest<T: bytemuck::Pod>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let geometry = geometry(context.inputs.rules())?;
    let (rows, columns) = (Axis::rows(&geometry), Axis::columns(&geometry));
    let input = Image::new(&geometry.input, geometry.nchw);
    let output = Image::new(&geometry.output, geometry.nchw);
    let from = context.inputs.data::<T>(0)?;
    let to = context.outputs.data::<T>(0)?;
    for pixel in output.pixels() {
        let source = input.at(
            pixel.batch,
            rows.nearest(pixel.row),
            columns.nearest(pixel.column),
        );
        let at = output.at(pixel.batch, pixel.row, pixel.column);
        for channel in 0..output.channels {
            to[at + channel * output.channel_step] = from[source + channel * input.channel_step];
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use super::Axis;
    use crate::kernels::testing::OneOperation;

    fn axis(input: usize, output: usize, align_corners: bool, half_pixel_centers: bool) -> Axis {
        Axis {
            input,
            output,
            align_corners,
            half_pixel_centers,
        }
    }

    #[test]
    fn positions_are_inside_whatever_the_sizes() {
        let sizes = [1, 2, 3, 7, 1000, 1 << 26, u32::MAX as usize];
        for (input, output) in sizes.into_iter().flat_map(|a| sizes.map(|b| (a, b))) {
            for (align, half) in [(false, false), (true, false), (false, true)] {
                let axis = axis(input, output, align, half);
                for index in [0, output / 2, output - 1] {
                    assert!(axis.nearest(index) < input);
                    assert!(axis.between(index).lower < input && axis.between(index).upper < input);
                }
            }
        }
    }

    #[test]
    fn corners_coincide_when_aligned() {
        let aligned = axis(3, 5, true, false);
        assert_eq!((aligned.nearest(4), aligned.between(4).lower), (2, 2));
        let between = aligned.between(1);
        assert_eq!((between.lower, between.upper, between.fraction), (0, 1, 0.5));
    }

    #[test]
    fn bytes_of_wide_images_are_the_nearest_to_the_real_results() {
        const INPUT: usize = 766;
        const OUTPUT: usize = 1211;
        let steps: Vec<u8> = (0..INPUT).map(|at| (at * 151) as u8).collect();
        // In doubles, beside which positions in floats are off by less than 1/4096 of a pixel.
        let real = |index: usize| {
            let position = index as f64 * INPUT as f64 / OUTPUT as f64;
            let lower = position as usize;
            let [left, right] = [lower, (lower + 1).min(INPUT - 1)].map(|at| f64::from(steps[at]));
            left + (right - left) * (position - lower as f64)
        };
        for (ty, least) in [
            (T::TENSOR_QUANT8_ASYMM, 0_u8),
            (T::TENSOR_QUANT8_ASYMM_SIGNED, 128),
        ] {
            let image = |width| Operand::new(ty, &[1, 1, width, 1]).with_quantization(0.5, 7);
            let bytes: Vec<u8> = steps.iter().map(|step| step.wrapping_sub(least)).collect();
            let (_, found) = OneOperation::new(OperationType::RESIZE_BILINEAR)
                .operand(image(INPUT as u32), &bytes)
                .i32(OUTPUT as i32)
                .i32(1)
                .output_operand(image(0))
                .run_one::<u8>()
                .unwrap();
            assert_eq!(found.len(), OUTPUT);
            for (index, found) in found.iter().enumerate() {
                let (found, real) = (f64::from(found.wrapping_add(least)), real(index));
                assert!((found - real).abs() < 0.6, "{ty} at {index}: {found}, not {real}");
            }
        }
    }

    fn resize(operation: OperationType, width: f32, height: f32) -> Result<(Vec<u32>, Vec<f32>), String> {
        OneOperation::new(operation)
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 2, 1], &[1.0_f32, 3.0])
            .f32(width)
            .f32(height)
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()
    }

    #[test]
    fn factors_round_sizes_down() {
        let (dims, data) = resize(OperationType::RESIZE_BILINEAR, 2.4, 1.9).unwrap();
        assert_eq!((dims, data), (vec![1, 1, 4, 1], vec![1.0, 2.0, 3.0, 3.0]));
        let (_, data) = resize(OperationType::RESIZE_NEAREST_NEIGHBOR, 2.0, 1.0).unwrap();
        assert_eq!(data, [1.0, 1.0, 3.0, 3.0]);
    }

    #[test]
    fn hostile_sizes_give_an_error() {
        for factor in [0.0, 0.4, -1.0, f32::NAN, f32::INFINITY, 1e30] {
            let error = resize(OperationType::RESIZE_BILINEAR, factor, 1.0).unwrap_err();
            assert!(error.contains("must make at least 1"), "{error}");
        }
        let by_shape = |width: i32, flags: [u8; 3]| {
            flags
                .iter()
                .fold(
                    OneOperation::new(OperationType::RESIZE_NEAREST_NEIGHBOR)
                        .tensor(T::TENSOR_FLOAT32, &[1, 1, 2, 1], &[1.0_f32, 3.0])
                        .i32(width)
                        .i32(1),
                    |operation, flag| operation.tensor(T::BOOL, &[], &[*flag]),
                )
                .output(T::TENSOR_FLOAT32, &[0; 4])
                .run()
        };
        assert!(by_shape(4, [0, 1, 0]).is_ok());
        assert!(by_shape(0, [0, 0, 0]).is_err());
        assert!(by_shape(i32::MIN, [0, 0, 0]).is_err());
        assert!(by_shape(i32::MAX, [0, 0, 0]).is_err());
        assert!(by_shape(4, [0, 1, 1]).is_err());
    }
}
