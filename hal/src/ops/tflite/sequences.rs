//! REVERSE_SEQUENCE: the first elements along an axis in the opposite order, as many as each batch says.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{resolve_axis, set};
use crate::ops::signature::{Form, Param, Ty};
use crate::{OperandType as T, Shape, tflite};

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::REVERSE_SEQUENCE,
    variants: MOVED,
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)),
        Param::integers("lengths"),
        Param::scalar("sequence_axis", T::INT32),
        Param::scalar("batch_axis", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(reversed),
}];

/// The axis of the sequences and that of the batches, of a tensor of this rank.
pub fn axes(context: &dyn OperationContext, rank: usize) -> Result<(usize, usize), ShapeIssue> {
    let sequence = resolve_axis(2, context.i32(2)?, rank)?;
    let batch = resolve_axis(3, context.i32(3)?, rank)?;
    if sequence == batch {
        let message = format!("(batch_axis) is {batch}, must be another than that of the sequences");
        return Err(OpError::input(3, message).into());
    }
    Ok((sequence, batch))
}

/// The shape of the input; each batch needs a length.
fn reversed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (shape, lengths) = (context.shape(0)?, context.shape_of_rank(1, 1)?);
    let (_, batch) = axes(context, shape.rank())?;
    if lengths.dim(0) != shape.dim(batch) {
        let message = format!(
            "(lengths) has {} elements, must have {}, the extent of axis {batch}",
            lengths.dim(0),
            shape.dim(batch)
        );
        return Err(OpError::input(1, message).into());
    }
    set(outputs, 0, shape)
}
