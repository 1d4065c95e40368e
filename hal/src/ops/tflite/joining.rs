//! CONCATENATION of every type and rank.

use crate::ops::concatenation::{check_axis, joined};
use crate::ops::operation_entry::{OperationEntry, ShapeRule};
use crate::ops::signature::{Form, Param, Ty};
use crate::tflite;

use super::types::MOVED;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: tflite::CONCATENATION,
    variants: MOVED,
    forms: &[Form::default(&[
        Param::new("inputs", Ty::Var(0)).repeated(),
        Param::scalar("axis", crate::OperandType::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: check_axis,
    shape: ShapeRule::Infer(joined),
}];
