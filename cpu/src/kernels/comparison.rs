//! Element-wise comparison of two operands: EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL and NOT_EQUAL.
//!
//! Quantised values of 8 bits are compared as the real numbers they stand for, in single precision as the HAL
//! reference does. Those of 16 bits, which only the extension takes, are compared as stored, as in TFLite.

use bytemuck::Pod;
use half::f16;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::broadcast::binary;
use super::element::{Quantized, by_element};
use crate::kernel::{Kernel, KernelContext, KernelError, Tensor};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (OperationType::EQUAL, equal),
    (OperationType::NOT_EQUAL, not_equal),
    (OperationType::GREATER, greater),
    (OperationType::GREATER_EQUAL, greater_equal),
    (OperationType::LESS, less),
    (OperationType::LESS_EQUAL, less_equal),
    (tflite::EQUAL, equal),
    (tflite::NOT_EQUAL, not_equal),
    (tflite::GREATER, greater),
    (tflite::GREATER_EQUAL, greater_equal),
    (tflite::LESS, less),
    (tflite::LESS_EQUAL, less_equal),
];

use std::cmp::Ordering::{self, Equal, Greater, Less};

fn equal(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| order == Some(Equal))
}

fn not_equal(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| order != Some(Equal))
}

fn greater(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| order == Some(Greater))
}

fn greater_equal(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| matches!(order, Some(Greater | Equal)))
}

fn less(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| order == Some(Less))
}

fn less_equal(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    compare(context, |order| matches!(order, Some(Less | Equal)))
}

/// Writes whether `holds` of the order of each pair; a NaN has no order to anything.
fn compare(
    context: &mut KernelContext<'_>,
    holds: impl Fn(Option<Ordering>) -> bool,
) -> Result<(), KernelError> {
    match context.inputs.tensor(0)?.ty() {
        // Every byte but 0 is true.
        OperandType::TENSOR_BOOL8 => binary::<u8, u8>(context, |left, right| {
            u8::from(holds(Some((left != 0).cmp(&(right != 0)))))
        }),
        _ => by_element!(context, {
            [f32, f16, i32, i64, i16] => plain(context, holds),
            [u8, i8] => quantized(context, holds),
        }),
    }
}

fn plain<T: Pod + PartialOrd>(
    context: &mut KernelContext<'_>,
    holds: impl Fn(Option<Ordering>) -> bool,
) -> Result<(), KernelError> {
    binary::<T, u8>(context, |left, right| u8::from(holds(left.partial_cmp(&right))))
}

fn quantized<T: Quantized>(
    context: &mut KernelContext<'_>,
    holds: impl Fn(Option<Ordering>) -> bool,
) -> Result<(), KernelError> {
    let real = |tensor: &Tensor<'_>| {
        let (scale, zero_point) = (tensor.scale(), tensor.zero_point());
        move |value: T| (value.to_i32() - zero_point) as f32 * scale
    };
    let (left_real, right_real) = (real(&context.inputs.tensor(0)?), real(&context.inputs.tensor(1)?));
    binary::<T, u8>(context, |left, right| {
        u8::from(holds(left_real(left).partial_cmp(&right_real(right))))
    })
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn of<T: bytemuck::Pod>(operation: OperationType, ty: OperandType, left: T, right: T) -> u8 {
        OneOperation::new(operation)
            .tensor(ty, &[1], &[left])
            .tensor(ty, &[1], &[right])
            .output(OperandType::TENSOR_BOOL8, &[])
            .run_one::<u8>()
            .unwrap()
            .1[0]
    }

    #[test]
    fn nan_differs_from_everything_and_has_no_order() {
        let nan = |operation| of(operation, OperandType::TENSOR_FLOAT32, f32::NAN, f32::NAN);
        assert_eq!(nan(OperationType::NOT_EQUAL), 1);
        for operation in [
            OperationType::EQUAL,
            OperationType::LESS_EQUAL,
            OperationType::GREATER_EQUAL,
        ] {
            assert_eq!(nan(operation), 0);
        }
    }

    #[test]
    fn integers_of_64_bits_have_the_order_of_all_their_bits() {
        let (left, right) = (1_i64 << 32, 1_i64);
        let wide = |operation| of(operation, tflite::TENSOR_INT64, left, right);
        assert_eq!((wide(tflite::GREATER), wide(tflite::LESS_EQUAL)), (1, 0));
        assert_eq!((wide(tflite::EQUAL), wide(tflite::NOT_EQUAL)), (0, 1));
        assert_eq!(of(tflite::EQUAL, tflite::TENSOR_INT64, left, left), 1);
    }

    #[test]
    fn every_byte_but_0_is_the_same_true() {
        assert_eq!(of(OperationType::EQUAL, OperandType::TENSOR_BOOL8, 1_u8, 255), 1);
        assert_eq!(of(OperationType::LESS, OperandType::TENSOR_BOOL8, 0_u8, 7), 1);
    }

    #[test]
    fn sixteen_bit_steps_are_compared_as_stored() {
        let steps = |scale| Operand::new(OperandType::TENSOR_QUANT16_SYMM, &[3]).with_quantization(scale, 0);
        let of = |operation| {
            OneOperation::new(operation)
                .operand(steps(0.5), &[-300_i16, 400, 2])
                .operand(steps(1.0), &[-150_i16, 400, 1])
                .output(OperandType::TENSOR_BOOL8, &[])
                .run_one::<u8>()
                .unwrap()
                .1
        };
        assert_eq!(of(tflite::EQUAL), [0, 1, 0]);
        assert_eq!(of(tflite::NOT_EQUAL), [1, 0, 1]);
        assert_eq!(of(tflite::GREATER), [0, 0, 1]);
        assert_eq!(of(tflite::GREATER_EQUAL), [0, 1, 1]);
        assert_eq!(of(tflite::LESS), [1, 0, 0]);
        assert_eq!(of(tflite::LESS_EQUAL), [1, 1, 0]);
    }
}
