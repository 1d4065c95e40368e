//! Element-wise comparison of two operands: EQUAL, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL and NOT_EQUAL.

use crate::{HalVersion, OperandType as T, OperationType};

use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

const FORM: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)),
    Param::new("input1", Ty::Var(0)),
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Is(T::TENSOR_BOOL8))];

const TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_BOOL8]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const fn entry(operation: OperationType) -> OperationEntry {
    OperationEntry {
        operation,
        variants: TYPES,
        forms: FORM,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(shapes::broadcast_of_two),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(OperationType::EQUAL),
    entry(OperationType::GREATER),
    entry(OperationType::GREATER_EQUAL),
    entry(OperationType::LESS),
    entry(OperationType::LESS_EQUAL),
    entry(OperationType::NOT_EQUAL),
];
