//! LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::lstm_cell::{CellInputs, CellShape, Gate};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::recurrent::{
    SINCE_1_0, SINCE_1_2, SequenceShape, all_or_none, check_activation, check_bound, expect_dims,
    expect_output_count, matrix, presence, sequence, vector,
};
use super::rnn::{Linking, merged_values};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Ty, join};

use HalVersion::{V1_2, V1_3};

/// The 17 weights and biases of a cell, with a prefix to their names.
macro_rules! cell_weights {
    ($prefix:literal) => {
        [
            matrix(concat!($prefix, "input_to_input_weights")).omissible(),
            matrix(concat!($prefix, "input_to_forget_weights")),
            matrix(concat!($prefix, "input_to_cell_weights")),
            matrix(concat!($prefix, "input_to_output_weights")),
            matrix(concat!($prefix, "recurrent_to_input_weights")).omissible(),
            matrix(concat!($prefix, "recurrent_to_forget_weights")),
            matrix(concat!($prefix, "recurrent_to_cell_weights")),
            matrix(concat!($prefix, "recurrent_to_output_weights")),
            vector(concat!($prefix, "cell_to_input_weights")).omissible(),
            vector(concat!($prefix, "cell_to_forget_weights")).omissible(),
            vector(concat!($prefix, "cell_to_output_weights")).omissible(),
            vector(concat!($prefix, "input_gate_bias")).omissible(),
            vector(concat!($prefix, "forget_gate_bias")),
            vector(concat!($prefix, "cell_gate_bias")),
            vector(concat!($prefix, "output_gate_bias")),
            matrix(concat!($prefix, "projection_weights")).omissible(),
            vector(concat!($prefix, "projection_bias")).omissible(),
        ]
    };
}

macro_rules! norm_weights {
    ($prefix:literal) => {
        [
            vector(concat!($prefix, "input_layer_norm_weights")).omissible(),
            vector(concat!($prefix, "forget_layer_norm_weights")).omissible(),
            vector(concat!($prefix, "cell_layer_norm_weights")).omissible(),
            vector(concat!($prefix, "output_layer_norm_weights")).omissible(),
        ]
    };
}

macro_rules! aux_weights {
    ($prefix:literal) => {
        [
            matrix(concat!($prefix, "aux_input_to_input_weights")).omissible(),
            matrix(concat!($prefix, "aux_input_to_forget_weights")).omissible(),
            matrix(concat!($prefix, "aux_input_to_cell_weights")).omissible(),
            matrix(concat!($prefix, "aux_input_to_output_weights")).omissible(),
        ]
    };
}

const STATES: &[Param] = &[matrix("output_state_in"), matrix("cell_state_in")];

const ACTIVATION_AND_CLIPS: &[Param] = &[
    Param::scalar("activation", T::INT32),
    Param::new("cell_clip", Ty::Var(1)),
    Param::new("projection_clip", Ty::Var(1)),
];

const STEP_INPUTS: [Param; 23] = join(&[
    &[matrix("input")],
    &cell_weights!(""),
    STATES,
    ACTIVATION_AND_CLIPS,
]);

const NORMALISED_STEP_INPUTS: [Param; 27] = join(&[&STEP_INPUTS, &norm_weights!("")]);

const UNIDIRECTIONAL_INPUTS: [Param; 28] = join(&[
    &[sequence("input")],
    &cell_weights!(""),
    STATES,
    ACTIVATION_AND_CLIPS,
    &[Param::scalar("time_major", T::BOOL)],
    &norm_weights!(""),
]);

