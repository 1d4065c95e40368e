//! GATHER: slices of a tensor along an axis, picked by indices.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{chained, resolve_axis, set};
use super::signature::{Form, Param, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::GATHER,
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
        Param::new("indices", Ty::Is(T::TENSOR_INT32)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(gathered),
}];

/// How many of the first axes input and indices share. The extension's operation says it; NNAPI's shares
/// none.
pub fn batch_axes(
    context: &dyn OperationContext,
    axis: usize,
    shape: &Shape,
    indices: &Shape,
) -> Result<usize, ShapeIssue> {
    let given = context.i32_or(3, 0)?;
    let counted = if given < 0 {
        i64::from(given) + indices.rank() as i64
    } else {
        i64::from(given)
    };
    let most = axis.min(indices.rank());
    let count = usize::try_from(counted)
        .ok()
        .filter(|count| *count <= most)
        .ok_or_else(|| {
            let message = format!("(batch_dims) is {given}, must be from 0 to {most}");
            OpError::input(3, message)
        })?;
    if shape.dims()[..count] != indices.dims()[..count] {
        let message = format!(
            "(indices) has dimensions {indices:?}, must begin with the first {count} of input 0, {shape:?}"
        );
        return Err(OpError::input(2, message).into());
    }
    Ok(count)
}

/// The input's dimensions with those of the indices in place of the axis. Axes that both share come once.
fn gathered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, indices) = (context.shape(0)?, context.shape(2)?);
    let axis = resolve_axis(1, context.i32(1)?, shape.rank())?;
    let batch = batch_axes(context, axis, &shape, &indices)?;
    let (front, back) = (&shape.dims()[..axis], &shape.dims()[axis + 1..]);
    set(outputs, 0, chained(&[front, &indices.dims()[batch..], back])?)
}
