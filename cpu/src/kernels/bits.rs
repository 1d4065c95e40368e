//! BITWISE_AND, BITWISE_XOR, LEFT_SHIFT and RIGHT_SHIFT of the extension, on integers as they are stored.

use nnhal_hal::{OperationType, tflite};

use super::broadcast::binary;
use super::element::by_element;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (
        tflite::BITWISE_AND,
        |context| by_element!(context, { [i32, i64, u8, i8, i16] => both(context) }),
    ),
    (
        tflite::BITWISE_XOR,
        |context| by_element!(context, { [i32, i64, u8, i8, i16] => exclusive_or(context) }),
    ),
    (
        tflite::LEFT_SHIFT,
        |context| by_element!(context, { [i32, i64, u8, i8, i16] => shift_left(context) }),
    ),
    (
        tflite::RIGHT_SHIFT,
        |context| by_element!(context, { [i32, i64, u8, i8, i16] => shift(context) }),
    ),
];

fn both<T: bytemuck::Pod + std::ops::BitAnd<Output = T>>(
    context: &mut KernelContext<'_>,
) -> Result<(), KernelError> {
    binary::<T, T>(context, |left, right| left & right)
}

fn exclusive_or<T: bytemuck::Pod + std::ops::BitXor<Output = T>>(
    context: &mut KernelContext<'_>,
) -> Result<(), KernelError> {
    binary::<T, T>(context, |left, right| left ^ right)
}

/// Where no bit stays, because there are fewer or their number is negative, the result is 0.
fn shift_left<T: bytemuck::Pod + std::ops::Shl<u32, Output = T> + Into<i64>>(
    context: &mut KernelContext<'_>,
) -> Result<(), KernelError> {
    binary::<T, T>(context, |value, bits| match u32::try_from(bits.into()) {
        Ok(bits) if bits < 8 * size_of::<T>() as u32 => value << bits,
        _ => T::zeroed(),
    })
}

/// Shifts by less than 0 bits count as 0, those by more than all bits but one as that. The sign stays.
fn shift<T: bytemuck::Pod + std::ops::Shr<u32, Output = T> + Into<i64>>(
    context: &mut KernelContext<'_>,
) -> Result<(), KernelError> {
    let most = size_of::<T>() as i64 * 8 - 1;
    binary::<T, T>(context, |value, bits| value >> bits.into().clamp(0, most) as u32)
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn of<E: bytemuck::Pod>(operation: OperationType, ty: T, left: &[E], right: &[E]) -> Vec<E> {
        let operand = |dims: &[u32]| match ty {
            T::TENSOR_INT32 | tflite::TENSOR_INT64 => Operand::new(ty, dims),
            _ => Operand::new(ty, dims).with_quantization(1.0, 0),
        };
        OneOperation::new(operation)
            .operand(operand(&[left.len() as u32]), left)
            .operand(operand(&[right.len() as u32]), right)
            .output_operand(operand(&[]))
            .run_one::<E>()
            .unwrap()
            .1
    }

    #[test]
    fn bits_that_differ_remain() {
        let xor = tflite::BITWISE_XOR;
        assert_eq!(
            of(xor, T::TENSOR_INT32, &[0b1100, -1], &[0b1010, 1]),
            [0b0110, -2]
        );
        assert_eq!(
            of(xor, T::TENSOR_QUANT8_ASYMM, &[0xF0_u8, 1], &[0xFF]),
            [0x0F, 0xFE]
        );
        assert_eq!(
            of(xor, tflite::TENSOR_INT64, &[3_i64 << 40], &[1 << 40]),
            [2 << 40]
        );
        assert_eq!(of(xor, T::TENSOR_QUANT16_SYMM, &[-1_i16], &[0x0FF0]), [!0x0FF0]);
    }

    #[test]
    fn bits_that_both_have_remain() {
        let and = tflite::BITWISE_AND;
        assert_eq!(
            of(and, T::TENSOR_INT32, &[0b1100, -1], &[0b1010, -8]),
            [0b1000, -8]
        );
        assert_eq!(
            of(and, tflite::TENSOR_INT64, &[3_i64 << 40], &[5 << 40]),
            [1 << 40]
        );
        assert_eq!(of(and, T::TENSOR_QUANT8_ASYMM, &[0xF3_u8, 1], &[0x3F]), [0x33, 1]);
        assert_eq!(of(and, T::TENSOR_QUANT8_ASYMM_SIGNED, &[-1_i8], &[-128]), [-128]);
        assert_eq!(of(and, T::TENSOR_QUANT16_SYMM, &[-1_i16], &[0x0FF0]), [0x0FF0]);
    }

    #[test]
    fn shifts_to_the_left_drop_what_has_no_room() {
        let shift = tflite::LEFT_SHIFT;
        assert_eq!(
            of(
                shift,
                T::TENSOR_INT32,
                &[1, 1, 1, 1, -1, 5],
                &[0, 31, 32, -1, 2, i32::MIN]
            ),
            [1, i32::MIN, 0, 0, -4, 0]
        );
        assert_eq!(of(shift, T::TENSOR_QUANT8_ASYMM, &[255_u8, 1], &[4, 8]), [240, 0]);
        assert_eq!(
            of(shift, T::TENSOR_QUANT8_ASYMM_SIGNED, &[1_i8, 3], &[7]),
            [-128; 2]
        );
        assert_eq!(of(shift, T::TENSOR_QUANT16_SYMM, &[1_i16], &[15]), [i16::MIN]);
        assert_eq!(
            of(shift, tflite::TENSOR_INT64, &[1_i64; 3], &[40, 63, 64]),
            [1 << 40, i64::MIN, 0]
        );
    }

    #[test]
    fn shifts_keep_the_sign_and_stay_within_the_type() {
        let shift = tflite::RIGHT_SHIFT;
        assert_eq!(
            of(
                shift,
                T::TENSOR_INT32,
                &[-16, -16, 16, 16, i32::MIN],
                &[2, 99, 99, -1, i32::MIN]
            ),
            [-4, -1, 0, 16, i32::MIN]
        );
        assert_eq!(
            of(shift, T::TENSOR_QUANT8_ASYMM, &[128_u8, 255], &[7, 200]),
            [1, 1]
        );
        assert_eq!(
            of(shift, T::TENSOR_QUANT8_ASYMM_SIGNED, &[-128_i8, 64], &[8, 6]),
            [-1, 1]
        );
        assert_eq!(of(shift, T::TENSOR_QUANT16_SYMM, &[-32768_i16], &[14]), [-2]);
        assert_eq!(
            of(shift, tflite::TENSOR_INT64, &[i64::MIN; 2], &[62, i64::MAX]),
            [-2, -1]
        );
    }
}
