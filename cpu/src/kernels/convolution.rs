//! CONV_2D and GROUPED_CONV_2D: what a window sees is gathered into a row, and every output channel is the
//! product of that row with its filter.

use nnhal_hal::ops::padding::Window;
use nnhal_hal::ops::windows::WindowGeometry;
use nnhal_hal::{OperationType, ops, tflite};

use super::filters::{Filters, TILE, filter_size, for_each_tile};
use super::image::{Image, Taps, gather};
use super::layer::{self, Arithmetic, Layer, LayerScratch, ScratchLengths};
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::CONV_2D, convolution),
    (OperationType::GROUPED_CONV_2D, grouped_convolution),
    (tflite::CONV_2D, convolution),
];

fn convolution(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let geometry = ops::convolution::geometry(rules)?;
    let activation = ops::convolution::arguments(rules).activation();
    run(context, &geometry, activation, 1)
}

fn grouped_convolution(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let geometry = ops::grouped_convolution::geometry(rules)?;
    let activation = ops::grouped_convolution::arguments(rules).activation();
    let groups = ops::grouped_convolution::groups(rules)? as usize;
    run(context, &geometry, activation, groups)
}

fn run(
    context: &mut KernelContext<'_>,
    geometry: &WindowGeometry,
    activation: usize,
    groups: usize,
) -> Result<(), KernelError> {
    let layer = Convolution {
        input: Image::new(&geometry.input, geometry.nchw),
        output: Image::new(&geometry.output, geometry.nchw),
        vertical: geometry.vertical,
        horizontal: geometry.horizontal,
        groups,
    };
    layer::compute(context, activation, layer.output.channels, &layer)
}

/// What the window at output position `index` looks at along one axis.
pub(super) fn taps(window: &Window, index: usize) -> Taps {
    Taps {
        first: index as i64 * i64::from(window.stride) - i64::from(window.head),
        step: i64::from(window.dilation),
        count: window.filter as usize,
    }
}

struct Convolution {
    input: Image,
    output: Image,
    vertical: Window,
    horizontal: Window,
    groups: usize,
}

impl Convolution {
    /// Input channels of one group.
    fn depth(&self) -> usize {
        self.input.channels / self.groups
    }

    /// Elements that one window sees of one group.
    fn patch(&self) -> usize {
        self.vertical.filter as usize * self.horizontal.filter as usize * self.depth()
    }
}

impl Layer for Convolution {
    fn scratch(&self) -> ScratchLengths {
        ScratchLengths {
            patches: TILE * self.patch(),
            weights: filter_size(self.output.channels / self.groups, self.patch()),
            sums: 0,
        }
    }

    fn compute<A: Arithmetic>(
        &self,
        arithmetic: &A,
        input: &[A::Input],
        weights: &[A::Weight],
        output: &mut [A::Output],
        (scratch, pace): (LayerScratch<'_, A::Operand>, &mut Pace<'_>),
    ) -> Result<(), KernelError> {
        let (channels, length) = (self.output.channels / self.groups, self.patch());
        for group in 0..self.groups {
            let filters = Filters::new(
                arithmetic,
                scratch.weights,
                length,
                group * channels..(group + 1) * channels,
                |channel, index| weights[channel * length + index],
            );
            let inputs = group * self.depth()..(group + 1) * self.depth();
            for_each_tile(self.output.pixels(), |pixels| {
                for (patch, pixel) in scratch.patches.chunks_exact_mut(length).zip(pixels) {
                    let rows = taps(&self.vertical, pixel.row);
                    let columns = taps(&self.horizontal, pixel.column);
                    let image = (input, &self.input);
                    gather(image, pixel.batch, (rows, columns), &inputs, patch, |element| {
                        arithmetic.input(element)
                    });
                }
                filters.apply(scratch.patches, pixels, (&mut *output, &self.output), pace)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{
        ExtraParams, Operand, OperandType as T, OperationType, SymmPerChannelQuantParams, tflite,
    };

    use crate::kernels::testing::OneOperation;

    fn operand(ty: T, dims: &[u32], scale: f32, zero_point: i32) -> Operand {
        Operand {
            scale,
            zero_point,
            ..Operand::new(ty, dims)
        }
    }

    /// A 1x2x2x1 image under a 1x1x2x1 filter.
    fn small() -> OneOperation {
        OneOperation::new(OperationType::CONV_2D)
            .tensor(T::TENSOR_FLOAT32, &[1, 2, 2, 1], &[1.0_f32, 2.0, 3.0, 4.0])
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 2, 1], &[1.0_f32, 10.0])
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.5_f32])
            .output(T::TENSOR_FLOAT32, &[0; 4])
    }

