//! PACK: several tensors of one shape beside each other along a new axis.

use crate::{HalVersion, MAX_RANK, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::Level6;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::PACK,
    variants: &[
        Variant::new(Level6, &[T::TENSOR_FLOAT32]),
        Variant::new(Level6, &[T::TENSOR_FLOAT16]),
        Variant::new(Level6, &[T::TENSOR_INT32]),
        Variant::new(Level6, &[T::TENSOR_QUANT8_ASYMM]),
        Variant::new(Level6, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::scalar("axis", T::INT32),
        Param::new("inputs", Ty::Var(0))
            .rank(Rank::Between(1, MAX_RANK - 1))
            .repeated(),
    ])],
    outputs: &[Param::new("output", Ty::Var(0)).rank(Rank::Between(2, MAX_RANK))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(packed),
}];

/// One scale and zero point, one rank, and an axis within that of the output.
fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    let mut rank = None;
    for number in 1..context.input_count() {
        context.check_same_quantization(number, 0)?;
        let input = context.required(number)?;
        if !input.rank_known {
            continue;
        }
        let (first, found) = (*rank.get_or_insert(input.shape.rank()), input.shape.rank());
        if found != first {
            let message = format!("has rank {found}, must have that of the inputs before, {first}");
            return Err(OpError::input(number, message));
        }
    }
    if let Some(rank) = rank {
        unless_unknown(axis_of(context, rank))?;
    }
    let output = context.required_output(0)?;
    match rank {
        Some(rank) if output.rank_known && output.shape.rank() != rank + 1 => {
            let message = format!(
                "has rank {}, must have {}, one more than the inputs",
                output.shape.rank(),
                rank + 1
            );
            Err(OpError::output(0, message))
        }
        _ => Ok(()),
    }
}

/// The new axis of inputs of this rank, from 0: the HAL takes no negative one here.
fn axis_of(context: &dyn OperationContext, rank: usize) -> Result<usize, ShapeIssue> {
    let axis = context.i32(0)?;
    let found = usize::try_from(axis).ok().filter(|axis| *axis <= rank);
    found.ok_or_else(|| {
        let message = format!("(axis) is {axis}, must be from 0 to {rank} for inputs of rank {rank}");
        OpError::input(0, message).into()
    })
}

/// The shape of the inputs, with their number as one extent more.
fn packed(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let shape = context.shape(1)?;
    let axis = axis_of(context, shape.rank())?;
    for number in 2..context.input_count() {
        let other = context.shape(number)?;
        if other != shape {
            let message = format!("has dimensions {other:?}, must have those of input 1, {shape:?}");
            return Err(OpError::input(number, message).into());
        }
    }
    // The signature holds the rank of finished models, and this what an execution makes of an open one.
    let mut dims = [0_u32; MAX_RANK + 1];
    dims[..axis].copy_from_slice(&shape.dims()[..axis]);
    dims[axis] = u32::try_from(context.input_count() - 1)
        .map_err(|_| OpError::operation("has more inputs than an extent can count"))?;
    dims[axis + 1..=shape.rank()].copy_from_slice(&shape.dims()[axis..]);
    set(outputs, 0, shape_of(&dims[..=shape.rank()])?)
}
