//! Element-wise functions of one operand: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT.

use half::f16;
use nnhal_hal::{OperandType, OperationType};

use super::broadcast::{unary, unary_float};
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::ABS, |context| {
        float_or_integer(context, f32::abs, i32::wrapping_abs)
    }),
    (OperationType::NEG, |context| {
        float_or_integer(context, |value| -value, i32::wrapping_neg)
    }),
    (OperationType::EXP, |context| float(context, f32::exp)),
    (OperationType::FLOOR, |context| float(context, f32::floor)),
    (OperationType::LOG, |context| float(context, f32::ln)),
    (OperationType::RSQRT, |context| {
        float(context, |value| 1.0 / value.sqrt())
    }),
    (OperationType::SIN, |context| float(context, f32::sin)),
    (OperationType::SQRT, |context| float(context, f32::sqrt)),
];

fn float(context: &mut KernelContext<'_>, compute: impl Fn(f32) -> f32) -> Result<(), KernelError> {
    by_element!(context, { [f32, f16] => unary_float(context, compute) })
}

/// Integers wrap: the least one has no opposite.
fn float_or_integer(
    context: &mut KernelContext<'_>,
    compute: impl Fn(f32) -> f32,
    integer: impl Fn(i32) -> i32,
) -> Result<(), KernelError> {
    if context.inputs.tensor(0)?.ty() == OperandType::TENSOR_INT32 {
        unary::<i32, i32>(context, integer)
    } else {
        float(context, compute)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType};

    use crate::kernels::testing::OneOperation;

    #[test]
    fn the_least_integer_has_no_opposite_and_stays() {
        for operation in [OperationType::ABS, OperationType::NEG] {
            let (_, data) = OneOperation::new(operation)
                .tensor(OperandType::TENSOR_INT32, &[1], &[i32::MIN])
                .output(OperandType::TENSOR_INT32, &[])
                .run_one::<i32>()
                .unwrap();
            assert_eq!(data, [i32::MIN]);
        }
    }

    #[test]
    fn zero_and_negative_numbers_follow_ieee_754() {
        let of = |operation| {
            OneOperation::new(operation)
                .tensor(OperandType::TENSOR_FLOAT32, &[2], &[0.0_f32, -1.0])
                .output(OperandType::TENSOR_FLOAT32, &[])
                .run_one::<f32>()
                .unwrap()
                .1
        };
        let rsqrt = of(OperationType::RSQRT);
        assert!(rsqrt[0].is_infinite() && rsqrt[1].is_nan());
        let log = of(OperationType::LOG);
        assert!(log[0] == f32::NEG_INFINITY && log[1].is_nan());
    }
}
