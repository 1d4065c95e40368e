//! SHAPE and BROADCAST_ARGS: dimensions of tensors, for where they come only at execution.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Ty};
use crate::{Shape, tflite};

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: tflite::SHAPE,
        variants: MOVED,
        forms: &[Form::default(&[Param::new("input", Ty::Var(0))])],
        outputs: &[Param::integers("dimensions")],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(as_long_as_the_rank),
    },
    OperationEntry {
        operation: tflite::BROADCAST_ARGS,
        variants: &[],
        forms: &[Form::default(&[
            Param::integers("dimensions0"),
            Param::integers("dimensions1"),
        ])],
        outputs: &[Param::integers("dimensions")],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(as_long_as_the_longer),
    },
];

/// As many elements as the longer of two lists.
fn as_long_as_the_longer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let [one, other] = [
        context.shape_of_rank(0, 1)?.dim(0),
        context.shape_of_rank(1, 1)?.dim(0),
    ];
    set(outputs, 0, shape_of(&[one.max(other)])?)
}

/// One element for each axis of the input, whose extents need not be known.
fn as_long_as_the_rank(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.required(0)?;
    if !input.rank_known {
        return Err(ShapeIssue::Unknown);
    }
    let rank = u32::try_from(input.shape.rank()).map_err(|error| OpError::operation(error.to_string()))?;
    set(outputs, 0, shape_of(&[rank])?)
}
