//! REVERSE: a tensor with one axis in the opposite order.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::set;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::Level7;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::REVERSE,
    variants: &[
        Variant::new(Level7, &[T::TENSOR_FLOAT32]),
        Variant::new(Level7, &[T::TENSOR_FLOAT16]),
        Variant::new(Level7, &[T::TENSOR_INT32]),
        Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(Level7, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK)),
        Param::new("axis", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(reversed),
}];

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    let axis = context.required(1)?;
    if axis.shape_known && axis.shape.dims() != [1] {
        let message = format!("(axis) has dimensions {:?}, must be [1]", axis.shape);
        return Err(OpError::input(1, message));
    }
    let input = context.required(0)?;
    if input.rank_known {
        unless_unknown(axis_of(context, input.shape.rank()))?;
    }
    Ok(())
}

/// The axis of a tensor of this rank, from 0: the HAL takes no negative one here.
fn axis_of(context: &dyn OperationContext, rank: usize) -> Result<usize, ShapeIssue> {
    let axis = context.i32(1)?;
    let found = usize::try_from(axis).ok().filter(|axis| *axis < rank);
    found.ok_or_else(|| {
        let message = format!("(axis) is {axis}, must be from 0 to {}", rank as i64 - 1);
        OpError::input(1, message).into()
    })
}

/// The shape of the input, which must have the axis.
fn reversed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(0)?;
    axis_of(context, shape.rank())?;
    set(outputs, 0, shape)
}
