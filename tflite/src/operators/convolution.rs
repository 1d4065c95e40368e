//! Convolutions.

use nnhal_hal::{ExtraParams, Operand, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::hybrid::{self, Rounding};
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{Conv2DOptions, DepthwiseConv2DOptions, TransposeConvOptions};
use crate::graph::Id;
use crate::values;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::CONV_2D,
        &[O::CONV_2D, O::GROUPED_CONV_2D],
        "NHWC, SAME or VALID padding, dilation; GROUPED_CONV_2D where the filter has fewer channels than the input; \
         a missing bias is zero; int8 filters with a scale a channel, or one in all; a float convolution with int8 \
         weights quantizes its input in each execution, by operations on floats",
        conv_2d,
    ),
    Mapping::new(
        Builtin::DEPTHWISE_CONV_2D,
        &[O::DEPTHWISE_CONV_2D],
        "as CONV_2D; the depth multiplier follows from the shapes",
        depthwise_conv_2d,
    ),
    Mapping::new(
        Builtin::TRANSPOSE_CONV,
        &[O::TRANSPOSE_CONV_2D],
        "as CONV_2D, with the output shape as an operand; integer weights of a float convolution are dequantized",
        transpose_conv,
    ),
];

/// NNAPI's number for the file's padding scheme.
pub(super) fn padding_code(node: &mut Node<'_, '_, '_, '_>, padding: i8) -> Result<Id, Refusal> {
    match padding {
        0 => node.scalar_i32(1),
        1 => node.scalar_i32(2),
        other => Err(Refusal::Reason(format!(
            "its padding scheme is {other}, must be 0 (SAME) or 1 (VALID)"
        ))),
    }
}

/// Filter and bias of a convolution whose scales are its own.
fn filter_and_bias(
    node: &mut Node<'_, '_, '_, '_>,
    input: (usize, Id),
    channel_dimension: usize,
    bias_number: usize,
) -> Result<(Id, Id), Refusal> {
    let filter = node.weights(input.0, 1)?;
    let count = filter_extent(node, filter, channel_dimension)?;
    let bias = bias(node, bias_number, input.1, filter, count)?;
    Ok((filter, bias))
}

fn conv_2d(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<Conv2DOptions>()?;
    let input = node.input(0)?;
    if hybrid::is_hybrid(node, 0, 1)? {
        let rounding = match node.tensor(1)?.has_channel_scales() {
            true => Rounding::Asymmetric,
            false => Rounding::Symmetric,
        };
        return hybrid_convolution(
            node,
            input,
            rounding,
            0,
            options.activation,
            |node, inputs, code, output| emit_conv_2d(node, inputs, &options, code, output),
        );
    }
    let (filter, bias) = filter_and_bias(node, (0, input), 0, 2)?;
    let (target, code) = node.activated_output(0, options.activation)?;
    emit_conv_2d(node, [input, filter, bias], &options, code, target.id)?;
    node.settle(target)
}

/// A float convolution with integer weights; `emit` adds the convolution itself.
fn hybrid_convolution(
    node: &mut Node<'_, '_, '_, '_>,
    input: Id,
    rounding: Rounding,
    channel_dimension: usize,
    activation: i8,
    emit: impl FnOnce(&mut Node<'_, '_, '_, '_>, [Id; 3], Id, Id) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let dimensions = node.tensor(1)?.dimensions.clone();
    let quantized = hybrid::quantize_input(node, input, rounding)?;
    let filter = hybrid::stored_weights(node, 1, &dimensions)?;
    let count = filter_extent(node, filter, channel_dimension)?;
    let own_bias = bias(node, 2, input, filter, count)?;
    let no_bias = node.filled(Operand::new(OperandType::TENSOR_FLOAT32, &[count]), &[0; 4])?;
    let result = node.temporary(Operand::new(OperandType::TENSOR_FLOAT32, &[]))?;
    let no_activation = node.scalar_i32(0)?;
    emit(node, [quantized.steps, filter, no_bias], no_activation, result)?;
    let real = hybrid::real_result(node, result, quantized, 1)?;
    let (target, code) = node.activated_output(0, activation)?;
    node.emit(O::ADD, &[real, own_bias, code], &[target.id])?;
    node.settle(target)
}

