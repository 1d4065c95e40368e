//! SELECT with broadcasting, and comparisons of more types.

use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::shapes::{broadcast, set};
use crate::ops::{OperationContext, ShapeIssue, comparison, select};
use crate::{OperationType, Shape, tflite};

use super::types::{MOVED, with_types};

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
        shape: ShapeRule::Infer(broadcast_of_three),
        ..with_types(select::ENTRIES, tflite::SELECT, MOVED)
    },
];

/// The shape that the condition and both choices broadcast to.
fn broadcast_of_three(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let choices = broadcast(&context.shape(1)?, &context.shape(2)?)?;
    set(outputs, 0, broadcast(&context.shape(0)?, &choices)?)
}
