//! Basic recurrent layers: RNN, UNIDIRECTIONAL_SEQUENCE_RNN and BIDIRECTIONAL_SEQUENCE_RNN.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::recurrent::{
    SINCE_1_0, SINCE_1_2, SequenceShape, all_or_none, check_activation, check_code, expect_dims,
    expect_optional_dims, expect_output_count, matrix, presence, sequence, vector,
};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Ty};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::RNN,
        variants: SINCE_1_0,
        forms: &[Form::default(&[
            matrix("input"),
            matrix("weights"),
            matrix("recurrent_weights"),
            vector("bias"),
            matrix("hidden_state_in"),
            Param::scalar("activation", T::INT32),
        ])],
        outputs: &[matrix("hidden_state_out"), matrix("output")],
        outputs_repeat: false,
        check: |context| check_activation(context, 5),
        shape: ShapeRule::Infer(step),
    },
    OperationEntry {
        operation: OperationType::UNIDIRECTIONAL_SEQUENCE_RNN,
        variants: SINCE_1_2,
        forms: &[Form::default(&[
            sequence("input"),
            matrix("weights"),
            matrix("recurrent_weights"),
            vector("bias"),
            matrix("hidden_state"),
            Param::scalar("activation", T::INT32),
            // An integer here, unlike in the other sequence operations.
            Param::scalar("time_major", T::INT32),
        ])],
        outputs: &[sequence("output"), matrix("hidden_state_out").trailing(V1_3)],
        outputs_repeat: false,
        check: |context| {
            check_activation(context, 5)?;
            check_code(context, 6, "time_major", &[0, 1])
        },
        shape: ShapeRule::Infer(unidirectional),
    },
    OperationEntry {
        operation: OperationType::BIDIRECTIONAL_SEQUENCE_RNN,
        variants: SINCE_1_2,
        forms: &[Form::default(&[
            sequence("input"),
            matrix("fw_weights"),
            matrix("fw_recurrent_weights"),
            vector("fw_bias"),
            matrix("fw_hidden_state"),
            matrix("bw_weights"),
            matrix("bw_recurrent_weights"),
            vector("bw_bias"),
            matrix("bw_hidden_state"),
            sequence("aux_input").omissible(),
            matrix("fw_aux_weights").omissible(),
            matrix("bw_aux_weights").omissible(),
            Param::scalar("activation", T::INT32),
            Param::scalar("time_major", T::BOOL),
            Param::scalar("merge_outputs", T::BOOL),
        ])],
        outputs: &[
            sequence("fw_output"),
            Param::new("bw_output", Ty::Var(0)).trailing(V1_2),
            matrix("fw_hidden_state_out").trailing(V1_3),
            matrix("bw_hidden_state_out").trailing(V1_3),
        ],
        outputs_repeat: false,
        check: check_bidirectional,
        shape: ShapeRule::Infer(bidirectional),
    },
];

/// Where the operands of one cell stand in the input list, and the dimensions that come with them.
#[derive(Clone, Copy, Debug)]
pub struct RnnCell {
    /// Weights, recurrent weights, bias and state follow each other from here.
    pub first: usize,
    /// Weights of the auxiliary input, if the operation has them.
    pub aux_weights: Option<usize>,
}

/// The only cell of RNN and UNIDIRECTIONAL_SEQUENCE_RNN.
pub const ONE_CELL: RnnCell = RnnCell {
    first: 1,
    aux_weights: None,
};

/// The forward and the backward cell of BIDIRECTIONAL_SEQUENCE_RNN.
pub const TWO_CELLS: [RnnCell; 2] = [
    RnnCell {
        first: 1,
        aux_weights: Some(10),
    },
    RnnCell {
        first: 5,
        aux_weights: Some(11),
    },
];

impl RnnCell {
    /// Checks the cell's dimensions for items of `values` (and auxiliary ones of `aux`) in `batches`, and
    /// gives its number of units.
    fn units(
        &self,
        context: &dyn OperationContext,
        batches: u32,
        values: u32,
        aux: Option<u32>,
    ) -> Result<u32, ShapeIssue> {
        let units = context.shape_of_rank(self.first, 2)?.dim(0);
        expect_dims(context, self.first, &[units, values])?;
        expect_dims(context, self.first + 1, &[units, units])?;
        expect_dims(context, self.first + 2, &[units])?;
        expect_dims(context, self.first + 3, &[batches, units])?;
        if let (Some(weights), Some(aux)) = (self.aux_weights, aux) {
            expect_optional_dims(context, weights, &[units, aux])?;
        }
        Ok(units)
    }
}

