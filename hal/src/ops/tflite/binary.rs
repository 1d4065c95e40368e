//! Element-wise functions of two operands that broadcast.

use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::broadcast_of_two;
use crate::ops::signature::{Form, Param, Ty, Variant};
use crate::ops::{OpError, OperationContext, windows};
use crate::{OperandType as T, OperationType, tflite};

use super::types::{FLOATS, FLOATS_AND_STEPS, INTEGERS, INTEGERS_AND_STEPS, NUMBERS, NUMBERS_AND_STEPS};

const PLAIN: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)),
    Param::new("input1", Ty::Var(0)),
])];

const WITH_ACTIVATION: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)),
    Param::new("input1", Ty::Var(0)),
    Param::scalar("activation", T::INT32),
])];

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

const fn plain(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: PLAIN,
        outputs: OUTPUT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(broadcast_of_two),
    }
}

const fn with_activation(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        forms: WITH_ACTIVATION,
        check: check_activation,
        ..plain(operation, variants)
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    with_activation(tflite::ADD, NUMBERS_AND_STEPS),
    with_activation(tflite::SUB, NUMBERS_AND_STEPS),
    with_activation(tflite::MUL, NUMBERS_AND_STEPS),
    with_activation(tflite::DIV, NUMBERS),
    plain(tflite::MAXIMUM, NUMBERS_AND_STEPS),
    plain(tflite::MINIMUM, NUMBERS_AND_STEPS),
    plain(tflite::PRELU, FLOATS_AND_STEPS),
    plain(tflite::ATAN2, FLOATS),
    plain(tflite::BITWISE_AND, INTEGERS_AND_STEPS),
    plain(tflite::BITWISE_XOR, INTEGERS_AND_STEPS),
    plain(tflite::FLOOR_DIV, NUMBERS_AND_STEPS),
    plain(tflite::FLOOR_MOD, NUMBERS_AND_STEPS),
    plain(tflite::LEFT_SHIFT, INTEGERS_AND_STEPS),
    plain(tflite::RIGHT_SHIFT, INTEGERS_AND_STEPS),
    plain(tflite::TRUNCATED_DIV, INTEGERS),
];

/// The activation code must exist. Other than NNAPI's operations, these have one for integers too.
fn check_activation(context: &dyn OperationContext) -> Result<(), OpError> {
    windows::check_activation(context, 2)
}