/// Adds the convolution of input, filter and bias.
fn emit_conv_2d(
    node: &mut Node<'_, '_, '_, '_>,
    [input, filter, bias]: [Id; 3],
    options: &Conv2DOptions,
    code: Id,
    output: Id,
) -> Result<(), Refusal> {
    let padding = padding_code(node, options.padding)?;
    let strides = [
        node.scalar_i32(options.stride_w)?,
        node.scalar_i32(options.stride_h)?,
    ];
    let mut inputs = vec![input, filter, bias, padding, strides[0], strides[1]];
    let dilation = (options.dilation_w, options.dilation_h);
    match groups(channels(node, input), channels(node, filter))? {
        Some(_) if dilation != (1, 1) => {
            Err("it has channel groups and dilation, which NNAPI has not together".into())
        }
        Some(groups) => {
            inputs.extend([node.scalar_i32(groups)?, code, node.scalar_bool(false)?]);
            node.emit(O::GROUPED_CONV_2D, &inputs, &[output])
        }
        None => {
            inputs.push(code);
            push_dilation(node, &mut inputs, dilation)?;
            node.emit(O::CONV_2D, &inputs, &[output])
        }
    }
}

/// The last extent, if known.
fn channels(node: &Node<'_, '_, '_, '_>, id: Id) -> Option<u32> {
    node.graph.builder.dimensions(id)?.last().copied()
}

/// The number of channel groups, if more than one.
fn groups(input: Option<u32>, filter: Option<u32>) -> Result<Option<i32>, Refusal> {
    let (Some(input), Some(filter)) = (input, filter) else {
        return Ok(None);
    };
    if input == filter {
        return Ok(None);
    }
    if input % filter != 0 {
        return Err(Refusal::Reason(format!(
            "its input has {input} channels, which are no multiple of the {filter} of its filter"
        )));
    }
    Ok(i32::try_from(input / filter).ok())
}

/// Layout and dilation, which older NNAPI versions do not have, only where they say something.
fn push_dilation(
    node: &mut Node<'_, '_, '_, '_>,
    inputs: &mut Vec<Id>,
    dilation: (i32, i32),
) -> Result<(), Refusal> {
    if dilation != (1, 1) {
        inputs.push(node.scalar_bool(false)?);
        inputs.push(node.scalar_i32(dilation.0)?);
        inputs.push(node.scalar_i32(dilation.1)?);
    }
    Ok(())
}

fn depthwise_conv_2d(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<DepthwiseConv2DOptions>()?;
    let input = node.input(0)?;
    if hybrid::is_hybrid(node, 0, 1)? {
        let activation = options.activation;
        return hybrid_convolution(
            node,
            input,
            Rounding::Asymmetric,
            3,
            activation,
            |node, inputs, code, output| emit_depthwise(node, inputs, &options, code, output),
        );
    }
    let (filter, bias) = filter_and_bias(node, (0, input), 3, 2)?;
    let (target, code) = node.activated_output(0, options.activation)?;
    emit_depthwise(node, [input, filter, bias], &options, code, target.id)?;
    node.settle(target)
}

