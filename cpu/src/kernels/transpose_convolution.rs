//! TRANSPOSE_CONV_2D, as one ordinary convolution for each phase of the stride: outputs a whole number of
//! strides apart see the same taps of the filter.

use nnhal_hal::ops::transpose_convolution::{TransposedGeometry, TransposedWindow, activation, geometry};
use nnhal_hal::{OperationType, tflite};

use super::filters::{Filters, TILE, filter_size, for_each_tile};
use super::image::{Image, Taps, gather};
use super::layer::{self, Arithmetic, Layer, LayerScratch, ScratchLengths};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::TRANSPOSE_CONV_2D, transpose_convolution),
    (tflite::TRANSPOSE_CONV_2D, transpose_convolution),
];

fn transpose_convolution(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let geometry = geometry(rules)?;
    let activation = activation(rules);
    let layer = TransposeConvolution {
        input: Image::new(&geometry.input, geometry.nchw),
        output: Image::new(&geometry.output, geometry.nchw),
        geometry,
    };
    layer::compute(context, activation, layer.output.channels, &layer)
}

/// Outputs along one axis that see the same taps of the filter: tap `tap(index)` looks at the input `index`
/// before that of tap 0.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first output.
    first: usize,
    stride: usize,
    head: usize,
    /// How many taps the outputs see.
    taps: usize,
}

impl Phase {
    fn new(window: &TransposedWindow, first: usize) -> Phase {
        let (filter, stride, head) = (
            window.filter as usize,
            window.stride as usize,
            window.head as usize,
        );
        let first_tap = (first + head) % stride;
        Phase {
            first,
            stride,
            head,
            taps: filter.saturating_sub(first_tap).div_ceil(stride),
        }
    }

    /// All phases along an axis with `extent` outputs.
    fn all(window: &TransposedWindow, extent: usize) -> impl Iterator<Item = Phase> + use<> {
        let window = *window;
        (0..extent.min(window.stride as usize)).map(move |first| Phase::new(&window, first))
    }

    fn tap(&self, index: usize) -> usize {
        (self.first + self.head) % self.stride + index * self.stride
    }

    /// What output `index` of the phase's outputs looks at.
    fn positions(&self, index: usize) -> Taps {
        Taps {
            first: ((index + self.head) / self.stride) as i64,
            step: -1,
            count: self.taps,
        }
    }

    fn outputs(&self, extent: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
        (self.first..extent).step_by(self.stride)
    }
}

struct TransposeConvolution {
    input: Image,
    output: Image,
    geometry: TransposedGeometry,
}

impl TransposeConvolution {
    /// Computes the outputs of one phase along each axis.
    fn compute_phase<A: Arithmetic>(
        &self,
        (rows, columns): (&Phase, &Phase),
        arithmetic: &A,
        (input, weights): (&[A::Input], &[A::Weight]),
        output: &mut [A::Output],
        (scratch, pace): (&mut LayerScratch<'_, A::Operand>, &mut Pace<'_>),
    ) -> Result<(), KernelError> {
        let depth = self.input.channels;
        let length = rows.taps * columns.taps * depth;
        let pixels = self.output.pixels_at(
            rows.outputs(self.output.height),
            columns.outputs(self.output.width),
        );
        if length == 0 {
            for pixel in pixels {
                let at = self.output.at(pixel.batch, pixel.row, pixel.column);
                for channel in 0..self.output.channels {
                    output[at + channel * self.output.channel_step] =
                        arithmetic.finish(channel, bytemuck::Zeroable::zeroed());
                }
            }
            return Ok(());
        }
        let (filter_height, filter_width) = (
            self.geometry.vertical.filter as usize,
            self.geometry.horizontal.filter as usize,
        );
        let channels = self.output.channels;
        let size = filter_size(channels, length);
        let filters = Filters::new(
            arithmetic,
            &mut scratch.weights[..size],
            length,
            0..channels,
            |channel, index| {
                let (tap, from) = (index / depth, index % depth);
                let (row, column) = (rows.tap(tap / columns.taps), columns.tap(tap % columns.taps));
                weights[((channel * filter_height + row) * filter_width + column) * depth + from]
            },
        );
        for_each_tile(pixels, |pixels| {
            for (patch, pixel) in scratch.patches.chunks_exact_mut(length).zip(pixels) {
                let seen = (rows.positions(pixel.row), columns.positions(pixel.column));
                let image = (input, &self.input);
                gather(image, pixel.batch, seen, &(0..depth), patch, |element| {
                    arithmetic.input(element)
                });
            }
            filters.apply(scratch.patches, pixels, (&mut *output, &self.output), pace)
        })
    }
}

impl Layer for TransposeConvolution {
    fn scratch(&self) -> ScratchLengths {
        // The phase of tap 0 has as many taps as any.
        let most = |window: &TransposedWindow| window.filter.div_ceil(window.stride) as usize;
        let length = most(&self.geometry.vertical) * most(&self.geometry.horizontal) * self.input.channels;
        ScratchLengths {
            patches: TILE * length,
            weights: filter_size(self.output.channels, length),
            sums: 0,
        }
    }

