//! DEPTHWISE_CONV_2D: the products of what a window sees with the filter, summed tap by tap for all channels
//! at once.

use nnhal_hal::ops::depthwise_convolution::{arguments, geometry};
use nnhal_hal::ops::windows::WindowGeometry;
use nnhal_hal::{OperationType, tflite};

use super::convolution::taps;
use super::image::{Image, gather};
use super::layer::{self, Arithmetic, Layer, LayerScratch, ScratchLengths};
use super::products::Product;
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::DEPTHWISE_CONV_2D, depthwise_convolution),
    (tflite::DEPTHWISE_CONV_2D, depthwise_convolution),
];

fn depthwise_convolution(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let rules = context.inputs.rules();
    let geometry = geometry(rules)?;
    let activation = arguments(rules).activation();
    let layer = Depthwise {
        input: Image::new(&geometry.input, geometry.nchw),
        output: Image::new(&geometry.output, geometry.nchw),
        geometry,
    };
    layer::compute(context, activation, layer.output.channels, &layer)
}

struct Depthwise {
    input: Image,
    output: Image,
    geometry: WindowGeometry,
}

impl Depthwise {
    fn filter_taps(&self) -> usize {
        self.geometry.vertical.filter as usize * self.geometry.horizontal.filter as usize
    }

    /// Adds the products of one window to `sums`, one for each output channel.
    fn add_window<P: Product>(&self, sums: &mut [P::Sum], patch: &[P], filter: &[P]) {
        let (inputs, outputs) = (self.input.channels, self.output.channels);
        let multiplier = outputs / inputs;
        for (seen, weights) in patch.chunks_exact(inputs).zip(filter.chunks_exact(outputs)) {
            if multiplier == 1 {
                P::add_products(sums, seen, weights);
                continue;
            }
            for ((sums, seen), weights) in sums
                .chunks_exact_mut(multiplier)
                .zip(seen)
                .zip(weights.chunks_exact(multiplier))
            {
                P::add_scaled(sums, *seen, weights);
            }
        }
    }
}

impl Layer for Depthwise {
    fn scratch(&self) -> ScratchLengths {
        ScratchLengths {
            patches: self.filter_taps() * self.input.channels,
            weights: self.filter_taps() * self.output.channels,
            sums: self.output.channels,
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
        for (operand, weight) in scratch.weights.iter_mut().zip(weights) {
            *operand = arithmetic.weight(*weight);
        }
        let channels = 0..self.input.channels;
        for pixel in self.output.pixels() {
            pace.work(scratch.weights.len())?;
            let rows = taps(&self.geometry.vertical, pixel.row);
            let columns = taps(&self.geometry.horizontal, pixel.column);
            let image = (input, &self.input);
            gather(
                image,
                pixel.batch,
                (rows, columns),
                &channels,
                scratch.patches,
                |element| arithmetic.input(element),
            );
            scratch.sums.fill(bytemuck::Zeroable::zeroed());
            self.add_window(scratch.sums, scratch.patches, scratch.weights);
            let at = self.output.at(pixel.batch, pixel.row, pixel.column);
            for (channel, sum) in scratch.sums.iter().enumerate() {
                output[at + channel * self.output.channel_step] = arithmetic.finish(channel, *sum);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn depthwise(filter: &[u32], multiplier: i32) -> Result<(Vec<u32>, Vec<f32>), String> {
        let elements = filter.iter().product::<u32>();
        let weights: Vec<f32> = (1..=elements).map(|weight| weight as f32).collect();
        let channels = filter[3];
        OneOperation::new(OperationType::DEPTHWISE_CONV_2D)
            .tensor(T::TENSOR_FLOAT32, &[1, 1, 1, 2], &[1.0_f32, 10.0])
            .tensor(T::TENSOR_FLOAT32, filter, &weights)
            .tensor(T::TENSOR_FLOAT32, &[channels], &vec![0.0_f32; channels as usize])
            .i32(1)
            .i32(1)
            .i32(1)
            .i32(multiplier)
            .i32(0)
            .output(T::TENSOR_FLOAT32, &[0; 4])
            .run_one()
    }

    #[test]
    fn filters_of_one_channel_stand_side_by_side() {
        assert_eq!(
            depthwise(&[1, 1, 1, 4], 2),
            Ok((vec![1, 1, 1, 4], vec![1.0, 2.0, 30.0, 40.0]))
        );
    }

    #[test]
    fn multiplier_or_filter_that_does_not_fit_gives_an_error() {
        for multiplier in [0, -2, 1, i32::MAX, i32::MIN] {
            assert!(depthwise(&[1, 1, 1, 4], multiplier).is_err(), "{multiplier}");
        }
        let error = depthwise(&[2, 1, 1, 2], 1).unwrap_err();
        assert!(error.contains("must be [1, height, width"), "{error}");
    }

    #[test]
    fn sixteen_bit_steps_are_multiplied_with_signed_bytes() {
        let operand = |ty, dims: &[u32], scale| Operand::new(ty, dims).with_quantization(scale, 0);
        let result = [2, 1, 1, 1, 0]
            .into_iter()
            .fold(
                OneOperation::new(tflite::DEPTHWISE_CONV_2D)
                    .operand(
                        operand(T::TENSOR_QUANT16_SYMM, &[1, 1, 2, 2], 0.5),
                        &[1000_i16, -2000, 3000, 32_767],
                    )
                    .operand(
                        operand(T::TENSOR_QUANT8_ASYMM_SIGNED, &[1, 1, 2, 2], 0.25),
                        &[1_i8, 2, 3, 127],
                    )
                    .operand(operand(T::TENSOR_INT32, &[2], 0.125), &[24, 0]),
                OneOperation::i32,
            )
            .output_operand(operand(T::TENSOR_QUANT16_SYMM, &[0; 4], 0.5))
            .run_one::<i16>();
        assert_eq!(result.unwrap(), (vec![1, 1, 1, 2], vec![2506, 32_767]));
    }
}
