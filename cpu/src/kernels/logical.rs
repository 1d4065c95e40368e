//! Element-wise logic: LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT. Every byte but 0 is true; results are 0 or 1.

use nnhal_hal::OperationType;

use super::broadcast::{binary, unary};
use crate::kernel::Kernel;

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::LOGICAL_AND, |context| {
        binary::<u8, u8>(context, |left, right| u8::from(left != 0 && right != 0))
    }),
    (OperationType::LOGICAL_OR, |context| {
        binary::<u8, u8>(context, |left, right| u8::from(left != 0 || right != 0))
    }),
    (OperationType::LOGICAL_NOT, |context| {
        unary::<u8, u8>(context, |value| u8::from(value == 0))
    }),
];

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn bytes_above_1_are_true_and_results_are_0_or_1() {
        let both = |operation| {
            OneOperation::new(operation)
                .tensor(OperandType::TENSOR_BOOL8, &[3], &[0_u8, 2, 4])
                .tensor(OperandType::TENSOR_BOOL8, &[1], &[1_u8])
                .output(OperandType::TENSOR_BOOL8, &[])
                .run_one::<u8>()
                .unwrap()
                .1
        };
        assert_eq!(both(OperationType::LOGICAL_AND), [0, 1, 1]);
        assert_eq!(both(OperationType::LOGICAL_OR), [1, 1, 1]);
    }
}
