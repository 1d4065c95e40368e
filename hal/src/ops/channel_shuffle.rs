//! CHANNEL_SHUFFLE: groups of channels, interleaved.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::shapes::{resolve_axis, set};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::positive;

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::CHANNEL_SHUFFLE,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("input", Ty::Var(0)).rank(Rank::Between(1, 4)),
        Param::scalar("groups", T::INT32),
        Param::scalar("axis", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: keeps_quantization,
    shape: ShapeRule::Infer(infer),
}];

/// The axis of a call and the groups along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The axis.
    pub axis: usize,
    /// How many groups.
    pub count: u32,
    /// Channels of one group.
    pub size: u32,
}

/// What is shuffled: the group count divides the extent of the axis.
pub fn groups(context: &dyn OperationContext) -> Result<Groups, ShapeIssue> {
    let count = positive(context, 1, "groups")?;
    let axis = context.i32(2)?;
    let shape = context.shape(0)?;
    let axis = resolve_axis(2, axis, shape.rank())?;
    let extent = shape.dim(axis);
    if extent % count != 0 {
        let message = format!("(groups) is {count}, must divide {extent}, the extent of axis {axis}");
        return Err(OpError::input(1, message).into());
    }
    Ok(Groups {
        axis,
        count,
        size: extent / count,
    })
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    groups(context)?;
    set(outputs, 0, context.shape(0)?)
}
