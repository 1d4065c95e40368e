//! Lists of types that operations of the extension share, and entries made of them.

use crate::ops::operation_entry::OperationEntry;
use crate::ops::signature::{Ty, Variant};
use crate::tflite::TENSOR_INT64;
use crate::{HalVersion, OperandType as T, OperationType};

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
    Variant::new(V1_2, &[TENSOR_INT64]),
];

/// Integers.
pub(super) const INTEGERS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[TENSOR_INT64]),
];

/// Integers, and steps of a scale, which count as integers.
pub(super) const INTEGERS_AND_STEPS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[TENSOR_INT64]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// All numbers.
pub(super) const NUMBERS_AND_STEPS: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[TENSOR_INT64]),
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
    Variant::new(V1_2, &[TENSOR_INT64]),
    Variant::new(V1_2, &[T::TENSOR_BOOL8]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM]),
];

/// The types of [`MOVED`] with their versions.
const MOVED_TYPES: [(T, HalVersion); MOVED.len()] = {
    let mut types = [(T::TENSOR_FLOAT32, V1_2); MOVED.len()];
    let mut index = 0;
    while index < types.len() {
        types[index] = (MOVED[index].types[0], MOVED[index].since);
        index += 1;
    }
    types
};

/// Any type of [`MOVED`], whatever the other arguments are.
pub(super) const ANY_MOVED: Ty = Ty::AnyOf(&MOVED_TYPES);

/// Indices into a tensor.
pub(super) const INDICES: Ty = Ty::AnyOf(&[(T::TENSOR_INT32, V1_2), (TENSOR_INT64, V1_2)]);

/// Steps of 16 bits.
pub(super) const SIXTEEN_BIT: &[Variant] = &[Variant::new(V1_2, &[T::TENSOR_QUANT16_SYMM])];

/// The entry of an operation that does what the one of the same number in a family of NNAPI's does, for these
/// types.
pub(super) const fn with_types(
    family: &'static [OperationEntry],
    operation: OperationType,
    variants: &'static [Variant],
) -> OperationEntry {
    let mut index = 0;
    while family[index].operation.0 != operation.0 & 0xFFFF {
        index += 1;
    }
    OperationEntry {
        operation,
        variants,
        ..family[index]
    }
}
