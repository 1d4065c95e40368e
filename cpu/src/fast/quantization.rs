//! QUANTIZE of 32-bit floats and DEQUANTIZE to them, of 8-bit values with one scale, to the same bits as the reference.

use nnhal::hal::{OperandType as T, OperationType};

use super::simd::{Instructions, Work, dispatch};
use super::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::element::Quant8;
use crate::kernels::fixed_point::quantize;

/// A change between 32-bit floats and 8-bit values.
#[derive(Debug)]
pub(super) struct QuantizationStep {
    /// For other types.
    pub(super) fallback: Kernel,
}

impl QuantizationStep {
    /// The step of an operation, if it is one of the two.
    pub(super) fn of(operation: OperationType, fallback: Kernel) -> Option<QuantizationStep> {
        matches!(operation, OperationType::QUANTIZE | OperationType::DEQUANTIZE)
            .then_some(QuantizationStep { fallback })
    }
}

impl PlannedStep for QuantizationStep {
    fn name(&self, input: T) -> &'static str {
        match input {
            T::TENSOR_FLOAT32 | T::TENSOR_QUANT8_ASYMM | T::TENSOR_QUANT8_ASYMM_SIGNED => "quantization",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let types = (context.inputs.tensor(0)?.ty(), context.outputs.tensor(0)?.ty());
        match types {
            (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM) => to_8_bits::<u8>(context),
            (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM_SIGNED) => to_8_bits::<i8>(context),
            (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32) => from_8_bits::<u8>(context),
            (T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT32) => from_8_bits::<i8>(context),
            _ => (self.fallback)(context),
        }
    }
}

fn to_8_bits<Q: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let output = context.outputs.tensor(0)?;
    let (scale, zero_point) = (output.scale(), output.zero_point());
    dispatch(Convert {
        input: context.inputs.data::<f32>(0)?,
        output: output.into_data::<Q>()?,
        convert: |value: f32| Q::saturate(quantize(value, scale, zero_point)),
    });
    Ok(())
}

fn from_8_bits<Q: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let (scale, zero_point) = (input.scale(), input.zero_point());
    dispatch(Convert {
        input: input.data::<Q>()?,
        output: context.outputs.data::<f32>(0)?,
        convert: |value: Q| (value.to_i32() - zero_point) as f32 * scale,
    });
    Ok(())
}

struct Convert<'a, A, B, F> {
    input: &'a [A],
    output: &'a mut [B],
    convert: F,
}

impl<A: Copy, B, F: Fn(A) -> B> Work for Convert<'_, A, B, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        for (result, value) in self.output.iter_mut().zip(self.input) {
            *result = (self.convert)(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal::hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    fn bytes<T: bytemuck::Pod>(operation: OperationType, [from, to]: [OperandType; 2], values: &[T]) {
        let operand = |ty| {
            let mut operand = Operand::new(ty, &[values.len() as u32]);
            if ty != OperandType::TENSOR_FLOAT32 {
                (operand.scale, operand.zero_point) = (0.037, 5);
            }
            operand
        };
        let compute = |kernels| {
            OneOperation::new(operation)
                .operand(operand(from), values)
                .output_operand(operand(to))
                .run_by(kernels, &RunOptions::default())
                .unwrap()
                .remove(0)
                .bytes
        };
        assert_eq!(compute(KernelSet::Fast), compute(KernelSet::Reference));
    }

    #[test]
    fn every_value_has_the_bits_of_the_reference() {
        let mut floats: Vec<f32> = (-3000..3000).map(|at| at as f32 * 0.0185 / 8.0).collect();
        floats.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e30, -1e30]);
        let all: Vec<u8> = (0..=255).collect();
        let float = OperandType::TENSOR_FLOAT32;
        for ty in [
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ] {
            bytes(OperationType::QUANTIZE, [float, ty], &floats);
            bytes(OperationType::DEQUANTIZE, [ty, float], &all);
        }
    }
}
