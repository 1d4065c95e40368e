//! Recurrent layers over sequences. NNAPI has them for floats only, the extension an LSTM of signed bytes.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::quantized_lstm;
use super::recurrent::{activation_code, float_parameters};
use crate::file::options::{
    BidirectionalSequenceLSTMOptions, BidirectionalSequenceRNNOptions, SequenceRNNOptions,
    UnidirectionalSequenceLSTMOptions,
};
use crate::graph::Id;

const FLOATS: &str = "floats only; integer weights are dequantized; state in and out";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::UNIDIRECTIONAL_SEQUENCE_LSTM,
        &[
            O::UNIDIRECTIONAL_SEQUENCE_LSTM,
            tflite::UNIDIRECTIONAL_SEQUENCE_LSTM,
        ],
        "floats, integer weights dequantized; int8 layers as the extension's operation; state in and out",
        unidirectional_lstm,
    ),
    Mapping::new(
        Builtin::UNIDIRECTIONAL_SEQUENCE_RNN,
        &[O::UNIDIRECTIONAL_SEQUENCE_RNN],
        FLOATS,
        unidirectional_rnn,
    ),
    Mapping::new(
        Builtin::BIDIRECTIONAL_SEQUENCE_LSTM,
        &[O::BIDIRECTIONAL_SEQUENCE_LSTM],
        FLOATS,
        bidirectional_lstm,
    ),
    Mapping::new(
        Builtin::BIDIRECTIONAL_SEQUENCE_RNN,
        &[O::BIDIRECTIONAL_SEQUENCE_RNN],
        FLOATS,
        bidirectional_rnn,
    ),
];

fn unidirectional_lstm(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<UnidirectionalSequenceLSTMOptions>()?;
    if options.diagonal_recurrent_tensors {
        return Err("its recurrent weights are diagonals, which NNAPI has not".into());
    }
    if !node.tensor(0)?.is_float() {
        return quantized_lstm::sequence(node, &options);
    }
    let input = node.input(0)?;
    let ty = node.ty(input);
    let mut inputs = vec![input];
    inputs.extend(float_parameters(node, 1..18, ty)?);
    let (output_before, output_after) = node.state(18)?;
    let (cell_before, cell_after) = node.state(19)?;
    inputs.extend([output_before, cell_before]);
    inputs.push(activation_code(node, options.activation)?);
    inputs.push(node.scalar_float(options.cell_clip, ty)?);
    inputs.push(node.scalar_float(options.proj_clip, ty)?);
    inputs.push(node.scalar_bool(options.time_major)?);
    inputs.extend(float_parameters(node, 20..24, ty)?);
    let output = node.output(0)?;
    node.emit(
        O::UNIDIRECTIONAL_SEQUENCE_LSTM,
        &inputs,
        &[output, output_after, cell_after],
    )
}

fn unidirectional_rnn(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<SequenceRNNOptions>()?;
    node.require_float(0)?;
    let input = node.input(0)?;
    let ty = node.ty(input);
    let mut inputs = vec![input];
    inputs.extend(float_parameters(node, 1..4, ty)?);
    let (before, after) = node.state(4)?;
    inputs.push(before);
    inputs.push(activation_code(node, options.activation)?);
    inputs.push(node.scalar_i32(i32::from(options.time_major))?);
    let output = node.output(0)?;
    node.emit(O::UNIDIRECTIONAL_SEQUENCE_RNN, &inputs, &[output, after])
}

/// The outputs of both directions, or the one that joins them.
fn bidirectional_outputs(node: &mut Node<'_, '_, '_, '_>, merged: bool) -> Result<Vec<Id>, Refusal> {
    let count = if merged { 1 } else { 2 };
    (0..count).map(|number| node.output(number)).collect()
}

fn bidirectional_lstm(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<BidirectionalSequenceLSTMOptions>()?;
    node.require_float(0)?;
    let input = node.input(0)?;
    let ty = node.ty(input);
    let mut inputs = vec![input];
    inputs.extend(float_parameters(node, 1..35, ty)?);
    let mut states = Vec::with_capacity(4);
    for number in 35..39 {
        let (before, after) = node.state(number)?;
        inputs.push(before);
        states.push(after);
    }
    inputs.push(node.input_or_none(39, ty)?);
    inputs.extend(float_parameters(node, 40..48, ty)?);
    inputs.push(activation_code(node, options.activation)?);
    inputs.push(node.scalar_float(options.cell_clip, ty)?);
    inputs.push(node.scalar_float(options.proj_clip, ty)?);
    inputs.push(node.scalar_bool(options.merge_outputs)?);
    inputs.push(node.scalar_bool(options.time_major)?);
    // The file's operator has no layer normalization.
    let absent = node.graph.builder.no_value(ty)?;
    inputs.extend([absent; 8]);
    let mut outputs = bidirectional_outputs(node, options.merge_outputs)?;
    outputs.extend(states);
    node.emit(O::BIDIRECTIONAL_SEQUENCE_LSTM, &inputs, &outputs)
}

fn bidirectional_rnn(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<BidirectionalSequenceRNNOptions>()?;
    node.require_float(0)?;
    let input = node.input(0)?;
    let ty = node.ty(input);
    let mut inputs = vec![input];
    inputs.extend(float_parameters(node, 1..4, ty)?);
    let (forward_before, forward_after) = node.state(4)?;
    inputs.push(forward_before);
    inputs.extend(float_parameters(node, 5..8, ty)?);
    let (backward_before, backward_after) = node.state(8)?;
    inputs.push(backward_before);
    inputs.push(node.input_or_none(9, ty)?);
    inputs.extend(float_parameters(node, 10..12, ty)?);
    inputs.push(activation_code(node, options.activation)?);
    inputs.push(node.scalar_bool(options.time_major)?);
    inputs.push(node.scalar_bool(options.merge_outputs)?);
    let mut outputs = bidirectional_outputs(node, options.merge_outputs)?;
    outputs.extend([forward_after, backward_after]);
    node.emit(O::BIDIRECTIONAL_SEQUENCE_RNN, &inputs, &outputs)
}
