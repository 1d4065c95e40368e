//! SPLIT: a tensor cut into equal parts along an axis.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::resolve_axis;
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::SPLIT,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_INT32]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::scalar("axis", T::INT32),
        Param::scalar("num_splits", T::INT32),
    ])],
    outputs: &[Param::new("outputs", Ty::Var(0))],
    outputs_repeat: true,
    check: check_parts,
    shape: ShapeRule::Infer(parts),
}];

fn check_parts(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    unless_unknown(count_parts(context))?;
    Ok(())
}

/// The number of parts, which must be that of the outputs.
fn count_parts(context: &dyn OperationContext) -> Result<u32, ShapeIssue> {
    let wanted = context.i32(2)?;
    let outputs = context.output_count();
    u32::try_from(wanted)
        .ok()
        .filter(|parts| *parts > 0 && *parts as usize == outputs)
        .ok_or_else(|| {
            let message = format!("(num_splits) is {wanted}, must be the number of outputs, {outputs}");
            OpError::input(2, message).into()
        })
}

fn parts(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let count = count_parts(context)?;
    let axis = context.i32(1)?;
    let mut shape = context.shape(0)?;
    let axis = resolve_axis(1, axis, shape.rank())?;
    let extent = shape.dim(axis);
    if !extent.is_multiple_of(count) {
        let message = format!("(input) has extent {extent} along axis {axis}, not a multiple of {count}");
        return Err(OpError::input(0, message).into());
    }
    shape.dims_mut()[axis] = extent / count;
    outputs.fill(shape);
    Ok(())
}