    fn implicit(operation: OneOperation, [scheme, width, height, activation]: [i32; 4]) -> OneOperation {
        operation.i32(scheme).i32(width).i32(height).i32(activation)
    }

    #[test]
    fn ten_arguments_are_told_apart_by_type() {
        let explicit = [0, 1, 0, 0, 1, 1, 0].into_iter().fold(small(), OneOperation::i32);
        let with_dilation = implicit(small(), [2, 1, 1, 0])
            .tensor(T::BOOL, &[], &[0_u8])
            .i32(1)
            .i32(1);
        assert_eq!(
            explicit.run_one(),
            Ok((vec![1, 2, 2, 1], vec![21.5_f32, 2.5, 43.5, 4.5]))
        );
        assert_eq!(
            with_dilation.run_one(),
            Ok((vec![1, 2, 1, 1], vec![21.5_f32, 43.5]))
        );
    }

    #[test]
    fn one_dilation_factor_alone_is_refused() {
        let error = implicit(small(), [2, 1, 1, 0])
            .tensor(T::BOOL, &[], &[0_u8])
            .i32(1)
            .run()
            .unwrap_err();
        assert!(error.contains("has 9 inputs"), "{error}");
    }

    #[test]
    fn hostile_window_arguments_give_an_error() {
        for (arguments, reason) in [
            ([3, 1, 1, 0], "must be 1 (SAME) or 2 (VALID)"),
            ([1, 0, 1, 0], "a stride is 0"),
            ([1, 1, i32::MIN, 0], "a stride is -2147483648"),
            ([2, 1, 1, 4], "(activation) is 4"),
        ] {
            let error = implicit(small(), arguments).run().unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for (pads, reason) in [
            ([0, 2, 0, 0], "must be below 2"),
            ([-1, 0, 0, 0], "must not be negative"),
            ([0, 0, i32::MAX, i32::MAX], "must be below 1"),
        ] {
            let error = pads
                .into_iter()
                .chain([1, 1, 0])
                .fold(small(), OneOperation::i32)
                .run()
                .unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn taps_as_far_apart_as_32_bits_allow_see_nothing() {
        let widest = implicit(small(), [1, 1, 1, 0])
            .tensor(T::BOOL, &[], &[0_u8])
            .i32(i32::MAX)
            .i32(1);
        assert_eq!(widest.run_one(), Ok((vec![1, 2, 2, 1], vec![0.5_f32; 4])));
    }

    #[test]
    fn dimensions_that_do_not_fit_give_an_error() {
        let conv = |filter: &[u32], bias: u32| {
            let elements = filter.iter().product::<u32>() as usize;
            let operation = OneOperation::new(OperationType::CONV_2D)
                .tensor(T::TENSOR_FLOAT32, &[1, 2, 2, 1], &[1.0_f32; 4])
                .tensor(T::TENSOR_FLOAT32, filter, &vec![1.0_f32; elements])
                .tensor(T::TENSOR_FLOAT32, &[bias], &vec![1.0_f32; bias as usize])
                .output(T::TENSOR_FLOAT32, &[0; 4]);
            implicit(operation, [2, 1, 1, 0]).run().unwrap_err()
        };
        assert!(conv(&[1, 1, 1, 2], 1).contains("the channels of input 0"));
        assert!(conv(&[2, 1, 1, 1], 1).contains("must have 2"));
        assert!(conv(&[1, 3, 1, 1], 1).contains("does not fit"));
    }

    #[test]
    fn groups_that_do_not_divide_the_channels_give_an_error() {
        let grouped = |groups| {
            let operation = OneOperation::new(OperationType::GROUPED_CONV_2D)
                .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 4], &[1.0_f32, 2.0, 3.0, 4.0])
                .tensor(T::TENSOR_FLOAT32, &[2, 1, 1, 2], &[1.0_f32, 1.0, 10.0, 10.0])
                .tensor(T::TENSOR_FLOAT32, &[2], &[0.0_f32; 2])
                .output(T::TENSOR_FLOAT32, &[0; 4])
                .i32(2)
                .i32(1)
                .i32(1)
                .i32(groups)
                .i32(0);
            operation.tensor(T::BOOL, &[], &[0_u8]).run_one::<f32>()
        };
        assert_eq!(grouped(2), Ok((vec![1, 1, 1, 2], vec![3.0, 70.0])));
        for groups in [0, -1, 1, 3, i32::MAX] {
            assert!(grouped(groups).is_err(), "{groups}");
        }
    }

    #[test]
    fn every_output_channel_has_its_own_scale() {
        let mut filter = Operand::new(T::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 1, 1, 1]);
        filter.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
            channel_dim: 0,
            scales: vec![0.5, 2.0],
        });
        let operation = OneOperation::new(OperationType::CONV_2D)
            .operand(
                operand(T::TENSOR_QUANT8_ASYMM, &[1, 1, 1, 1], 1.0, 128),
                &[130_u8],
            )
            .operand(filter.clone(), &[3_i8, 3])
            .tensor(T::TENSOR_INT32, &[2], &[0, 1])
            .output_operand(operand(T::TENSOR_QUANT8_ASYMM, &[0; 4], 1.0, 10));
        let operation = implicit(operation, [2, 1, 1, 0]);
        assert_eq!(
            operation.run_one::<u8>(),
            Ok((vec![1, 1, 1, 2], vec![10 + 3, 10 + 14]))
        );
    }

    #[test]
    fn bias_of_another_scale_is_refused() {
        let operation = OneOperation::new(OperationType::CONV_2D)
            .operand(operand(T::TENSOR_QUANT8_ASYMM, &[1, 1, 1, 1], 0.5, 0), &[1_u8])
            .operand(operand(T::TENSOR_QUANT8_ASYMM, &[1, 1, 1, 1], 0.5, 0), &[1_u8])
            .operand(operand(T::TENSOR_INT32, &[1], 0.26, 0), &[1])
            .output_operand(operand(T::TENSOR_QUANT8_ASYMM, &[0; 4], 1.0, 0));
        let error = implicit(operation, [2, 1, 1, 0]).run().unwrap_err();
        assert!(error.contains("input scale * filter scale"), "{error}");
    }

    #[test]
    fn no_batches_give_no_output() {
        let operation = OneOperation::new(OperationType::CONV_2D)
            .tensor::<f32>(T::TENSOR_FLOAT32, &[0, 2, 2, 1], &[])
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 1], &[1.0_f32])
            .tensor(T::TENSOR_FLOAT32, &[1], &[0.0_f32])
            .output(T::TENSOR_FLOAT32, &[0; 4]);
        assert_eq!(
            implicit(operation, [2, 1, 1, 0]).run_one::<f32>(),
            Ok((vec![0, 2, 2, 1], vec![]))
        );
    }

    #[test]
    fn sixteen_bit_steps_are_summed_in_64_bits_and_scaled_by_channel() {
        let steps =
            |dims: &[u32], scale| Operand::new(T::TENSOR_QUANT16_SYMM, dims).with_quantization(scale, 0);
        let mut filter = Operand::new(T::TENSOR_QUANT8_SYMM_PER_CHANNEL, &[2, 1, 1, 3]);
        filter.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
            scales: vec![0.5, 0.25],
            channel_dim: 0,
        });
        let result = [2, 1, 1, 0]
            .into_iter()
            .fold(
                OneOperation::new(tflite::CONV_2D)
                    .operand(
                        steps(&[1, 1, 2, 3], 0.5),
                        &[100_i16, 200, 300, 32_767, -32_768, 32_767],
                    )
                    .operand(filter, &[1_i8, 2, 3, 127, -128, 127])
                    .tensor(T::TENSOR_INT32, &[2], &[0, -5]),
                OneOperation::i32,
            )
            .output_operand(steps(&[0, 0, 0, 0], 0.25))
            .run_one::<i16>();
        let expected = vec![1400, 12_598, 32_767, 32_767];
        assert_eq!(result.unwrap(), (vec![1, 1, 2, 2], expected));
    }
}
