//! QUANTIZED_16BIT_LSTM: one LSTM step with unsigned 8-bit activations and a 16-bit cell, all scales fixed.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::recurrent::expect_dims;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty};

const fn tensor(name: &'static str, ty: T, rank: usize) -> Param {
    Param {
        since: HalVersion::V1_2,
        ..Param::new(name, Ty::Is(ty)).late_rank(Rank::Is(rank))
    }
}

const fn quantized(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT8_ASYMM, 2)
}

const fn bias(name: &'static str) -> Param {
    tensor(name, T::TENSOR_INT32, 1)
}

const fn cell(name: &'static str) -> Param {
    tensor(name, T::TENSOR_QUANT16_SYMM, 2)
}

/// The weights, in the order input, forget, cell and output gate: four for the input, then four for the last
/// output.
pub const WEIGHTS: std::ops::Range<usize> = 1..9;
/// The biases of the gates.
pub const BIASES: std::ops::Range<usize> = 9..13;
/// The cell's value after the step before.
pub const CELL_STATE: usize = 13;
/// The output of the step before.
pub const LAST_OUTPUT: usize = 14;

/// Scale and zero point of the input and of the output.
const ACTIVATIONS: (f32, i32) = (1.0 / 128.0, 128);
/// Scale of the cell: four integer bits of 16.
const CELL_SCALE: f32 = 1.0 / 2048.0;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::QUANTIZED_16BIT_LSTM,
    variants: &[],
    forms: &[Form::default(&[
        quantized("input"),
        quantized("input_to_input_weights"),
        quantized("input_to_forget_weights"),
        quantized("input_to_cell_weights"),
        quantized("input_to_output_weights"),
        quantized("recurrent_to_input_weights"),
        quantized("recurrent_to_forget_weights"),
        quantized("recurrent_to_cell_weights"),
        quantized("recurrent_to_output_weights"),
        bias("input_gate_bias"),
        bias("forget_gate_bias"),
        bias("cell_gate_bias"),
        bias("output_gate_bias"),
        cell("prev_cell_state"),
        quantized("prev_output"),
    ])],
    outputs: &[cell("cell_state_out"), quantized("output")],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(step),
}];

fn expect_quantization(
    context: &dyn OperationContext,
    input: usize,
    (scale, zero_point): (f32, i32),
) -> Result<(), OpError> {
    let operand = context.required(input)?.operand;
    if operand.scale == scale && operand.zero_point == zero_point {
        return Ok(());
    }
    let message = format!(
        "has scale {} and zero point {}, must be {scale} and {zero_point}",
        operand.scale, operand.zero_point
    );
    Err(OpError::input(input, message))
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    let first = context.required(WEIGHTS.start)?.operand;
    let weights = (first.scale, first.zero_point);
    for input in WEIGHTS {
        expect_quantization(context, input, weights)?;
    }
    for input in BIASES {
        expect_quantization(context, input, (weights.0 / 128.0, 0))?;
    }
    expect_quantization(context, 0, ACTIVATIONS)?;
    expect_quantization(context, LAST_OUTPUT, ACTIVATIONS)?;
    expect_quantization(context, CELL_STATE, (CELL_SCALE, 0))?;
    context.check_output_quantization(0, CELL_SCALE, 0)?;
    context.check_output_quantization(1, ACTIVATIONS.0, ACTIVATIONS.1)
}

fn step(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let input = context.shape_of_rank(0, 2)?;
    let (batches, values) = (input.dim(0), input.dim(1));
    let units = context.shape_of_rank(LAST_OUTPUT, 2)?.dim(1);
    for (number, weights) in WEIGHTS.enumerate() {
        let columns = if number < 4 { values } else { units };
        expect_dims(context, weights, &[units, columns])?;
    }
    for bias in BIASES {
        expect_dims(context, bias, &[units])?;
    }
    for state in [CELL_STATE, LAST_OUTPUT] {
        expect_dims(context, state, &[batches, units])?;
    }
    let shape = shape_of(&[batches, units])?;
    set(outputs, 0, shape)?;
    set(outputs, 1, shape)
}
