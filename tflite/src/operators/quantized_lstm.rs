//! LSTM layers on integers: the int8 layer, and the older uint8 kernel whose weights are one matrix.

use nnhal_hal::{Operand, OperandType as T, OperationType as O, tflite};

use super::node::{Node, Refusal};
use crate::file::options::{LSTMOptions, UnidirectionalSequenceLSTMOptions};
use crate::graph::Id;
use crate::tensor::{ElementType, Quantization};
use crate::values;

/// Scale of the gates between multiplication and activation, where no layer normalization asks for another.
const GATE_SCALE: f32 = 1.0 / 4096.0;

/// One step of the int8 layer, by QUANTIZED_LSTM.
pub(super) fn full(node: &mut Node<'_, '_, '_, '_>, options: &LSTMOptions) -> Result<(), Refusal> {
    let (inputs, states) = cell(node, options.cell_clip, options.proj_clip)?;
    let output = node.output(0)?;
    node.emit(O::QUANTIZED_LSTM, &inputs, &[states[0], states[1], output])
}

/// The int8 layer over a sequence, by the extension's operation.
pub(super) fn sequence(
    node: &mut Node<'_, '_, '_, '_>,
    options: &UnidirectionalSequenceLSTMOptions,
) -> Result<(), Refusal> {
    let (mut inputs, states) = cell(node, options.cell_clip, options.proj_clip)?;
    inputs.push(node.scalar_bool(options.time_major)?);
    let output = node.output(0)?;
    node.emit(
        tflite::UNIDIRECTIONAL_SEQUENCE_LSTM,
        &inputs,
        &[states[0], states[1], output],
    )
}

/// The inputs of the int8 layer, and the states that it leaves: output and cell.
fn cell(
    node: &mut Node<'_, '_, '_, '_>,
    cell_clip: f32,
    projection_clip: f32,
) -> Result<(Vec<Id>, [Id; 2]), Refusal> {
    let found = node.tensor(0)?.element_type;
    if found != ElementType::Int8 {
        let reason = format!("has {found} elements; LSTM layers have float or int8 ones");
        return Err(node.input_error(0, reason));
    }
    let mut inputs = vec![node.input(0)?];
    for number in 1..9 {
        inputs.push(symmetric(node, number, T::TENSOR_QUANT8_SYMM)?);
    }
    for number in 9..12 {
        inputs.push(symmetric(node, number, T::TENSOR_QUANT16_SYMM)?);
    }
    for number in 12..16 {
        inputs.push(gate_bias(node, number)?);
    }
    inputs.push(symmetric(node, 16, T::TENSOR_QUANT8_SYMM)?);
    inputs.push(projection_bias(node)?);
    let (output_before, output_after) = node.state(18)?;
    let (cell_before, cell_after) = node.state(19)?;
    inputs.extend([output_before, cell_before]);
    for number in 20..24 {
        inputs.push(symmetric(node, number, T::TENSOR_QUANT16_SYMM)?);
    }
    inputs.push(node.scalar_float(cell_clip, T::TENSOR_FLOAT32)?);
    inputs.push(node.scalar_float(projection_clip, T::TENSOR_FLOAT32)?);
    let normalized = node.has(21);
    for gate in 0..4 {
        let scale = match intermediate(node, gate) {
            Some(quantization) if normalized => quantization.scale,
            _ => GATE_SCALE,
        };
        inputs.push(node.scalar_float(scale, T::TENSOR_FLOAT32)?);
    }
    let hidden = intermediate(node, 4)
        .or(node.output_tensor(0)?.quantization())
        .ok_or("it says no scale of its hidden state")?;
    inputs.push(node.scalar_i32(hidden.zero_point)?);
    inputs.push(node.scalar_float(hidden.scale, T::TENSOR_FLOAT32)?);
    Ok((inputs, [output_after, cell_after]))
}

/// The quantization of an intermediate result that the file describes.
fn intermediate(node: &Node<'_, '_, '_, '_>, number: usize) -> Option<Quantization> {
    let index = usize::try_from(node.operator().intermediates.get(number)?).ok()?;
    node.graph.tensors.get(index)?.quantization()
}

/// A constant with a scale and no zero point, as an operand of the type `ty`; the omitted one if the file has
/// none.
fn symmetric(node: &mut Node<'_, '_, '_, '_>, number: usize, ty: T) -> Result<Id, Refusal> {
    if !node.has(number) {
        return Ok(node.graph.builder.no_value(ty)?);
    }
    match node.tensor(number)?.quantization() {
        Some(Quantization { scale, zero_point: 0 }) => {
            let operand = Operand::new(ty, &node.tensor(number)?.dimensions).with_quantization(scale, 0);
            requalified(node, number, operand)
        }
        _ => Err(node.input_error(number, "must have one scale, and zero point 0")),
    }
}

