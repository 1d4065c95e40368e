//! FLOOR_DIV, FLOOR_MOD and TRUNCATED_DIV of the extension: quotients rounded down, what they leave, and
//! quotients rounded towards 0.
//!
//! A divisor of 0 is an error, as in TFLite's kernels, but where floats leave a remainder: that is no number.
//! Quantised elements are taken as stored.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperationType, tflite};

use super::broadcast::{binary, binary_float};
use super::element::{Float, Integer, by_element};
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[
    (tflite::FLOOR_DIV, |context| {
        by_element!(context, {
            [f32, f16] => float_quotient(context),
            [i32, i64, u8, i8, i16] => integers(context, floored_quotient),
        })
    }),
    (tflite::FLOOR_MOD, |context| {
        by_element!(context, {
            [f32, f16] => binary_float(context, float_remainder),
            [i32, i64, u8, i8, i16] => integers(context, remainder),
        })
    }),
    (
        tflite::TRUNCATED_DIV,
        |context| by_element!(context, { [i32, i64] => integers(context, i64::wrapping_div) }),
    ),
];

fn float_remainder(left: f32, right: f32) -> f32 {
    let remainder = left % right;
    if remainder != 0.0 && (remainder < 0.0) != (right < 0.0) {
        remainder + right
    } else {
        remainder
    }
}

/// The quotient rounded down; that of the least integer by -1 wraps.
pub(super) fn floored_quotient(left: i64, right: i64) -> i64 {
    let inexact = left.wrapping_rem(right) != 0;
    left.wrapping_div(right) - i64::from(inexact && (left < 0) != (right < 0))
}

fn remainder(left: i64, right: i64) -> i64 {
    left.wrapping_sub(floored_quotient(left, right).wrapping_mul(right))
}

fn float_quotient<T: Float>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    check_divisors::<T>(context)?;
    binary_float::<T>(context, |left, right| {
        (f64::from(left) / f64::from(right)).floor() as f32
    })
}

fn integers<T: Integer>(
    context: &mut KernelContext<'_>,
    compute: fn(i64, i64) -> i64,
) -> Result<(), KernelError> {
    check_divisors::<T>(context)?;
    binary::<T, T>(context, |left, right| T::wrap(compute(left.into(), right.into())))
}

fn check_divisors<T: bytemuck::Pod + PartialEq>(context: &KernelContext<'_>) -> Result<(), KernelError> {
    match context
        .inputs
        .data::<T>(1)?
        .iter()
        .position(|divisor| *divisor == T::zeroed())
    {
        Some(at) => Err(OpError::input(
            1,
            format!("(divisor) is 0 at element {at}, must be another number"),
        )
        .into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, OperationType, tflite};

    use crate::kernels::testing::OneOperation;

    fn of<E: bytemuck::Pod>(
        operation: OperationType,
        ty: T,
        left: &[E],
        right: &[E],
    ) -> Result<Vec<E>, String> {
        let operand = |dims: &[u32]| match ty {
            T::TENSOR_FLOAT32 | T::TENSOR_INT32 | tflite::TENSOR_INT64 => Operand::new(ty, dims),
            _ => Operand::new(ty, dims).with_quantization(1.0, 0),
        };
        let (_, data) = OneOperation::new(operation)
            .operand(operand(&[left.len() as u32]), left)
            .operand(operand(&[right.len() as u32]), right)
            .output_operand(operand(&[]))
            .run_one::<E>()?;
        Ok(data)
    }

    #[test]
    fn quotients_are_rounded_down_and_remainders_have_the_sign_of_the_divisor() {
        let (left, right) = ([7, -7, 7, -7, 6, i32::MIN], [2, 2, -2, -2, 3, -1]);
        assert_eq!(
            of(tflite::FLOOR_DIV, T::TENSOR_INT32, &left, &right).unwrap(),
            [3, -4, -4, 3, 2, i32::MIN]
        );
        assert_eq!(
            of(tflite::FLOOR_MOD, T::TENSOR_INT32, &left, &right).unwrap(),
            [1, 1, -1, -1, 0, 0]
        );
        let (left, right) = ([i64::MIN, 7 << 40, i64::MIN, -1], [-1, -2, 3, 1 << 40]);
        assert_eq!(
            of(tflite::FLOOR_DIV, tflite::TENSOR_INT64, &left, &right).unwrap(),
            [i64::MIN, -(7 << 39), i64::MIN / 3 - 1, -1]
        );
        assert_eq!(
            of(tflite::FLOOR_MOD, tflite::TENSOR_INT64, &left, &right).unwrap(),
            [0, 0, 1, (1 << 40) - 1]
        );
        let (left, right) = ([7.5_f32, -7.5, 7.5, -7.5], [2.0, 2.0, -2.0, -2.0]);
        assert_eq!(
            of(tflite::FLOOR_DIV, T::TENSOR_FLOAT32, &left, &right).unwrap(),
            [3.0, -4.0, -4.0, 3.0]
        );
        assert_eq!(
            of(tflite::FLOOR_MOD, T::TENSOR_FLOAT32, &left, &right).unwrap(),
            [1.5, 0.5, -0.5, -1.5]
        );
    }

    #[test]
    fn truncated_quotients_are_rounded_towards_0() {
        let (left, right) = ([7, -7, 7, -7, i32::MIN], [2, 2, -2, -2, -1]);
        let divided = of(tflite::TRUNCATED_DIV, T::TENSOR_INT32, &left, &right);
        assert_eq!(divided.unwrap(), [3, -3, -3, 3, i32::MIN]);
        let divided = of(
            tflite::TRUNCATED_DIV,
            tflite::TENSOR_INT64,
            &[i64::MIN, -7 << 33],
            &[-1, 2 << 33],
        );
        assert_eq!(divided.unwrap(), [i64::MIN, -3]);
    }

    #[test]
    fn steps_count_as_stored() {
        assert_eq!(
            of(
                tflite::FLOOR_DIV,
                T::TENSOR_QUANT8_ASYMM_SIGNED,
                &[-7_i8, -128],
                &[2, -1]
            )
            .unwrap(),
            [-4, -128]
        );
        assert_eq!(
            of(tflite::FLOOR_MOD, T::TENSOR_QUANT16_SYMM, &[-700_i16], &[300]).unwrap(),
            [200]
        );
    }

    #[test]
    fn divisors_of_0_give_an_error() {
        for operation in [tflite::FLOOR_DIV, tflite::FLOOR_MOD, tflite::TRUNCATED_DIV] {
            let error = of(operation, T::TENSOR_INT32, &[1, 1], &[1, 0]).unwrap_err();
            assert!(error.contains("(divisor) is 0 at element 1"), "{error}");
        }
        assert!(of(tflite::FLOOR_DIV, T::TENSOR_FLOAT32, &[1.0_f32], &[-0.0]).is_err());
        let remainders = of(tflite::FLOOR_MOD, T::TENSOR_FLOAT32, &[1.0_f32], &[0.0]).unwrap();
        assert!(remainders[0].is_nan());
    }
}