const BIDIRECTIONAL_INPUTS: [Param; 61] = join(&[
    &[sequence("input")],
    &cell_weights!("fw_"),
    &cell_weights!("bw_"),
    &[
        matrix("fw_output_state_in"),
        matrix("fw_cell_state_in"),
        matrix("bw_output_state_in"),
        matrix("bw_cell_state_in"),
        sequence("aux_input").omissible(),
    ],
    &aux_weights!("fw_"),
    &aux_weights!("bw_"),
    ACTIVATION_AND_CLIPS,
    &[
        Param::scalar("merge_outputs", T::BOOL),
        Param::scalar("time_major", T::BOOL),
    ],
    &norm_weights!("fw_"),
    &norm_weights!("bw_"),
]);

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        operation: OperationType::LSTM,
        variants: SINCE_1_0,
        forms: &[
            Form::default(&STEP_INPUTS),
            Form {
                name: "layer normalisation",
                since: V1_2,
                inputs: &NORMALISED_STEP_INPUTS,
            },
        ],
        outputs: &[
            matrix("scratch_buffer"),
            matrix("output_state_out"),
            matrix("cell_state_out"),
            matrix("output"),
        ],
        outputs_repeat: false,
        check: |context| {
            check_scalars(context, 20)?;
            STEP_CELL.check_presence(context)
        },
        shape: ShapeRule::Infer(step),
    },
    OperationEntry {
        operation: OperationType::UNIDIRECTIONAL_SEQUENCE_LSTM,
        variants: SINCE_1_2,
        forms: &[Form::default(&UNIDIRECTIONAL_INPUTS)],
        outputs: &[
            sequence("output"),
            matrix("output_state_out").trailing(V1_3),
            matrix("cell_state_out").trailing(V1_3),
        ],
        outputs_repeat: false,
        check: |context| {
            check_scalars(context, 20)?;
            expect_output_count(context, &[1, 3])?;
            SEQUENCE_CELL.check_presence(context)
        },
        shape: ShapeRule::Infer(unidirectional),
    },
    OperationEntry {
        operation: OperationType::BIDIRECTIONAL_SEQUENCE_LSTM,
        variants: SINCE_1_2,
        forms: &[Form::default(&BIDIRECTIONAL_INPUTS)],
        outputs: &[
            sequence("fw_output"),
            // With merged outputs the states start here.
            Param::new("bw_output", Ty::Var(0)).trailing(V1_2),
            matrix("fw_output_state_out").trailing(V1_3),
            matrix("fw_cell_state_out").trailing(V1_3),
            matrix("bw_output_state_out").trailing(V1_3),
            matrix("bw_cell_state_out").trailing(V1_3),
        ],
        outputs_repeat: false,
        check: check_bidirectional,
        shape: ShapeRule::Infer(bidirectional),
    },
];

/// The cell of LSTM.
pub const STEP_CELL: CellInputs = CellInputs {
    weights: 1,
    output_state: 18,
    cell_state: 19,
    norm: 23,
    aux_weights: None,
};

/// The cell of UNIDIRECTIONAL_SEQUENCE_LSTM.
pub const SEQUENCE_CELL: CellInputs = CellInputs {
    norm: 24,
    ..STEP_CELL
};

/// The forward and the backward cell of BIDIRECTIONAL_SEQUENCE_LSTM.
pub const TWO_CELLS: [CellInputs; 2] = [
    CellInputs {
        weights: 1,
        output_state: 35,
        cell_state: 36,
        norm: 53,
        aux_weights: Some(40),
    },
    CellInputs {
        weights: 18,
        output_state: 37,
        cell_state: 38,
        norm: 57,
        aux_weights: Some(44),
    },
];

/// Activation code and clips, which follow each other from input `first`.
fn check_scalars(context: &dyn OperationContext, first: usize) -> Result<(), OpError> {
    check_activation(context, first)?;
    check_bound(context, first + 1, "cell_clip")?;
    check_bound(context, first + 2, "projection_clip")
}

