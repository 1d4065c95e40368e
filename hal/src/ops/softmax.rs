//! SOFTMAX and LOG_SOFTMAX.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes;
use super::signature::{DefaultValue, Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

/// Before 1.2 the rank is 2 or 4 and the axis is the last.
const SOFTMAX_FORMS: &[Form] = &[
    Form::named(
        "rank 2 or 4, last axis",
        &[
            Param::new("input", Ty::Var(0)).rank(Rank::OneOf(&[2, 4])),
            Param::new("beta", Ty::Var(1)),
        ],
    ),
    Form {
        name: "any axis",
        since: V1_2,
        inputs: &[
            Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4)),
            Param::new("beta", Ty::Var(1)),
            Param::scalar("axis", T::INT32)
                .default(DefaultValue::Int32(-1))
                .trailing(V1_2),
        ],
    },
];

const LOG_SOFTMAX_FORMS: &[Form] = &[Form::default(&[
    Param::new("input", Ty::Var(0)),
    Param::new("beta", Ty::Var(1)),
    Param::scalar("axis", T::INT32),
])];

const RESULT: &[Param] = &[Param::new("output", Ty::Var(0))];

const SOFTMAX_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM, T::FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::FLOAT32]),
];

const LOG_SOFTMAX_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
];

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::SOFTMAX,
        variants: SOFTMAX_TYPES,
        forms: SOFTMAX_FORMS,
        outputs: RESULT,
        outputs_repeat: false,
        check: check_softmax,
        shape: ShapeRule::Infer(softmax_shape),
    },
    OperationEntry {
        operation: OperationType::LOG_SOFTMAX,
        variants: LOG_SOFTMAX_TYPES,
        forms: LOG_SOFTMAX_FORMS,
        outputs: RESULT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(softmax_shape),
    },
];

/// The result lies between 0 and 1: one step is 1/256 from the least value up, or of 16 bits 1/32768, or
/// 1/65536 without a sign.
fn check_softmax(context: &dyn OperationContext) -> Result<(), OpError> {
    match context.required_output(0)?.ty() {
        T::TENSOR_QUANT16_ASYMM => context.check_output_quantization(0, 1.0 / 65_536.0, 0),
        T::TENSOR_QUANT8_ASYMM => context.check_output_quantization(0, 1.0 / 256.0, 0),
        T::TENSOR_QUANT8_ASYMM_SIGNED => context.check_output_quantization(0, 1.0 / 256.0, -128),
        T::TENSOR_QUANT16_SYMM => context.check_output_quantization(0, 1.0 / 32_768.0, 0),
        _ => Ok(()),
    }
}

/// The shape of the input, once beta and axis are legal.
fn softmax_shape(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    if let Some(beta) = unless_unknown(context.f32(1))?
        && !(beta > 0.0 && beta.is_finite())
    {
        return Err(OpError::input(1, format!("(beta) is {beta}, must be above 0 and finite")).into());
    }
    let shape = context.shape(0)?;
    if let Some(axis) = unless_unknown(context.i32_or(2, -1))? {
        shapes::resolve_axis(2, axis, shape.rank())?;
    }
    shapes::same_as_input(context, outputs)
}
