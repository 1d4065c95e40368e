//! PRELU: the identity above 0, a slope of its own for each element below.

use crate::{HalVersion, OperandType as T, OperationType};

use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::PRELU,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::new("alpha", Ty::Var(0)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(shapes::broadcast_of_two),
}];
