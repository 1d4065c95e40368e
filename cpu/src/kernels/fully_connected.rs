//! FULLY_CONNECTED: every unit is the product of its weights with the input.

use nnhal_hal::{OperationType, tflite};

use super::layer::{self, Arithmetic, Layer, LayerScratch, ScratchLengths};
use super::products::Product;
use crate::kernel::{Kernel, KernelContext, KernelError, Pace};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::FULLY_CONNECTED, fully_connected),
    (tflite::FULLY_CONNECTED, fully_connected),
];

fn fully_connected(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let weights = context.inputs.tensor(1)?.shape;
    let layer = FullyConnected {
        batch: context.outputs.tensor(0)?.shape.dim(0) as usize,
        units: weights.dim(0) as usize,
        size: weights.dim(1) as usize,
    };
    layer::compute(context, 3, layer.units, &layer)
}

struct FullyConnected {
    /// Rows of the input.
    batch: usize,
    units: usize,
    size: usize,
}

impl Layer for FullyConnected {
    fn scratch(&self) -> ScratchLengths {
        ScratchLengths {
            patches: self.batch * self.size,
            // The weights are converted row by row: most are used only once.
            weights: self.size,
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
        for (operand, element) in scratch.patches.iter_mut().zip(input) {
            *operand = arithmetic.input(*element);
        }
        for (unit, row) in weights.chunks_exact(self.size).enumerate() {
            for (operand, weight) in scratch.weights.iter_mut().zip(row) {
                *operand = arithmetic.weight(*weight);
            }
            for (input, outputs) in scratch
                .patches
                .chunks_exact(self.size)
                .zip(output.chunks_exact_mut(self.units))
            {
                pace.work(self.size)?;
                outputs[unit] = arithmetic.finish(unit, A::Operand::dot(scratch.weights, input));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn fully_connected(input: &[u32], weights: &[u32]) -> Result<(Vec<u32>, Vec<f32>), String> {
        let ramp = |dims: &[u32]| -> Vec<f32> {
            (0..dims.iter().product::<u32>())
                .map(|value| value as f32)
                .collect()
        };
        OneOperation::new(OperationType::FULLY_CONNECTED)
            .tensor(T::TENSOR_FLOAT32, input, &ramp(input))
            .tensor(T::TENSOR_FLOAT32, weights, &ramp(weights))
            .tensor(T::TENSOR_FLOAT32, &weights[..1], &ramp(&weights[..1]))
            .i32(0)
            .output(T::TENSOR_FLOAT32, &[0; 2])
            .run_one()
    }

    #[test]
    fn input_of_higher_rank_is_taken_as_rows() {
        let (dims, data) = fully_connected(&[5, 1, 2], &[2, 2]).unwrap();
        assert_eq!(dims, [5, 2]);
        assert_eq!(data, [1.0, 4.0, 3.0, 14.0, 5.0, 24.0, 7.0, 34.0, 9.0, 44.0]);
    }

    #[test]
    fn no_rows_give_no_output() {
        assert_eq!(fully_connected(&[0, 2], &[3, 2]), Ok((vec![0, 3], vec![])));
    }

    #[test]
    fn sizes_that_do_not_fit_give_an_error() {
        assert!(fully_connected(&[1, 3], &[1, 2]).is_err());
        assert!(fully_connected(&[1, 0], &[1, 0]).is_err());
        assert!(fully_connected(&[1, 1], &[0, 1]).is_err());
    }

    #[test]
    fn sixteen_bit_steps_are_multiplied_with_signed_bytes() {
        let operand = |ty, dims: &[u32], scale| Operand::new(ty, dims).with_quantization(scale, 0);
        let layer = |bias_scale| {
            OneOperation::new(tflite::FULLY_CONNECTED)
                .operand(
                    operand(T::TENSOR_QUANT16_SYMM, &[2, 2], 0.5),
                    &[1000_i16, -2000, 32_767, 32_767],
                )
                .operand(
                    operand(T::TENSOR_QUANT8_ASYMM_SIGNED, &[2, 2], 0.25),
                    &[1_i8, 2, 127, 127],
                )
                .operand(operand(T::TENSOR_INT32, &[2], bias_scale), &[80, 0])
                .i32(1)
                .output_operand(operand(T::TENSOR_QUANT16_SYMM, &[0, 0], 64.0))
                .run_one::<i16>()
        };
        assert_eq!(layer(0.125).unwrap(), (vec![2, 2], vec![0, 0, 192, 16_256]));
        assert!(layer(0.25).unwrap_err().contains("(bias) has scale 0.25"));
    }
}