fn step(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.shape_of_rank(0, 2)?;
    let cell = STEP_CELL.shape(context, input.dim(0), input.dim(1), None)?;
    let coupled = STEP_CELL.coupled(context)?.ok_or(ShapeIssue::Unknown)?;
    let gates = if coupled { 3 } else { 4 };
    let scratch = cell.units.checked_mul(gates).ok_or_else(|| {
        OpError::output(
            0,
            format!("has {gates} values for {} units, beyond 32 bits", cell.units),
        )
    })?;
    set(outputs, 0, shape_of(&[cell.batches, scratch])?)?;
    set_states(outputs, 1, &cell)?;
    set(outputs, 3, shape_of(&[cell.batches, cell.outputs])?)
}

/// The output state and the cell state from output `first` on.
fn set_states(outputs: &mut [Shape], first: usize, cell: &CellShape) -> Result<(), ShapeIssue> {
    set(outputs, first, shape_of(&[cell.batches, cell.outputs])?)?;
    set(outputs, first + 1, shape_of(&[cell.batches, cell.units])?)
}

fn unidirectional(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = SequenceShape::of(context, 0, context.bool(23)?)?;
    let cell = SEQUENCE_CELL.shape(context, input.batches, input.values, None)?;
    set(outputs, 0, shape_of(&input.dims(cell.outputs))?)?;
    if outputs.len() > 1 {
        set_states(outputs, 1, &cell)?;
    }
    Ok(())
}

fn check_bidirectional(context: &dyn OperationContext) -> Result<(), OpError> {
    check_scalars(context, 48)?;
    for cell in &TWO_CELLS {
        cell.check_presence(context)?;
    }
    unless_unknown(linking(context))?;
    match unless_unknown(context.bool(51))? {
        Some(true) => expect_output_count(context, &[1, 5]),
        Some(false) => expect_output_count(context, &[2, 6]),
        None => Ok(()),
    }
}

/// How BIDIRECTIONAL_SEQUENCE_LSTM uses its auxiliary input.
pub fn linking(context: &dyn OperationContext) -> Result<Linking, ShapeIssue> {
    let forget_weights = TWO_CELLS.map(|cell| cell.aux(Gate::Forget).unwrap_or_default());
    let weights = all_or_none(context, &forget_weights, "the auxiliary weights")?;
    match (presence(context, 39), weights) {
        (Some(false), Some(true)) => Err(OpError::input(39, "is omitted, its weights are given").into()),
        (Some(false), Some(false)) => Ok(Linking::None),
        (Some(true), Some(true)) => Ok(Linking::Cross),
        (Some(true), Some(false)) => Ok(Linking::Parallel),
        _ => Err(ShapeIssue::Unknown),
    }
}

fn bidirectional(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (merged, time_major) = (context.bool(51)?, context.bool(52)?);
    let linking = linking(context)?;
    let input = SequenceShape::of(context, 0, time_major)?;
    let aux = match linking {
        Linking::None => None,
        Linking::Cross | Linking::Parallel => Some(SequenceShape::of(context, 39, time_major)?),
    };
    if let Some(aux) = aux {
        expect_dims(context, 39, &input.dims(aux.values))?;
    }
    let aux_values = aux.map(|aux| aux.values);
    let of_backward = match linking {
        Linking::Parallel => aux_values.unwrap_or(input.values),
        Linking::None | Linking::Cross => input.values,
    };
    let forward = TWO_CELLS[0].shape(context, input.batches, input.values, aux_values)?;
    let backward = TWO_CELLS[1].shape(context, input.batches, of_backward, aux_values)?;
    expect_output_count(context, if merged { &[1, 5] } else { &[2, 6] })?;
    let states = if merged {
        let values = merged_values(forward.outputs, backward.outputs)?;
        set(outputs, 0, shape_of(&input.dims(values))?)?;
        1
    } else {
        set(outputs, 0, shape_of(&input.dims(forward.outputs))?)?;
        set(outputs, 1, shape_of(&input.dims(backward.outputs))?)?;
        2
    };
    if outputs.len() > states {
        set_states(outputs, states, &forward)?;
        set_states(outputs, states + 2, &backward)?;
    }
    Ok(())
}