/// Adds the depthwise convolution of input, filter and bias.
fn emit_depthwise(
    node: &mut Node<'_, '_, '_, '_>,
    [input, filter, bias]: [Id; 3],
    options: &DepthwiseConv2DOptions,
    code: Id,
    output: Id,
) -> Result<(), Refusal> {
    let count = filter_extent(node, filter, 3)?;
    let multiplier = match channels(node, input) {
        // The stored multiplier is wrong in some old files; their runtime computes it from the shapes too.
        Some(input) if count % input == 0 => {
            i32::try_from(count / input).map_err(|error| error.to_string())?
        }
        Some(input) => {
            return Err(Refusal::Reason(format!(
                "its filter has {count} channels, which are no multiple of the {input} of its input"
            )));
        }
        None => options.depth_multiplier,
    };
    let mut inputs = vec![input, filter, bias, padding_code(node, options.padding)?];
    for value in [options.stride_w, options.stride_h, multiplier] {
        inputs.push(node.scalar_i32(value)?);
    }
    inputs.push(code);
    push_dilation(node, &mut inputs, (options.dilation_w, options.dilation_h))?;
    node.emit(O::DEPTHWISE_CONV_2D, &inputs, &[output])
}

/// Inputs of the file: output shape, filter, input, optional bias.
fn transpose_conv(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<TransposeConvOptions>()?;
    let input = node.input(2)?;
    let (filter, bias) = filter_and_bias(node, (2, input), 0, 3)?;
    let shape = node.input(0)?;
    let mut inputs = vec![input, filter, bias, shape, padding_code(node, options.padding)?];
    for value in [options.stride_w, options.stride_h] {
        inputs.push(node.scalar_i32(value)?);
    }
    let (target, code) = node.activated_output(0, options.activation)?;
    inputs.push(code);
    inputs.push(node.scalar_bool(false)?);
    node.emit(O::TRANSPOSE_CONV_2D, &inputs, &[target.id])?;
    node.settle(target)
}

/// The extent of a filter along `dimension`: the number of its output channels.
fn filter_extent(node: &Node<'_, '_, '_, '_>, filter: Id, dimension: usize) -> Result<u32, Refusal> {
    let dimensions = node.graph.builder.dimensions(filter);
    match dimensions {
        Some(dimensions) if dimensions.len() == 4 => Ok(dimensions[dimension]),
        other => Err(Refusal::Reason(format!(
            "its filter has dimensions {:?}, must have four that are known before execution",
            other.unwrap_or_default()
        ))),
    }
}

/// The bias of a layer: the file's, with the scale that NNAPI wants, or zeros if the file has none.
pub(super) fn bias(
    node: &mut Node<'_, '_, '_, '_>,
    number: usize,
    input: Id,
    filter: Id,
    count: u32,
) -> Result<Id, Refusal> {
    let operand = bias_operand(node, input, filter, count);
    if !node.has(number) {
        let size = operand.operand_type.element_size();
        return node.filled(operand, &[0; 4][..size]);
    }
    let tensor = node.tensor(number)?;
    if !tensor.is_constant() || operand.operand_type != OperandType::TENSOR_INT32 {
        return node.input(number);
    }
    let elements = values::integers(tensor)
        .map_err(|reason| node.input_error(number, reason))?
        .len();
    if elements != count as usize {
        return Err(node.input_error(
            number,
            format_args!("has {elements} elements, must have {count}, one for each output channel"),
        ));
    }
    let index = node.input_index(number)?;
    let requalified = node.graph.requalified(index, operand);
    requalified.map_err(|reason| node.input_error(number, reason))
}

/// Type and scale of the bias: the input's type for floats; 32-bit integers in units of input scale times
/// filter scale for quantized layers, without a scale where the filter has one for each channel.
fn bias_operand(node: &Node<'_, '_, '_, '_>, input: Id, filter: Id, count: u32) -> Operand {
    let input = node.graph.builder.operand(input);
    let filter = node.graph.builder.operand(filter);
    if matches!(
        input.operand_type,
        OperandType::TENSOR_FLOAT32 | OperandType::TENSOR_FLOAT16
    ) {
        return Operand::new(input.operand_type, &[count]);
    }
    let scale = match filter.extra_params {
        ExtraParams::ChannelQuant(_) => 0.0,
        _ => input.scale * filter.scale,
    };
    Operand::new(OperandType::TENSOR_INT32, &[count]).with_quantization(scale, 0)
}