fn requalified(node: &mut Node<'_, '_, '_, '_>, number: usize, operand: Operand) -> Result<Id, Refusal> {
    let index = node.input_index(number)?;
    let requalified = node.graph.requalified(index, operand);
    requalified.map_err(|reason| node.input_error(number, reason))
}

/// A bias in the scale that the file states, which depends on layer normalization.
fn gate_bias(node: &mut Node<'_, '_, '_, '_>, number: usize) -> Result<Id, Refusal> {
    if !node.has(number) {
        return Ok(node.graph.builder.no_value(T::TENSOR_INT32)?);
    }
    let scale = node
        .tensor(number)?
        .quantization()
        .map_or(0.0, |quantization| quantization.scale);
    let operand = Operand::new(T::TENSOR_INT32, &node.tensor(number)?.dimensions);
    requalified(node, number, operand.with_quantization(scale, 0))
}

fn projection_bias(node: &mut Node<'_, '_, '_, '_>) -> Result<Id, Refusal> {
    gate_bias(node, 17)
}

/// Feature weights, time weights and bias of an int8 SVDF layer.
pub(super) fn svdf_parameters(node: &mut Node<'_, '_, '_, '_>) -> Result<[Id; 3], Refusal> {
    Ok([
        symmetric(node, 1, T::TENSOR_QUANT8_SYMM)?,
        symmetric(node, 2, T::TENSOR_QUANT16_SYMM)?,
        gate_bias(node, 3)?,
    ])
}

/// The older kernel: input, previous output, one matrix of weights, one vector of biases, previous state.
/// Rows of the matrix are the gates input, cell, forget, output; columns are the input and then the previous
/// output.
pub(super) fn basic(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let depth = extent(node, 0, 1)?;
    let units = extent(node, 1, 1)?;
    let weights = gates(node, 2, units, depth + units)?;
    let biases = gates(node, 3, units, 4)?;
    let matrix = node
        .tensor(2)?
        .operand()
        .map_err(|reason| node.input_error(2, reason))?;
    // The scale that NNAPI prescribes: that of the weights by that of the input, which is fixed.
    let bias = Operand::new(T::TENSOR_INT32, &[units as u32]).with_quantization(matrix.scale / 128.0, 0);
    // NNAPI's order is input, forget, cell, output.
    let order = [0, 2, 1, 3];
    let mut inputs = vec![input];
    // NNAPI's operation joins its matrices to rows of recurrent and then input weights, and multiplies these
    // by the input and then the previous output, as they stand: cut in this order, they make up the file's
    // rows again.
    for (first, count) in [(units, depth), (0, units)] {
        for gate in order {
            let part: Vec<u8> = weights[gate]
                .chunks_exact(depth + units)
                .flat_map(|row| row[first..first + count].iter().copied())
                .collect();
            let operand = Operand {
                dimensions: vec![units as u32, count as u32],
                ..matrix.clone()
            };
            inputs.push(node.graph.constant(operand, &part)?);
        }
    }
    for gate in order {
        inputs.push(node.graph.constant(bias.clone(), &biases[gate])?);
    }
    inputs.extend([node.input(4)?, node.input(1)?]);
    let (output, state) = (node.output(0)?, node.output(1)?);
    node.emit(O::QUANTIZED_16BIT_LSTM, &inputs, &[state, output])?;
    for (number, id) in [(1, output), (4, state)] {
        let index = node.input_index(number)?;
        if node.graph.tensors[index].is_variable {
            node.graph.set_value(index, id);
        }
    }
    Ok(())
}

/// The extent of an input of two dimensions along one of them.
fn extent(node: &mut Node<'_, '_, '_, '_>, number: usize, dimension: usize) -> Result<usize, Refusal> {
    match node.dimensions(number)?.as_slice() {
        [rows, columns] => Ok([*rows, *columns][dimension] as usize),
        _ => Err(node.input_error(number, "must have two dimensions")),
    }
}

/// The four parts of a constant that has `units` rows of `row` bytes for each gate.
fn gates(
    node: &Node<'_, '_, '_, '_>,
    number: usize,
    units: usize,
    row: usize,
) -> Result<Vec<Vec<u8>>, Refusal> {
    let bytes = values::operand_bytes(node.tensor(number)?);
    let bytes = bytes.map_err(|reason| node.input_error(number, reason))?;
    let gate = units.saturating_mul(row);
    if gate == 0 || bytes.len() != gate.saturating_mul(4) {
        let reason = format!("has {} bytes, must have {}", bytes.len(), gate.saturating_mul(4));
        return Err(node.input_error(number, reason));
    }
    Ok(bytes.chunks_exact(gate).map(<[u8]>::to_vec).collect())
}
