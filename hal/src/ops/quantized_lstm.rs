//! QUANTIZED_LSTM: one LSTM step with signed 8-bit inputs and outputs and a 16-bit cell.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::lstm_cell::CellInputs;
use super::operation_entry::{OperationEntry, ShapeRule};
use super::recurrent::check_bound;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty};

/// A tensor of this type and rank, since HAL 1.3.
pub(super) const fn tensor(name: &'static str, ty: T, rank: usize) -> Param {
    Param {
        since: HalVersion::V1_3,
        ..Param::new(name, Ty::Is(ty)).late_rank(Rank::Is(rank))
    }
}

const fn weights(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT8_SYMM, 2)
}

const fn wide_vector(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT16_SYMM, 1).omissible()
}

const fn bias(name: &'static str) -> Param {
    tensor(name, T::TENSOR_INT32, 1)
}

const fn state(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT8_ASYMM_SIGNED, 2)
}

const fn cell(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT16_SYMM, 2)
}

/// Where the operands of QUANTIZED_LSTM's cell stand.
pub const CELL: CellInputs = CellInputs {
    weights: 1,
    output_state: 18,
    cell_state: 19,
    norm: 20,
    aux_weights: None,
};

/// The first of the four gates' intermediate scales.
pub const INTERMEDIATE_SCALES: usize = 26;

/// The scale of the hidden state, before the projection.
pub const HIDDEN_SCALE: usize = 31;

/// In the extension's operation over a sequence, whether time comes before the batch.
pub const TIME_MAJOR: usize = 32;

pub(super) const INPUTS: [Param; TIME_MAJOR] = [
    state("input"),
    weights("input_to_input_weights").omissible(),
    weights("input_to_forget_weights"),
    weights("input_to_cell_weights"),
    weights("input_to_output_weights"),
    weights("recurrent_to_input_weights").omissible(),
    weights("recurrent_to_forget_weights"),
    weights("recurrent_to_cell_weights"),
    weights("recurrent_to_output_weights"),
    wide_vector("cell_to_input_weights"),
    wide_vector("cell_to_forget_weights"),
    wide_vector("cell_to_output_weights"),
    bias("input_gate_bias").omissible(),
    bias("forget_gate_bias"),
    bias("cell_gate_bias"),
    bias("output_gate_bias"),
    weights("projection_weights").omissible(),
    bias("projection_bias").omissible(),
    state("prev_output"),
    cell("prev_cell_state"),
    wide_vector("input_layer_norm_weights"),
    wide_vector("forget_layer_norm_weights"),
    wide_vector("cell_layer_norm_weights"),
    wide_vector("output_layer_norm_weights"),
    Param::scalar("cell_clip", T::FLOAT32).omissible(),
    Param::scalar("projection_clip", T::FLOAT32).omissible(),
    Param::scalar("input_intermediate_scale", T::FLOAT32),
    Param::scalar("forget_intermediate_scale", T::FLOAT32),
    Param::scalar("cell_intermediate_scale", T::FLOAT32),
    Param::scalar("output_intermediate_scale", T::FLOAT32),
    Param::scalar("hidden_state_zero_point", T::INT32),
    Param::scalar("hidden_state_scale", T::FLOAT32),
];

pub(super) const OUTPUTS: [Param; 3] = [state("output_state_out"), cell("cell_state_out"), state("output")];

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::QUANTIZED_LSTM,
    variants: &[],
    forms: &[Form::default(&INPUTS)],
    outputs: &OUTPUTS,
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(step),
}];

pub(super) fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    CELL.check_presence(context)?;
    cell_scale_exponent(context)?;
    context.check_same_quantization(CELL.output_state, 0)?;
    context.check_same_quantization(CELL.cell_state, 1)?;
    context.check_same_quantization(CELL.output_state, 2)?;
    check_bound(context, 24, "cell_clip")?;
    check_bound(context, 25, "projection_clip")?;
    for input in (INTERMEDIATE_SCALES..INTERMEDIATE_SCALES + 4).chain([HIDDEN_SCALE]) {
        unless_unknown(positive_scale(context, input))?;
    }
    Ok(())
}

/// A scale that comes as a scalar.
pub fn positive_scale(context: &dyn OperationContext, input: usize) -> Result<f32, ShapeIssue> {
    let scale = context.f32(input)?;
    if scale.is_finite() && scale > 0.0 {
        return Ok(scale);
    }
    Err(OpError::input(input, format!("(a scale) is {scale}, must be above 0 and finite")).into())
}

/// The power of two that is the scale of the cell state, up to a thousandth of the exponent: at most -9 (HAL
/// reference), and at least -15, where the cell has no integer bits left.
pub fn cell_scale_exponent(context: &dyn OperationContext) -> Result<i32, OpError> {
    let scale = context.required(CELL.cell_state)?.operand.scale;
    let exponent = scale.log2();
    (-15..=-9)
        .find(|power| (exponent - *power as f32).abs() < 1e-3)
        .ok_or_else(|| {
            let message =
                format!("(prev_cell_state) has scale {scale}, must be a power of two from 2^-15 to 2^-9");
            OpError::input(CELL.cell_state, message)
        })
}

fn step(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.shape_of_rank(0, 2)?;
    let values = set_states(context, (input.dim(0), input.dim(1)), outputs)?;
    set(outputs, 2, shape_of(&[input.dim(0), values])?)
}

/// Sets the shapes of both states, for items of so many values in batches, and gives the values of an output.
pub(super) fn set_states(
    context: &dyn OperationContext,
    (batches, values): (u32, u32),
    outputs: &mut [Shape],
) -> Result<u32, ShapeIssue> {
    let cell = CELL.shape(context, batches, values, None)?;
    set(outputs, 0, shape_of(&[cell.batches, cell.outputs])?)?;
    set(outputs, 1, shape_of(&[cell.batches, cell.units])?)?;
    Ok(cell.outputs)
}
