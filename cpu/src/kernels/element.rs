//! The element types that kernels are generic over.

use half::f16;
use nnhal_hal::ops::OpError;
use nnhal_hal::{OperandType, tflite};

use crate::kernel::KernelError;

/// An element of tensors of one type, as [`by_element`] tells types apart.
pub(super) trait Element {
    /// That type.
    const TYPE: OperandType;
}

macro_rules! impl_element {
    ($($element:ty: $ty:path),+) => {
        $(
            impl Element for $element {
                const TYPE: OperandType = $ty;
            }
        )+
    };
}

impl_element!(f32: OperandType::TENSOR_FLOAT32, f16: OperandType::TENSOR_FLOAT16);
impl_element!(i32: OperandType::TENSOR_INT32, i64: tflite::TENSOR_INT64);
impl_element!(u8: OperandType::TENSOR_QUANT8_ASYMM, i8: OperandType::TENSOR_QUANT8_ASYMM_SIGNED);
impl_element!(i16: OperandType::TENSOR_QUANT16_SYMM);

/// Calls a function that is generic over the element type with that of input 0: `by_element!(context, {
/// [f32, f16] => float(context), [u8, i8] => quantized(context) })`. Other types are refused.
macro_rules! by_element {
    ($context:ident, { $([$($element:ty),+] => $function:ident $arguments:tt),+ $(,)? }) => {
        match $context.inputs.tensor(0)?.ty() {
            $($(
                ty if ty == <$element as $crate::kernels::element::Element>::TYPE => {
                    $function::<$element> $arguments
                }
            )+)+
            ty => Err($crate::kernels::element::not_taken(0, ty)),
        }
    };
}

pub(super) use by_element;

/// The error for an input of a type that an operation does not take.
pub(super) fn not_taken(input: usize, ty: OperandType) -> KernelError {
    OpError::input(input, format!("is {ty}, which this operation does not take")).into()
}

/// A floating-point element. Kernels compute in `f32` and round on output, as the HAL's reference does for
/// float16.
pub trait Float: bytemuck::Pod + PartialOrd {
    /// Widens.
    fn to_f32(self) -> f32;
    /// Rounds to nearest, ties to even.
    fn from_f32(value: f32) -> Self;
}

impl Float for f32 {
    #[inline]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline]
    fn from_f32(value: f32) -> f32 {
        value
    }
}

impl Float for f16 {
    #[inline]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

/// An integer of any type, as it is stored.
pub(super) trait Integer: bytemuck::Pod + Ord + Into<i64> {
    /// The lowest bits.
    fn wrap(value: i64) -> Self;
    /// The closest value.
    fn saturate(value: i64) -> Self;
}

macro_rules! impl_integer {
    ($($element:ty),+) => {
        $(
            impl Integer for $element {
                fn wrap(value: i64) -> $element {
                    value as $element
                }

                fn saturate(value: i64) -> $element {
                    value.clamp(<$element>::MIN as i64, <$element>::MAX as i64) as $element
                }
            }
        )+
    };
}

impl_integer!(i32, i64, u8, i8, i16);

/// A quantised element: one of 8 bits, or `i16` for `TENSOR_QUANT16_SYMM`.
pub trait Quantized: Send + Sync + bytemuck::Pod + Ord {
    /// The smallest value.
    const LEAST: i32;
    /// The largest value.
    const MOST: i32;
    /// Widens.
    fn to_i32(self) -> i32;
    /// Narrows a value, clamped to the type's range.
    fn saturate(value: i32) -> Self;
}

/// An 8-bit quantised element: `u8` for `TENSOR_QUANT8_ASYMM`, `i8` for the signed and symmetric types.
pub trait Quant8: Quantized {
    /// What stands for the same number in the unsigned twin of a tensor: as much above 0 as this is above the
    /// least value.
    #[inline(always)]
    fn to_unsigned(self) -> u8 {
        (self.to_i32() - Self::LEAST) as u8
    }

    /// The reverse of [`Quant8::to_unsigned`].
    #[inline(always)]
    fn from_unsigned(value: u8) -> Self {
        bytemuck::cast(value.wrapping_add(Self::LEAST as u8))
    }
}

macro_rules! impl_quantized {
    ($($element:ty),+) => {
        $(
            impl Quantized for $element {
                const LEAST: i32 = <$element>::MIN as i32;
                const MOST: i32 = <$element>::MAX as i32;

                #[inline]
                fn to_i32(self) -> i32 {
                    i32::from(self)
                }

                #[inline]
                fn saturate(value: i32) -> $element {
                    value.clamp(Self::LEAST, Self::MOST) as $element
                }
            }
        )+
    };
}

impl_quantized!(u8, i8, i16);

impl Quant8 for u8 {}
impl Quant8 for i8 {}

/// Whether elements of the type are `i8`.
#[must_use]
pub fn is_signed_8_bit(ty: OperandType) -> bool {
    matches!(
        ty,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED
            | OperandType::TENSOR_QUANT8_SYMM
            | OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL
    )
}
