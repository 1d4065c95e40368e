//! The element types that kernels are generic over.

use half::f16;
use nnhal_hal::OperandType;

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

/// An 8-bit quantised element: `u8` for `TENSOR_QUANT8_ASYMM`, `i8` for the signed and symmetric types.
pub trait Quant8: Send + Sync + bytemuck::Pod + Ord {
    /// The smallest value.
    const LEAST: i32;
    /// The largest value.
    const MOST: i32;
    /// Widens.
    fn to_i32(self) -> i32;
    /// Narrows a value, clamped to the type's range.
    fn saturate(value: i32) -> Self;

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

impl Quant8 for u8 {
    const LEAST: i32 = 0;
    const MOST: i32 = 255;

    #[inline]
    fn to_i32(self) -> i32 {
        i32::from(self)
    }

    #[inline]
    fn saturate(value: i32) -> u8 {
        value.clamp(Self::LEAST, Self::MOST) as u8
    }
}

impl Quant8 for i8 {
    const LEAST: i32 = -128;
    const MOST: i32 = 127;

    #[inline]
    fn to_i32(self) -> i32 {
        i32::from(self)
    }

    #[inline]
    fn saturate(value: i32) -> i8 {
        value.clamp(Self::LEAST, Self::MOST) as i8
    }
}

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
