//! Lists of types that operations of the extension share.

use crate::ops::signature::Variant;
use crate::{HalVersion, OperandType as T};

use HalVersion::{V1_2, V1_3};

/// Floating-point numbers.
pub(super) const FLOATS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

/// Numbers that are no steps of a scale.
pub(super) const NUMBERS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
];

/// Integers, and steps of a scale, which count as integers.
pub(super) const INTEGERS_AND_STEPS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// All numbers.
pub(super) const NUMBERS_AND_STEPS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// Floating-point numbers, and steps of a scale.
pub(super) const FLOATS_AND_STEPS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// Everything that can be moved about without a look at it.
pub(super) const MOVED: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_BOOL8]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// Steps of 16 bits.
pub(super) const SIXTEEN_BIT: &[Variant] = &[Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM])];
