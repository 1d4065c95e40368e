//! Element-wise functions of one operand: COS, GELU, ROUND and SIGN.

use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::same_as_input;
use crate::ops::signature::{Form, Param, Ty, Variant};
use crate::{OperandType as T, OperationType, tflite};

use super::types::{FLOATS, FLOATS_AND_STEPS, NUMBERS};

const INPUT: &[Form] = &[Form::default(&[Param::new("input", Ty::Var(0))])];

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

const fn unary(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: INPUT,
        outputs: OUTPUT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(same_as_input),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    unary(tflite::COS, FLOATS),
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::scalar("approximate", T::BOOL),
        ])],
        ..unary(tflite::GELU, FLOATS_AND_STEPS)
    },
    unary(tflite::ROUND, FLOATS),
    unary(tflite::SIGN, NUMBERS),
];
