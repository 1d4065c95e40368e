//! SELECT with broadcasting, and comparisons of more types.

use crate::ops::comparison;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{broadcast, set};
use crate::ops::signature::{Form, Param, Ty};
use crate::ops::{OperationContext, ShapeIssue};
use crate::{OperandType as T, OperationType, Shape, tflite};

use super::types::MOVED;
use super::types::with_types;

const fn compared(operation: OperationType) -> OperationEntry {
    with_types(comparison::ENTRIES, operation, MOVED)
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    compared(tflite::EQUAL),
    compared(tflite::GREATER),
    compared(tflite::GREATER_EQUAL),
    compared(tflite::LESS),
    compared(tflite::LESS_EQUAL),
    compared(tflite::NOT_EQUAL),
    OperationEntry {
        operation: tflite::SELECT,
        variants: MOVED,
        forms: &[Form::default(&[
            Param::new("condition", Ty::Is(T::TENSOR_BOOL8)),
            Param::new("input1", Ty::Var(0)),
            Param::new("input2", Ty::Var(0)),
        ])],
        outputs: &[Param::new("output", Ty::Var(0))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(broadcast_of_three),
    },
];

/// The shape that the condition and both choices broadcast to.
fn broadcast_of_three(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let choices = broadcast(&context.shape(1)?, &context.shape(2)?)?;
    set(outputs, 0, broadcast(&context.shape(0)?, &choices)?)
}
