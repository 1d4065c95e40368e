//! SELECT: each element from one of two tensors, by a mask of the same shape.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::SELECT,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_INT32]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("condition", Ty::Is(T::TENSOR_BOOL8)),
        Param::new("input1", Ty::Var(0)),
        Param::new("input2", Ty::Var(0)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(select_shape),
}];

/// The one shape of all three inputs.
fn select_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    for index in [1, 2] {
        let other = context.shape(index)?;
        if other != shape {
            return Err(OpError::input(
                index,
                format!("has dimensions {other:?}, must have those of the condition, {shape:?}"),
            )
            .into());
        }
    }
    shapes::set(outputs, 0, shape)
}
