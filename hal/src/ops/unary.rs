//! Element-wise functions of one operand: ABS, EXP, FLOOR, LOG, NEG, RSQRT, SIN and SQRT.

use crate::{HalVersion, OperandType as T, OperationType};

use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{Level7, V1_0, V1_2, V1_3};

const ANY_RANK: &[Form] = &[Form::default(&[Param::new("input", Ty::Var(0))])];

const UP_TO_4: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4))
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

const FLOAT_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

const FLOOR_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

const ABS_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_3, &[T::TENSOR_INT32]),
];

const NEG_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
];

const RSQRT_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
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
    entry(OperationType::ABS, ABS_TYPES, ANY_RANK),
    entry(OperationType::EXP, FLOAT_TYPES, ANY_RANK),
    entry(OperationType::FLOOR, FLOOR_TYPES, UP_TO_4),
    entry(OperationType::LOG, FLOAT_TYPES, ANY_RANK),
    entry(OperationType::NEG, NEG_TYPES, ANY_RANK),
    entry(OperationType::RSQRT, RSQRT_TYPES, ANY_RANK),
    entry(OperationType::SIN, FLOAT_TYPES, ANY_RANK),
    entry(OperationType::SQRT, FLOAT_TYPES, ANY_RANK),
];