    fn compute<A: Arithmetic>(
        &self,
        arithmetic: &A,
        input: &[A::Input],
        weights: &[A::Weight],
        output: &mut [A::Output],
        (mut scratch, pace): (LayerScratch<'_, A::Operand>, &mut Pace<'_>),
    ) -> Result<(), KernelError> {
        for rows in Phase::all(&self.geometry.vertical, self.output.height) {
            for columns in Phase::all(&self.geometry.horizontal, self.output.width) {
                self.compute_phase(
                    (&rows, &columns),
                    arithmetic,
                    (input, weights),
                    output,
                    (&mut scratch, &mut *pace),
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    /// A row of two pixels, 1 and 10, under a filter of `1, 2, 3...`.
    fn row(filter: u32, arguments: impl FnOnce(OneOperation) -> OneOperation) -> Result<Vec<f32>, String> {
        let weights: Vec<f32> = (1..=filter).map(|weight| weight as f32).collect();
        let operation = OneOperation::new(OperationType::TRANSPOSE_CONV_2D)
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 2, 1], &[1.0_f32, 10.0])
            .tensor(T::TENSOR_FLOAT32, &[1, 1, filter, 1], &weights)
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.5_f32])
            .output(T::TENSOR_FLOAT32, &[0; 4]);
        let (dims, data) = arguments(operation)
            .i32(0)
            .tensor(T::BOOL, &[], &[0_u8])
            .run_one()?;
        assert_eq!(dims, [1, 1, data.len() as u32, 1]);
        Ok(data)
    }

    fn explicit(filter: u32, left: i32, right: i32, stride: i32) -> Result<Vec<f32>, String> {
        row(filter, |operation| {
            let pads = operation.i32(left).i32(right).i32(0).i32(0);
            pads.i32(stride).i32(1)
        })
    }

    fn implicit(filter: u32, scheme: i32, width: i32, stride: i32) -> Result<Vec<f32>, String> {
        row(filter, |operation| {
            let shape = operation.tensor(T::TENSOR_INT32, &[4], &[1, 1, width, 1]);
            shape.i32(scheme).i32(stride).i32(1)
        })
    }

    #[test]
    fn windows_that_overlap_add_up() {
        assert_eq!(explicit(3, 0, 0, 2), Ok(vec![1.5, 2.5, 13.5, 20.5, 30.5]));
        assert_eq!(explicit(3, 1, 1, 2), Ok(vec![2.5, 13.5, 20.5]));
    }

    #[test]
    fn outputs_between_windows_are_the_bias() {
        assert_eq!(explicit(1, 0, 0, 3), Ok(vec![1.5, 0.5, 0.5, 10.5]));
        assert_eq!(explicit(2, 1, 0, 3), Ok(vec![2.5, 0.5, 10.5, 20.5]));
    }

    #[test]
    fn given_shape_decides_the_size() {
        assert_eq!(implicit(3, 1, 4, 2), Ok(vec![1.5, 2.5, 13.5, 20.5]));
        assert_eq!(implicit(1, 2, 6, 3), Ok(vec![1.5, 0.5, 0.5, 10.5, 0.5, 0.5]));
        for width in [0, -1, 9, i32::MIN, i32::MAX] {
            assert!(implicit(3, 1, width, 2).is_err(), "{width}");
            assert!(implicit(3, 2, width, 2).is_err(), "{width}");
        }
    }

    #[test]
    fn hostile_arguments_give_an_error() {
        assert!(explicit(3, 3, 2, 2).is_err());
        assert!(explicit(3, -1, 0, 2).is_err());
        assert!(explicit(3, i32::MAX, i32::MAX, 2).is_err());
        assert!(explicit(3, 0, 0, 0).is_err());
        assert!(explicit(3, 0, 0, -2).is_err());
    }

    #[test]
    fn strides_as_large_as_32_bits_allow_cut_all_but_the_ends() {
        assert_eq!(explicit(2, i32::MAX, 0, i32::MAX), Ok(vec![10.5, 20.5]));
    }

    #[test]
    fn sixteen_bit_steps_are_multiplied_with_signed_bytes() {
        let operand = |ty, dims: &[u32], scale| Operand::new(ty, dims).with_quantization(scale, 0);
        let result = [0, 0, 0, 0, 2, 1, 0]
            .into_iter()
            .fold(
                OneOperation::new(tflite::TRANSPOSE_CONV_2D)
                    .operand(
                        operand(T::TENSOR_QUANT16_SYMM, &[1, 1, 2, 1], 0.5),
                        &[1000_i16, -32_768],
                    )
                    .operand(
                        operand(T::TENSOR_QUANT8_ASYMM_SIGNED, &[1, 1, 3, 1], 0.25),
                        &[1_i8, 2, -127],
                    )
                    .operand(operand(T::TENSOR_INT32, &[1], 0.125), &[16]),
                OneOperation::i32,
            )
            .tensor(T::BOOL, &[], &[0_u8])
            .output_operand(operand(T::TENSOR_QUANT16_SYMM, &[0; 4], 64.0))
            .run_one::<i16>();
        assert_eq!(result.unwrap(), (vec![1, 1, 5, 1], vec![2, 4, -312, -128, 8128]));
    }
}
