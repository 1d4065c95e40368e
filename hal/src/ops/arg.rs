//! ARGMAX and ARGMIN: where along an axis the largest or smallest element is.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

const TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const FORM: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)),
    Param::scalar("axis", T::INT32),
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Is(T::TENSOR_INT32))];

const fn entry(operation: OperationType) -> OperationEntry {
    OperationEntry {
        operation,
        variants: TYPES,
        forms: FORM,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(arg_shape),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[entry(OperationType::ARGMAX), entry(OperationType::ARGMIN)];

/// The input's dimensions without the axis; one dimension of 1 if nothing is left.
fn arg_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    let axis = shapes::resolve_axis(1, context.i32(1)?, shape.rank())?;
    if shape.dim(axis) == 0 {
        return Err(OpError::input(0, format!("has no element along axis {axis}, must have one")).into());
    }
    let mut dims = [1; MAX_RANK];
    let mut rank = 0;
    for (at, &extent) in shape.dims().iter().enumerate() {
        if at != axis {
            dims[rank] = extent;
            rank += 1;
        }
    }
    shapes::set(outputs, 0, shapes::shape_of(&dims[..rank.max(1)])?)
}
