//! One step of recurrent layers. State comes in as an input and goes out as an output; variable tensors of
//! the file are carried on by whoever runs the model.

use nnhal_hal::{Operand, OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::quantized_lstm;
use crate::file::options::{LSTMOptions, RNNOptions, SVDFOptions};
use crate::graph::Id;
use crate::tensor::ElementType;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::LSTM,
        &[O::LSTM, O::QUANTIZED_LSTM, O::QUANTIZED_16BIT_LSTM],
        "all optional inputs, layer normalization included; int8 layers as QUANTIZED_LSTM, the basic uint8 kernel as \
         QUANTIZED_16BIT_LSTM; integer weights of a float layer are dequantized",
        lstm,
    ),
    Mapping::new(
        Builtin::RNN,
        &[O::RNN],
        "floats only; integer weights of a float layer are dequantized",
        |node| {
            let activation = node.options::<RNNOptions>()?.activation;
            node.require_float(0)?;
            let activation = activation_code(node, activation)?;
            let mut inputs = vec![node.input(0)?];
            for number in 1..=3 {
                inputs.push(node.float_weights(number)?);
            }
            let (before, after) = node.state(4)?;
            inputs.extend([before, activation]);
            let output = node.output(0)?;
            node.emit(O::RNN, &inputs, &[after, output])
        },
    ),
    Mapping::new(
        Builtin::SVDF,
        &[O::SVDF, tflite::SVDF],
        "floats, integer weights dequantized; int8 layers as the extension's operation",
        |node| {
            let options = node.options::<SVDFOptions>()?;
            let activation = activation_code(node, options.activation)?;
            let rank = node.scalar_i32(options.rank)?;
            let mut inputs = vec![node.input(0)?];
            if node.tensor(0)?.element_type == ElementType::Int8 {
                inputs.extend(quantized_lstm::svdf_parameters(node)?);
            } else {
                node.require_float(0)?;
                for number in 1..=2 {
                    inputs.push(node.float_weights(number)?);
                }
                let ty = node.ty(inputs[0]);
                inputs.push(node.input_or_none(3, ty)?);
            }
            let (before, after) = node.state(4)?;
            inputs.extend([before, rank, activation]);
            let output = node.output(0)?;
            node.emit(O::SVDF, &inputs, &[after, output])
        },
    ),
];

/// The activation of a recurrent layer: the file's number is NNAPI's, as far as NNAPI has it.
pub(super) fn activation_code(node: &mut Node<'_, '_, '_, '_>, activation: i8) -> Result<Id, Refusal> {
    match activation {
        0..=4 => node.scalar_i32(i32::from(activation)),
        other => Err(Refusal::Reason(format!(
            "its activation is {other}; NNAPI's recurrent layers have 0 (none), 1 (relu), 2 (relu1), 3 (relu6) and 4 \
             (tanh)"
        ))),
    }
}

/// The weights and biases `numbers` of a float layer, of which the file may leave out some.
pub(super) fn float_parameters(
    node: &mut Node<'_, '_, '_, '_>,
    numbers: std::ops::Range<usize>,
    ty: OperandType,
) -> Result<Vec<Id>, Refusal> {
    numbers
        .map(|number| {
            if node.has(number) {
                node.float_weights(number)
            } else {
                node.input_or_none(number, ty)
            }
        })
        .collect()
}

fn lstm(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<LSTMOptions>()?;
    if options.kernel_type == 1 {
        return quantized_lstm::basic(node);
    }
    if !node.tensor(0)?.is_float() {
        return quantized_lstm::full(node, &options);
    }
    if node.input_count() < 20 {
        return Err(Refusal::Reason(format!(
            "it has {} inputs, must have 20, or 24 with layer normalization: its state must be among them",
            node.input_count()
        )));
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
    if (20..24).any(|number| node.has(number)) {
        inputs.extend(float_parameters(node, 20..24, ty)?);
    }
    let scratch = node.temporary(Operand::new(ty, &[]))?;
    let output = node.output(0)?;
    node.emit(O::LSTM, &inputs, &[scratch, output_after, cell_after, output])
}
