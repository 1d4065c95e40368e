//! CAST of the extension: numbers and truth values from any type to any other, as TFLite converts them.
//!
//! Quantised elements are taken as stored. Fractions are cut off, floats beyond an integer type become its
//! closest value, what is no number its largest, and integers beyond it wrap, or become its closest value
//! where the operation says so. What is not 0 is true.

use half::f16;
use nnhal_hal::{OperandType as T, OperationType, tflite};

use super::broadcast::unary;
use super::element::not_taken;
use crate::kernel::{Kernel, KernelContext, KernelError};

pub(super) const KERNELS: &[(OperationType, Kernel)] = &[(tflite::CAST, cast)];

/// A value between two types.
#[derive(Clone, Copy)]
enum Number {
    Real(f32),
    Whole(i64),
}

impl Number {
    /// The closest whole number from `least` to `most`, of a whole number.
    fn within(self, (least, most): (i64, i64)) -> Number {
        match self {
            Number::Whole(value) => Number::Whole(value.clamp(least, most)),
            real => real,
        }
    }
}

/// What can be converted.
trait Convert: bytemuck::Pod {
    /// The least and the largest whole number that it is not wrapped to have.
    const RANGE: (i64, i64) = (i64::MIN, i64::MAX);
    fn number(self) -> Number;
    fn of(number: Number) -> Self;
}

macro_rules! impl_convert {
    ($($element:ty),+) => {
        $(
            impl Convert for $element {
                const RANGE: (i64, i64) = (<$element>::MIN as i64, <$element>::MAX as i64);

                fn number(self) -> Number {
                    Number::Whole(self.into())
                }

                fn of(number: Number) -> $element {
                    match number {
                        Number::Real(value) if value.is_nan() => <$element>::MAX,
                        Number::Real(value) => value as $element,
                        Number::Whole(value) => value as $element,
                    }
                }
            }
        )+
    };
}

impl_convert!(i64, i32, i16, i8, u8);

impl Convert for f32 {
    fn number(self) -> Number {
        Number::Real(self)
    }

    fn of(number: Number) -> f32 {
        match number {
            Number::Real(value) => value,
            Number::Whole(value) => value as f32,
        }
    }
}

impl Convert for f16 {
    fn number(self) -> Number {
        Number::Real(self.to_f32())
    }

    fn of(number: Number) -> f16 {
        f16::from_f32(f32::of(number))
    }
}

/// A truth value: any byte but 0 is true.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
struct Truth(u8);

impl Convert for Truth {
    fn number(self) -> Number {
        Number::Whole(i64::from(self.0 != 0))
    }

    fn of(number: Number) -> Truth {
        Truth(u8::from(match number {
            Number::Real(value) => value != 0.0,
            Number::Whole(value) => value != 0,
        }))
    }
}

/// Calls a function with the element of a type behind its other type arguments.
macro_rules! with_element {
    ($ty:expr, $index:literal, $function:ident $(::<$first:ty>)? ($context:ident)) => {
        match $ty {
            T::TENSOR_FLOAT32 => $function::<$($first,)? f32>($context),
            T::TENSOR_FLOAT16 => $function::<$($first,)? f16>($context),
            T::TENSOR_INT32 => $function::<$($first,)? i32>($context),
            tflite::TENSOR_INT64 => $function::<$($first,)? i64>($context),
            T::TENSOR_BOOL8 => $function::<$($first,)? Truth>($context),
            T::TENSOR_QUANT8_ASYMM => $function::<$($first,)? u8>($context),
            T::TENSOR_QUANT8_ASYMM_SIGNED => $function::<$($first,)? i8>($context),
            T::TENSOR_QUANT16_SYMM => $function::<$($first,)? i16>($context),
            ty => Err(not_taken($index, ty)),
        }
    };
}

fn cast(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_element!(context.inputs.tensor(0)?.ty(), 0, cast_from(context))
}

fn cast_from<From: Convert>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    with_element!(context.outputs.tensor(0)?.ty(), 0, convert::<From>(context))
}

