//! Changes of element type: QUANTIZE, DEQUANTIZE and CAST.

use crate::{HalVersion, OperandType as T, OperationType};

use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

const ANY_RANK: &[Form] = &[Form::default(&[Param::new("input", Ty::Var(0))])];

const UP_TO_4: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4))
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(1))];

const QUANTIZE_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_3, &[T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const DEQUANTIZE_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_SYMM, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_SYMM, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_SYMM_PER_CHANNEL, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_SYMM_PER_CHANNEL, T::TENSOR_FLOAT16]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT16]),
];

/// Every pair of four types, and since 1.3 the identity of some more.
const CAST_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_INT32, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_BOOL8, T::TENSOR_BOOL8]),
    Variant::new(V1_3, &[T::TENSOR_QUANT16_ASYMM, T::TENSOR_QUANT16_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT16_SYMM, T::TENSOR_QUANT16_SYMM]),
    Variant::new(
        V1_3,
        &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT8_ASYMM_SIGNED],
    ),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_SYMM, T::TENSOR_QUANT8_SYMM]),
];

const fn entry(
    operation: OperationType,
    variants: &'static [Variant],
    forms: &'static [Form],
) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(shapes::same_as_input),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(OperationType::QUANTIZE, QUANTIZE_TYPES, ANY_RANK),
    entry(OperationType::DEQUANTIZE, DEQUANTIZE_TYPES, UP_TO_4),
    entry(OperationType::CAST, CAST_TYPES, ANY_RANK),
];
