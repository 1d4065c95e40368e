//! SVDF: a dense layer over time, approximated by filters of limited rank.

use crate::{OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::recurrent::{SINCE_1_0, check_activation, expect_dims, expect_optional_dims, matrix, vector};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::SVDF,
    variants: SINCE_1_0,
    forms: &[Form::default(&[
        matrix("input"),
        matrix("weights_feature"),
        matrix("weights_time"),
        vector("bias").omissible(),
        matrix("state_in"),
        Param::scalar("rank", T::INT32),
        Param::scalar("activation", T::INT32),
    ])],
    outputs: &[matrix("state_out"), matrix("output")],
    outputs_repeat: false,
    check: |context| check_activation(context, 6),
    shape: ShapeRule::Infer(filtered),
}];

/// The HAL text gives the state `memory - 1` columns for each filter and the weights as many rows as units;
/// its reference, and every model made for it, has `memory` columns and as many rows as filters.
pub(super) fn filtered(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let rank = context.i32(5)?;
    let input = context.shape_of_rank(0, 2)?;
    let weights = context.shape_of_rank(1, 2)?;
    let time = context.shape_of_rank(2, 2)?;
    let (batches, filters, memory) = (input.dim(0), weights.dim(0), time.dim(1));
    let units = u32::try_from(rank)
        .ok()
        .filter(|rank| *rank > 0 && filters.is_multiple_of(*rank))
        .map(|rank| filters / rank)
        .ok_or_else(|| {
            let message = format!("(rank) is {rank}, must divide the {filters} filters of input 1");
            OpError::input(5, message)
        })?;
    let columns = filters
        .checked_mul(memory)
        .filter(|_| memory > 0)
        .ok_or_else(|| {
            OpError::input(
                2,
                format!("(weights_time) has {memory} columns for {filters} filters"),
            )
        })?;
    expect_dims(context, 1, &[filters, input.dim(1)])?;
    expect_dims(context, 2, &[filters, memory])?;
    expect_optional_dims(context, 3, &[units])?;
    expect_dims(context, 4, &[batches, columns])?;
    set(outputs, 0, shape_of(&[batches, columns])?)?;
    set(outputs, 1, shape_of(&[batches, units])?)
}
