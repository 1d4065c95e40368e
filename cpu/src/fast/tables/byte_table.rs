//! Element-wise operations on one operand of 8-bit values, by what the reference makes of each value.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{OperandType, tflite};

use crate::fast::partition;
use crate::fast::simd::{Columns, Instructions, WIDE, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation::quantized_results;
use crate::kernels::element::Quant8;
use crate::kernels::gelu;
use crate::plan::Declared;
use crate::threads::Cost;

/// Something for each byte.
pub(in crate::fast) type OfBytes = [u8; 1 << u8::BITS];

/// Bytes that are looked up at once.
const AT_ONCE: usize = 4 * WIDE;

/// RELU, RELU1, RELU6, LOGISTIC, TANH, HARD_SWISH, RSQRT or GELU of 8-bit values.
#[derive(Debug)]
pub(in crate::fast) struct TableStep {
    ty: OperandType,
    results: OfBytes,
    /// For other types.
    fallback: Kernel,
}

impl TableStep {
    /// The step of an operation, if it is one of these on 8-bit values.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<TableStep> {
        let (input, output) = (declared.input(0)?.operand, declared.output(0)?.operand);
        let forms = [input, output].map(|operand| (operand.scale, operand.zero_point));
        let results = match input.operand_type {
            OperandType::TENSOR_QUANT8_ASYMM => by_bytes::<u8>(declared, forms),
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => by_bytes::<i8>(declared, forms),
            _ => None,
        };
        results.map(|results| TableStep {
            ty: input.operand_type,
            results,
            fallback,
        })
    }
}

/// What an operation makes of each byte, given scale and zero point of its input and its output.
fn by_bytes<T: Quant8>(declared: &Declared<'_>, forms: [(f32, i32); 2]) -> Option<OfBytes> {
    let context: &dyn OperationContext = declared;
    let results: [T; 256] = match declared.operation.operation_type {
        tflite::GELU => gelu::quantized_results(context.bool_or(1, false).ok()?, forms),
        operation => quantized_results(operation, forms[0], forms[1])?,
    };
    let mut of_bytes = [0; 1 << u8::BITS];
    for (value, result) in (T::LEAST..=T::MOST).zip(results) {
        of_bytes[usize::from(value as u8)] = result.to_i32() as u8;
    }
    Some(of_bytes)
}

impl PlannedStep for TableStep {
    fn name(&self, input: OperandType) -> &'static str {
        if input == self.ty {
            "8-bit table"
        } else {
            REFERENCE
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        if input.ty() != self.ty {
            return (self.fallback)(context);
        }
        let (input, output) = (input.bytes, context.outputs.tensor(0)?.bytes);
        // A byte takes about as long as four that are only moved.
        let cost = Cost::of_bytes(4 * output.len());
        partition::for_each_part((context.team, cost), (output, AT_ONCE), |elements, output| {
            dispatch(LookUp {
                table: &self.results,
                bytes: &input[elements],
                output,
            });
        });
        Ok(())
    }
}

/// Replaces bytes by what a table has for them.
pub(in crate::fast) struct LookUp<'a> {
    pub(in crate::fast) table: &'a OfBytes,
    pub(in crate::fast) bytes: &'a [u8],
    pub(in crate::fast) output: &'a mut [u8],
}

impl Work for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let (wholes, rest) = self.bytes.as_chunks::<AT_ONCE>();
        let (outputs, output_rest) = self.output.as_chunks_mut::<AT_ONCE>();
        for (bytes, output) in wholes.iter().zip(outputs) {
            simd.wide().look_up(self.table, bytes, output);
        }
        for (byte, output) in rest.iter().zip(output_rest) {
            *output = self.table[usize::from(*byte)];
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// An operation on 8-bit values, all of them and some more.
    fn one(operation: OperationType, ty: OperandType, scale: f32, zero_point: i32) -> OneOperation {
        let values: Vec<u8> = (0..256 + 70).map(|at: u32| (at * 151) as u8).collect();
        let operand = Operand::new(ty, &[values.len() as u32]).with_quantization(scale, zero_point);
        let is_signed = ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let output = match operation {
            OperationType::LOGISTIC => (1.0 / 256.0, if is_signed { -128 } else { 0 }),
            OperationType::TANH => (1.0 / 128.0, if is_signed { 0 } else { 128 }),
            OperationType::HARD_SWISH => (scale * 0.7, zero_point / 2),
            _ => (scale, zero_point),
        };
        let output = Operand::new(ty, &[values.len() as u32]).with_quantization(output.0, output.1);
        let one = OneOperation::new(operation).operand(operand, &values);
        if operation == tflite::GELU {
            let by_tanh = one.tensor(OperandType::BOOL, &[], &[1_u8]);
            return by_tanh.with_constants().output_operand(output);
        }
        one.output_operand(output)
    }

    #[test]
    fn every_value_has_the_result_of_the_reference() {
        for operation in [
            tflite::GELU,
            OperationType::RELU,
            OperationType::RELU1,
            OperationType::RELU6,
            OperationType::LOGISTIC,
            OperationType::TANH,
            OperationType::HARD_SWISH,
            OperationType::RSQRT,
        ] {
            for ty in [
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                for (scale, zero_point) in [(0.037, 3), (0.5, 100), (1e-5, 0), (1e9, 127)] {
                    let one = || one(operation, ty, scale, zero_point);
                    let by = |kernels| one().run_by(kernels, &RunOptions::default()).unwrap().remove(0);
                    let (found, exact) = (by(KernelSet::Fast), by(KernelSet::Reference));
                    assert_eq!(found.bytes, exact.bytes, "{operation} of {ty}, scale {scale}");
                    assert_eq!(one().kernel_name(), "8-bit table");
                }
            }
        }
    }
}
