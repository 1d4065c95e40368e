//! Element-wise logic: LOGICAL_AND, LOGICAL_OR and LOGICAL_NOT.

use crate::{HalVersion, OperandType as T, OperationType};

use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

const TYPES: &[Variant] = &[Variant::new(HalVersion::V1_2, &[T::TENSOR_BOOL8])];

const ONE: &[Form] = &[Form::default(&[Param::new("input", Ty::Var(0))])];

const TWO: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)),
    Param::new("input1", Ty::Var(0)),
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

const fn entry(operation: OperationType, forms: &'static [Form], shape: ShapeRule) -> OperationEntry {
    OperationEntry {
        operation,
        variants: TYPES,
        forms,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape,
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    entry(
        OperationType::LOGICAL_AND,
        TWO,
        ShapeRule::Infer(shapes::broadcast_of_two),
    ),
    entry(
        OperationType::LOGICAL_OR,
        TWO,
        ShapeRule::Infer(shapes::broadcast_of_two),
    ),
    entry(
        OperationType::LOGICAL_NOT,
        ONE,
        ShapeRule::Infer(shapes::same_as_input),
    ),
];
