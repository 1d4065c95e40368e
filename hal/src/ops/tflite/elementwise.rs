//! Element-wise functions of one operand: activations, COS, GELU, ROUND and SIGN.

use crate::ops::activation;
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::same_as_input;
use crate::ops::signature::{Form, Param, Ty, Variant};
use crate::{OperandType as T, OperationType, tflite};

use super::types::{FLOATS, FLOATS_AND_STEPS, NUMBERS, SIXTEEN_BIT, with_types};

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

/// With the rules of NNAPI's activation.
const fn activation(operation: OperationType) -> OperationEntry {
    OperationEntry {
        forms: INPUT,
        ..with_types(activation::ENTRIES, operation, FLOATS_AND_STEPS)
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    activation(tflite::LOGISTIC),
    activation(tflite::RELU),
    activation(tflite::RELU1),
    activation(tflite::RELU6),
    activation(tflite::TANH),
    unary(tflite::COS, FLOATS),
    unary(tflite::EXP, SIXTEEN_BIT),
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::scalar("approximate", T::BOOL),
        ])],
        ..unary(tflite::GELU, FLOATS_AND_STEPS)
    },
    unary(tflite::ROUND, FLOATS),
    unary(tflite::RSQRT, SIXTEEN_BIT),
    unary(tflite::SIGN, NUMBERS),
];
