//! FILL of every type, BROADCAST_TO and ONE_HOT.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::fill;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use crate::ops::shapes::{broadcast, chained, set};
use crate::ops::signature::{Form, Param, Ty};
use crate::{OperandType as T, Shape, tflite};

use super::types::{INDICES, MOVED, with_types};

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        forms: &[Form::default(&[
            Param::integers("dims"),
            Param::new("value", Ty::Var(0)),
        ])],
        outputs: OUTPUT,
        check: |context| context.check_same_quantization(1, 0),
        ..with_types(fill::ENTRIES, tflite::FILL, MOVED)
    },
    OperationEntry {
        operation: tflite::BROADCAST_TO,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::integers("shape"),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: keeps_quantization,
        shape: ShapeRule::Infer(repeated),
    },
    OperationEntry {
        operation: tflite::ONE_HOT,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("indices", INDICES),
            Param::new("depth", Ty::Is(T::TENSOR_INT32)),
            Param::new("on_value", Ty::Var(0)),
            Param::new("off_value", Ty::Var(0)),
            Param::scalar("axis", T::INT32),
        ])],
        outputs: OUTPUT,
        outputs_repeat: false,
        check: |context| {
            context.check_same_quantization(2, 0)?;
            context.check_same_quantization(3, 0)
        },
        shape: ShapeRule::Infer(one_hot),
    },
];

/// The dimensions that input 1 holds, to which input 0 broadcasts.
fn repeated(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.shape(0)?;
    let shape = fill::shape_in(context, 1, "shape")?;
    if broadcast(&input, &shape) != Ok(shape) {
        let message = format!("(input) has dimensions {input:?}, which does not broadcast to {shape:?}");
        return Err(OpError::input(0, message).into());
    }
    set(outputs, 0, shape)
}

/// The new axis of ONE_HOT for indices of this rank; -1 puts it behind all others.
pub fn new_axis(context: &dyn OperationContext, rank: usize) -> Result<usize, ShapeIssue> {
    let axis = context.i32(4)?;
    if axis == -1 {
        return Ok(rank);
    }
    let found = usize::try_from(axis).ok().filter(|axis| *axis <= rank);
    found.ok_or_else(|| {
        let message = format!("(axis) is {axis}, must be -1 or from 0 to {rank}");
        OpError::input(4, message).into()
    })
}

/// The dimensions of the indices with one more axis, as long as input 1 says.
fn one_hot(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let indices = context.shape(0)?;
    let axis = new_axis(context, indices.rank())?;
    let depth = context.i32(1)?;
    let depth = u32::try_from(depth).map_err(|_| {
        let message = format!("(depth) is {depth}, must not be negative");
        OpError::input(1, message)
    })?;
    let (front, back) = indices.dims().split_at(axis);
    set(outputs, 0, chained(&[front, &[depth], back])?)
}
