//! Element-wise arithmetic on two operands: ADD, MUL, SUB, DIV, MAXIMUM, MINIMUM and POW.

use crate::{HalVersion, OperandType as T, OperationType};

use super::context::{OpError, OperationContext, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

const UP_TO_4: Rank = Rank::Between(1, 4);

const WITH_ACTIVATION: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)).rank(UP_TO_4),
    Param::new("input1", Ty::Var(0)).rank(UP_TO_4),
    Param::scalar("activation", T::INT32),
])];

const PLAIN: &[Form] = &[Form::default(&[
    Param::new("input0", Ty::Var(0)),
    Param::new("input1", Ty::Var(0)),
])];

const RESULT: &[Param] = &[Param::new("result", Ty::Var(0))];

const ADD_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_3, &[T::TENSOR_INT32]),
];

/// MUL, which gives quantised values only where they are coarse enough.
const MUL_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]).only_if(result_coarser_than_product),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]).only_if(result_coarser_than_product),
    Variant::new(V1_3, &[T::TENSOR_INT32]),
];

/// SUB, which took its quantised form in 1.2.
const SUB_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    Variant::new(V1_3, &[T::TENSOR_INT32]),
];

const DIV_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_3, &[T::TENSOR_INT32]),
];

const EXTREMUM_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_INT32]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const POW_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

const fn with_activation(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: WITH_ACTIVATION,
        outputs: RESULT,
        outputs_repeat: false,
        check: check_activation,
        shape: ShapeRule::Infer(shapes::broadcast_of_two),
    }
}

const fn plain(operation: OperationType, variants: &'static [Variant]) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: PLAIN,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(shapes::broadcast_of_two),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    with_activation(OperationType::ADD, ADD_TYPES),
    with_activation(OperationType::MUL, MUL_TYPES),
    with_activation(OperationType::SUB, SUB_TYPES),
    with_activation(OperationType::DIV, DIV_TYPES),
    plain(OperationType::MAXIMUM, EXTREMUM_TYPES),
    plain(OperationType::MINIMUM, EXTREMUM_TYPES),
    plain(OperationType::POW, POW_TYPES),
];

/// The activation code must exist; integers take none.
fn check_activation(context: &dyn OperationContext) -> Result<(), OpError> {
    let Some(code) = unless_unknown(context.i32(2))? else {
        return Ok(());
    };
    if !(0..=3).contains(&code) {
        return Err(OpError::input(
            2,
            format!("(activation) is {code}, must be 0 to 3"),
        ));
    }
    if code != 0 && context.required(0)?.ty() == T::TENSOR_INT32 {
        return Err(OpError::input(
            2,
            format!("(activation) is {code}, must be 0 (NONE) for TENSOR_INT32"),
        ));
    }
    Ok(())
}

/// A quantised product must not be finer than its factors allow: output scale > scale0 * scale1.
fn result_coarser_than_product(context: &dyn OperationContext) -> Result<(), OpError> {
    let (left, right) = (context.required(0)?.operand, context.required(1)?.operand);
    let output = context.required_output(0)?.operand;
    if output.scale > left.scale * right.scale {
        return Ok(());
    }
    Err(OpError::output(
        0,
        format!(
            "has scale {}, must be above {} * {}",
            output.scale, left.scale, right.scale
        ),
    ))
}
