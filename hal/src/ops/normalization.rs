//! Normalisation: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION and INSTANCE_NORMALIZATION.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{DefaultValue, Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

/// Before 1.2 the rank is 4 and the axis is the last.
const RANK_4: Param = Param::new("input", Ty::Var(0)).rank(Rank::Is(4));
const UP_TO_4: Param = Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4));
const AXIS: Param = Param::scalar("axis", T::INT32)
    .default(DefaultValue::Int32(-1))
    .trailing(V1_2);
const RADIUS: Param = Param::scalar("radius", T::INT32);
const BIAS: Param = Param::new("bias", Ty::Var(1));
const ALPHA: Param = Param::new("alpha", Ty::Var(1));
const BETA: Param = Param::new("beta", Ty::Var(1));

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::L2_NORMALIZATION,
        variants: &[
            Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
            Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        forms: &[
            Form::named("rank 4, last axis", &[RANK_4]),
            Form {
                name: "any axis",
                since: V1_2,
                inputs: &[UP_TO_4, AXIS],
            },
        ],
        outputs: RESULT,
        outputs_repeat: false,
        check: check_l2,
        shape: ShapeRule::Infer(l2_shape),
    },
    OperationEntry {
        operation: OperationType::LOCAL_RESPONSE_NORMALIZATION,
        variants: &[
            Variant::new(V1_0, &[T::TENSOR_FLOAT32, T::FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
        ],
        forms: &[
            Form::named("rank 4, last axis", &[RANK_4, RADIUS, BIAS, ALPHA, BETA]),
            Form {
                name: "any axis",
                since: V1_2,
                inputs: &[UP_TO_4, RADIUS, BIAS, ALPHA, BETA, AXIS],
            },
        ],
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(local_response_shape),
    },
    OperationEntry {
        operation: OperationType::INSTANCE_NORMALIZATION,
        variants: &[
            Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
            Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
        ],
        forms: &[Form::default(&[
            RANK_4,
            Param::new("gamma", Ty::Var(1)),
            Param::new("beta", Ty::Var(1)),
            Param::new("epsilon", Ty::Var(1)),
            Param::scalar("nchw", T::BOOL),
        ])],
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(instance_shape),
    },
];

/// The result lies between -1 and 1: one step is 1/128 around the middle.
fn check_l2(context: &dyn OperationContext) -> Result<(), OpError> {
    match context.required(0)?.ty() {
        T::TENSOR_QUANT8_ASYMM => context.check_output_quantization(0, 1.0 / 128.0, 128),
        T::TENSOR_QUANT8_ASYMM_SIGNED => context.check_output_quantization(0, 1.0 / 128.0, 0),
        _ => Ok(()),
    }
}

fn l2_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    check_axis(context, 1)?;
    shapes::same_as_input(context, outputs)
}

/// The shape of the input, once radius, bias and axis are legal.
fn local_response_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    if let Some(radius) = unless_unknown(context.i32(1))?
        && radius < 0
    {
        return Err(OpError::input(1, format!("(radius) is {radius}, must not be negative")).into());
    }
    if let Some(bias) = unless_unknown(context.f32(2))?
        && bias == 0.0
    {
        return Err(OpError::input(2, "(bias) is 0, must not be").into());
    }
    check_axis(context, 5)?;
    shapes::same_as_input(context, outputs)
}

fn instance_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape_of_rank(0, 4)?;
    outputs.fill(shape);
    Ok(())
}

/// The optional axis, input `index`, lies inside the rank of input 0.
fn check_axis(context: &dyn OperationContext, index: usize) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    if let Some(axis) = unless_unknown(context.i32_or(index, -1))? {
        shapes::resolve_axis(index, axis, shape.rank())?;
    }
    Ok(())
}
