//! The step of BATCH_MATMUL.

use std::sync::Arc;

use nnhal_hal::ops::batch_matmul::BatchMatMul;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::{bytes, floats};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::plan::Declared;

/// Whether an operation is BATCH_MATMUL of NNAPI or of the extension.
pub(in crate::fast) fn is_batch_matmul(operation: OperationType) -> bool {
    [OperationType::BATCH_MATMUL, tflite::BATCH_MATMUL].contains(&operation)
}

/// Such an operation.
#[derive(Debug)]
pub(in crate::fast) struct BatchMatMulStep {
    /// For the types that have no fast code.
    fallback: Kernel,
}

impl BatchMatMulStep {
    /// The step of an operation, if it is this one.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<Arc<dyn PlannedStep>> {
        let is_it = is_batch_matmul(declared.operation.operation_type);
        is_it.then(|| Arc::new(BatchMatMulStep { fallback }) as _)
    }
}

impl PlannedStep for BatchMatMulStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 batched matrix product",
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => "8-bit batched matrix product by pairs",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let multiply = match context.inputs.tensor(0)?.ty() {
            OperandType::TENSOR_FLOAT32 => floats::run,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => bytes::run,
            _ => return (self.fallback)(context),
        };
        let product = BatchMatMul::new(context.inputs.rules())?;
        if product.batches == 0 {
            return Ok(());
        }
        multiply(context, &product)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// Batches, rows, inner and columns.
    const EXTENTS: [[u32; 4]; 7] = [
        [1, 1, 1, 1],
        [3, 5, 7, 19],
        [2, 13, 64, 40],
        [1, 2, 33, 70],
        [4, 1, 5, 16],
        [0, 3, 2, 2],
        [2, 40, 3, 137],
    ];

    fn each_case(check: impl Fn([u32; 4], [bool; 2])) {
        for extents in EXTENTS {
            for flags in [[false, false], [false, true], [true, false], [true, true]] {
                check(extents, flags);
            }
        }
    }

    fn dims([batches, rows, columns]: [u32; 3], is_transposed: bool) -> [u32; 3] {
        if is_transposed {
            [batches, columns, rows]
        } else {
            [batches, rows, columns]
        }
    }

    fn product(ty: T, [batches, rows, inner, columns]: [u32; 4], flags: [bool; 2]) -> OneOperation {
        let operand = |dims: &[u32], scale, zero_point| match ty {
            T::TENSOR_FLOAT32 => Operand::new(ty, dims),
            _ => Operand::new(ty, dims).with_quantization(scale, zero_point),
        };
        let mut one = OneOperation::new(OperationType::BATCH_MATMUL);
        for (at, dims) in [
            dims([batches, rows, inner], flags[0]),
            dims([batches, inner, columns], flags[1]),
        ]
        .into_iter()
        .enumerate()
        {
            let count = dims.iter().product::<u32>();
            let places = 0..count;
            let operand = operand(&dims, 0.25, 5 - 9 * at as i32);
            one = if ty == T::TENSOR_FLOAT32 {
                let value = |place: u32| (place * 37 % 101) as f32 - 50.0;
                one.operand(operand, &places.map(value).collect::<Vec<_>>())
            } else {
                let value = |place: u32| (place * 151 + 7) as u8;
                one.operand(operand, &places.map(value).collect::<Vec<_>>())
            };
        }
        one.tensor(T::BOOL, &[], &[u8::from(flags[0])])
            .tensor(T::BOOL, &[], &[u8::from(flags[1])])
            .output_operand(operand(&[0, 0, 0], 8.5, -3))
    }

    #[test]
    fn products_of_floats_are_those_of_the_reference() {
        each_case(|extents, flags| {
            let one = || product(T::TENSOR_FLOAT32, extents, flags);
            assert_eq!(one().kernel_name(), "f32 batched matrix product");
            let [found, exact] = [KernelSet::Fast, KernelSet::Reference].map(|kernels| {
                let outputs = one().run_by(kernels, &RunOptions::default()).unwrap();
                // Whole numbers, whose sums are exact.
                (outputs[0].dims.clone(), outputs[0].data::<f32>())
            });
            assert_eq!(found, exact, "{extents:?} {flags:?}");
        });
    }

    #[test]
    fn products_of_bytes_are_the_bits_of_the_reference() {
        each_case(|extents, flags| {
            let one = || product(T::TENSOR_QUANT8_ASYMM_SIGNED, extents, flags);
            assert_eq!(one().kernel_name(), "8-bit batched matrix product by pairs");
            let [found, exact] = [KernelSet::Fast, KernelSet::Reference].map(|kernels| {
                let outputs = one().run_by(kernels, &RunOptions::default()).unwrap();
                (outputs[0].dims.clone(), outputs[0].bytes.clone())
            });
            assert_eq!(found, exact, "{extents:?} {flags:?}");
        });
    }

    #[test]
    fn halves_are_left_to_the_reference() {
        let ones = [half::f16::ONE; 4];
        let one = OneOperation::new(OperationType::BATCH_MATMUL)
            .tensor(T::TENSOR_FLOAT16, &[2, 2], &ones)
            .tensor(T::TENSOR_FLOAT16, &[2, 2], &ones)
            .tensor(T::BOOL, &[], &[0_u8])
            .tensor(T::BOOL, &[], &[0_u8])
            .output(T::TENSOR_FLOAT16, &[2, 2]);
        assert_eq!(one.kernel_name(), crate::fast::REFERENCE);
        let outputs = one.run_by(KernelSet::Fast, &RunOptions::default()).unwrap();
        assert_eq!(outputs[0].data::<half::f16>(), [half::f16::from_f32(2.0); 4]);
    }
}