/// How the auxiliary input of a bidirectional operation is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linking {
    /// There is none.
    None,
    /// Both cells read it beside the input, with weights of its own.
    Cross,
    /// The backward cell reads it in place of the input. Since 1.3 by the HAL text, in its reference before.
    Parallel,
}

fn step(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.shape_of_rank(0, 2)?;
    let units = ONE_CELL.units(context, input.dim(0), input.dim(1), None)?;
    outputs.fill(shape_of(&[input.dim(0), units])?);
    Ok(())
}

fn unidirectional(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = SequenceShape::of(context, 0, context.i32(6)? != 0)?;
    let units = ONE_CELL.units(context, input.batches, input.values, None)?;
    set(outputs, 0, shape_of(&input.dims(units))?)?;
    if outputs.len() > 1 {
        set(outputs, 1, shape_of(&[input.batches, units])?)?;
    }
    Ok(())
}

fn check_bidirectional(context: &dyn OperationContext) -> Result<(), OpError> {
    check_activation(context, 12)?;
    unless_unknown(linking(context)).map(|_| ())?;
    match unless_unknown(context.bool(14))? {
        Some(true) => expect_output_count(context, &[1, 3]),
        Some(false) => expect_output_count(context, &[2, 4]),
        None => Ok(()),
    }
}

/// How BIDIRECTIONAL_SEQUENCE_RNN uses its auxiliary input.
pub fn linking(context: &dyn OperationContext) -> Result<Linking, ShapeIssue> {
    let weights = all_or_none(context, &[10, 11], "the auxiliary weights")?;
    match (presence(context, 9), weights) {
        (Some(false), Some(true)) => Err(OpError::input(9, "is omitted, its weights are given").into()),
        (Some(false), Some(false)) => Ok(Linking::None),
        (Some(true), Some(true)) => Ok(Linking::Cross),
        (Some(true), Some(false)) => Ok(Linking::Parallel),
        _ => Err(ShapeIssue::Unknown),
    }
}

fn bidirectional(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (time_major, merged) = (context.bool(13)?, context.bool(14)?);
    let linking = linking(context)?;
    let input = SequenceShape::of(context, 0, time_major)?;
    let aux = match linking {
        Linking::None => None,
        Linking::Cross | Linking::Parallel => Some(SequenceShape::of(context, 9, time_major)?),
    };
    if let Some(aux) = aux {
        expect_dims(context, 9, &input.dims(aux.values))?;
    }
    let of_backward = match (linking, aux) {
        (Linking::Parallel, Some(aux)) => aux,
        _ => input,
    };
    let aux_values = aux.map(|aux| aux.values);
    let forward = TWO_CELLS[0].units(context, input.batches, input.values, aux_values)?;
    let backward = TWO_CELLS[1].units(context, input.batches, of_backward.values, aux_values)?;
    expect_output_count(context, if merged { &[1, 3] } else { &[2, 4] })?;
    let states = if merged {
        set(
            outputs,
            0,
            shape_of(&input.dims(merged_values(forward, backward)?))?,
        )?;
        1
    } else {
        set(outputs, 0, shape_of(&input.dims(forward))?)?;
        set(outputs, 1, shape_of(&input.dims(backward))?)?;
        2
    };
    if outputs.len() > states {
        set(outputs, states, shape_of(&[input.batches, forward])?)?;
        set(outputs, states + 1, shape_of(&[input.batches, backward])?)?;
    }
    Ok(())
}

/// The length of items that hold both directions' values.
pub(super) fn merged_values(forward: u32, backward: u32) -> Result<u32, OpError> {
    forward.checked_add(backward).ok_or_else(|| {
        OpError::operation(format!(
            "merges outputs of {forward} and {backward} values, beyond 32 bits"
        ))
    })
}
