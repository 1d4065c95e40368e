//! CONCATENATION: several tensors one after another along an axis.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::CONCATENATION,
    variants: &[
        Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
        Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]).only_if(one_quantization),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("inputs", Ty::Var(0))
            .rank(Rank::Between(1, 4))
            .repeated(),
        Param::scalar("axis", T::INT32),
    ])],
    outputs: &[Param::new("output", Ty::Var(0))],
    outputs_repeat: false,
    check: check_axis,
    shape: ShapeRule::Infer(joined),
}];

/// All inputs must have the scale and zero point of the output. Requantising came with 1.2.
pub(super) fn one_quantization(context: &dyn OperationContext) -> Result<(), OpError> {
    (0..tensors(context)).try_for_each(|input| context.check_same_quantization(input, 0))
}

/// The number of tensors: all inputs but the axis.
fn tensors(context: &dyn OperationContext) -> usize {
    context.input_count().saturating_sub(1)
}

pub(super) fn check_axis(context: &dyn OperationContext) -> Result<(), OpError> {
    let first = context.required(0)?;
    if first.rank_known && unless_unknown(context.i32(tensors(context)))?.is_some() {
        unless_unknown(axis_for(context, first.shape.rank()))?;
    }
    Ok(())
}

/// The axis, from 0: the HAL reference takes no negative one here.
fn axis_for(context: &dyn OperationContext, rank: usize) -> Result<usize, ShapeIssue> {
    let input = tensors(context);
    let axis = context.i32(input)?;
    usize::try_from(axis)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| {
            let message = format!("(axis) is {axis}, must be from 0 to {}", rank as i64 - 1);
            OpError::input(input, message).into()
        })
}

/// The shape of input 0, along the axis the sum of the inputs' extents.
pub(super) fn joined(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let mut joined = context.shape(0)?;
    let axis = axis_for(context, joined.rank())?;
    for input in 1..tensors(context) {
        let shape = context.shape(input)?;
        let agrees = shape.rank() == joined.rank()
            && (0..shape.rank()).all(|at| at == axis || shape.dim(at) == joined.dim(at));
        if !agrees {
            let message = format!(
                "has dimensions {shape:?}, must be those of input 0, {:?}, except along axis {axis}",
                context.shape(0)?
            );
            return Err(OpError::input(input, message).into());
        }
        let extent = &mut joined.dims_mut()[axis];
        *extent = extent.checked_add(shape.dim(axis)).ok_or_else(|| {
            OpError::operation(format!(
                "the extent of the result along axis {axis} does not fit 32 bits"
            ))
        })?;
    }
    set(outputs, 0, shape_of(joined.dims())?)
}
