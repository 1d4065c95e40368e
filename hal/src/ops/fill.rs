//! FILL and RANK: a tensor from its dimensions, and the number of a tensor's dimensions.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::V1_3;

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::FILL,
        variants: &[
            Variant::new(V1_3, &[T::FLOAT32, T::TENSOR_FLOAT32]),
            Variant::new(V1_3, &[T::FLOAT16, T::TENSOR_FLOAT16]),
            Variant::new(V1_3, &[T::INT32, T::TENSOR_INT32]),
        ],
        forms: &[Form::default(&[
            Param::new("dims", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
            Param::new("value", Ty::Var(0)),
        ])],
        outputs: &[Param::new("output", Ty::Var(1))],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(filled),
    },
    OperationEntry {
        operation: OperationType::RANK,
        variants: &[
            Variant::new(V1_3, &[T::TENSOR_FLOAT32]),
            Variant::new(V1_3, &[T::TENSOR_FLOAT16]),
            Variant::new(V1_3, &[T::TENSOR_INT32]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT16_SYMM]),
            Variant::new(V1_3, &[T::TENSOR_BOOL8]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_SYMM_PER_CHANNEL]),
            Variant::new(V1_3, &[T::TENSOR_QUANT16_ASYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_SYMM]),
            Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
        ],
        forms: &[Form::default(&[Param::new("input", Ty::Var(0))])],
        outputs: &[Param::scalar("rank", T::INT32)],
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(scalar),
    },
];

/// The dimensions that input 0 holds.
fn filled(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 0, shape_in(context, 0, "dims")?)
}

/// The shape whose dimensions this input holds.
pub(super) fn shape_in(
    context: &dyn OperationContext,
    input: usize,
    name: &str,
) -> Result<Shape, ShapeIssue> {
    let wanted = context.i32s(input)?;
    let wrong = || {
        let message = format!("({name}) is {wanted:?}, must hold 1 to {MAX_RANK} extents of 0 or above");
        ShapeIssue::Invalid(OpError::input(input, message))
    };
    let mut dims = [0_u32; MAX_RANK];
    if wanted.is_empty() || wanted.len() > MAX_RANK {
        return Err(wrong());
    }
    for (dim, extent) in dims.iter_mut().zip(wanted) {
        *dim = u32::try_from(*extent).map_err(|_| wrong())?;
    }
    Ok(shape_of(&dims[..wanted.len()])?)
}

fn scalar(_: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    set(outputs, 0, Shape::SCALAR)
}