fn convert<From: Convert, To: Convert>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    if context.inputs.bool_or(1, false)? {
        unary::<From, To>(context, |value| To::of(value.number().within(To::RANGE)))
    } else {
        unary::<From, To>(context, |value| To::of(value.number()))
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType as T, tflite};

    use crate::kernels::testing::OneOperation;

    fn cast<A: bytemuck::Pod, B: bytemuck::Pod>(from: T, values: &[A], to: T) -> Vec<B> {
        let operand = |ty: T, dims: &[u32]| match ty {
            T::TENSOR_QUANT8_ASYMM | T::TENSOR_QUANT8_ASYMM_SIGNED | T::TENSOR_QUANT16_SYMM => {
                Operand::new(ty, dims).with_quantization(0.25, 0)
            }
            _ => Operand::new(ty, dims),
        };
        OneOperation::new(tflite::CAST)
            .operand(operand(from, &[values.len() as u32]), values)
            .output_operand(operand(to, &[]))
            .run_one::<B>()
            .unwrap()
            .1
    }

    #[test]
    fn fractions_are_cut_off_and_floats_saturate() {
        let values = [-1.9_f32, 1.9, 1e30, f32::NEG_INFINITY, f32::NAN];
        let found: Vec<i16> = cast(T::TENSOR_FLOAT32, &values, T::TENSOR_QUANT16_SYMM);
        assert_eq!(found, [-1, 1, i16::MAX, i16::MIN, i16::MAX]);
        let found: Vec<i8> = cast(T::TENSOR_FLOAT32, &values, T::TENSOR_QUANT8_ASYMM_SIGNED);
        assert_eq!(found, [-1, 1, 127, -128, 127]);
    }

    #[test]
    fn integers_wrap_and_steps_count_as_stored() {
        let found: Vec<i8> = cast(T::TENSOR_INT32, &[-1, 128, 300], T::TENSOR_QUANT8_ASYMM_SIGNED);
        assert_eq!(found, [-1, -128, 44]);
        let found: Vec<f32> = cast(T::TENSOR_QUANT16_SYMM, &[-7_i16, 9], T::TENSOR_FLOAT32);
        assert_eq!(found, [-7.0, 9.0]);
    }

    #[test]
    fn integers_of_64_bits_keep_what_has_no_room_in_32() {
        let wide = [1_i64 << 40, -(1 << 40) - 1, i64::MIN, 7];
        let found: Vec<f32> = cast(tflite::TENSOR_INT64, &wide, T::TENSOR_FLOAT32);
        assert_eq!(found, wide.map(|value| value as f32));
        let found: Vec<i32> = cast(tflite::TENSOR_INT64, &wide, T::TENSOR_INT32);
        assert_eq!(found, [0, -1, 0, 7]);
        let found: Vec<i64> = cast(T::TENSOR_INT32, &[i32::MIN, -1, 5], tflite::TENSOR_INT64);
        assert_eq!(found, [i32::MIN.into(), -1, 5]);
        let reals = [1e12_f32, -1e30, f32::NAN, -1.5];
        let found: Vec<i64> = cast(T::TENSOR_FLOAT32, &reals, tflite::TENSOR_INT64);
        assert_eq!(found, [999_999_995_904, i64::MIN, i64::MAX, -1]);
        let found: Vec<u8> = cast(tflite::TENSOR_INT64, &[1_i64 << 32, 0], T::TENSOR_BOOL8);
        assert_eq!(found, [1, 0]);
    }

    #[test]
    fn integers_saturate_where_the_operation_says_so() {
        let of = |saturates: u8| {
            OneOperation::new(tflite::CAST)
                .tensor(tflite::TENSOR_INT64, &[3], &[1_i64 << 32, -(1 << 32), -5])
                .tensor(T::BOOL, &[], &[saturates])
                .output(T::TENSOR_INT32, &[])
                .run_one::<i32>()
                .unwrap()
                .1
        };
        assert_eq!(of(1), [i32::MAX, i32::MIN, -5]);
        assert_eq!(of(0), [0, 0, -5]);
    }

    #[test]
    fn truth_is_1_and_all_but_0_is_true() {
        let found: Vec<f32> = cast(T::TENSOR_BOOL8, &[0_u8, 1, 255], T::TENSOR_FLOAT32);
        assert_eq!(found, [0.0, 1.0, 1.0]);
        let found: Vec<u8> = cast(
            T::TENSOR_FLOAT32,
            &[0.0_f32, -0.0, 0.1, f32::NAN],
            T::TENSOR_BOOL8,
        );
        assert_eq!(found, [0, 0, 1, 1]);
        let found: Vec<u8> = cast(T::TENSOR_INT32, &[0, 256], T::TENSOR_BOOL8);
        assert_eq!(found, [0, 1]);
    }
}
