//! Element-wise functions of one operand: activations, COS, FAKE_QUANT, GELU, NEG, ROUND and SIGN.

use crate::ops::activation;
use crate::ops::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
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
            Param::scalar("least", T::FLOAT32),
            Param::scalar("most", T::FLOAT32),
            Param::scalar("bits", T::INT32),
        ])],
        check: check_bits,
        ..unary(tflite::FAKE_QUANT, FLOATS)
    },
    OperationEntry {
        forms: &[Form::default(&[
            Param::new("input", Ty::Var(0)),
            Param::scalar("approximate", T::BOOL),
        ])],
        ..unary(tflite::GELU, FLOATS_AND_STEPS)
    },
    unary(tflite::NEG, NUMBERS),
    unary(tflite::ROUND, FLOATS),
    unary(tflite::RSQRT, SIXTEEN_BIT),
    unary(tflite::SIGN, NUMBERS),
];

/// How many bits FAKE_QUANT rounds to.
pub fn bits(context: &dyn OperationContext) -> Result<i32, ShapeIssue> {
    match context.i32(3)? {
        bits @ 2..=16 => Ok(bits),
        bits => Err(OpError::input(3, format!("(bits) is {bits}, must be from 2 to 16")).into()),
    }
}

fn check_bits(context: &dyn OperationContext) -> Result<(), OpError> {
    unless_unknown(bits(context))?;
    Ok(())
}
