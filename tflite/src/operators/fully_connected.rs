//! Dense layers.

use nnhal_hal::{ExtraParams, Operand, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::convolution::bias;
use super::hybrid::{self, Rounding};
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::FullyConnectedOptions;
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[Mapping::new(
    Builtin::FULLY_CONNECTED,
    &[O::FULLY_CONNECTED, O::CONV_2D, O::RESHAPE],
    "a missing bias is zero; RESHAPE where the layer keeps more than two dimensions; weights with a scale a channel \
     as CONV_2D with a filter of 1 by 1; a float layer with int8 weights quantizes its input in each execution, by \
     operations on floats",
    fully_connected,
)];

/// The sizes of a layer.
struct Layer {
    /// Dimensions of the input, if known.
    input: Option<Vec<u32>>,
    /// How many vectors the input has, if known.
    batch: Option<u32>,
    /// Length of the vectors that the layer takes.
    input_size: u32,
    /// Length of the vectors that it gives.
    units: u32,
    /// Whether the result keeps all dimensions of the input but the last.
    keeps_dimensions: bool,
}

impl Layer {
    fn new(
        node: &Node<'_, '_, '_, '_>,
        input: Id,
        weights: Id,
        options: &FullyConnectedOptions,
    ) -> Result<Layer, Refusal> {
        let builder = &node.graph.builder;
        let &[units, input_size] = builder.dimensions(weights).unwrap_or_default() else {
            return Err(node.input_error(1, "must have two dimensions that are known before execution"));
        };
        let input = builder.dimensions(input).map(<[u32]>::to_vec);
        let batch = input
            .as_deref()
            .map(|input| batch(input, input_size))
            .transpose()?;
        Ok(Layer {
            input,
            batch,
            input_size,
            units,
            keeps_dimensions: options.keep_num_dims,
        })
    }

    fn known_batch(&self) -> Result<u32, Refusal> {
        self.batch
            .ok_or_else(|| "its input has dimensions that are not known before execution".into())
    }

    /// The dimensions of the result, if it has not the two that NNAPI's has.
    fn kept_dimensions(&self) -> Option<Vec<u32>> {
        let input = self.input.as_ref()?;
        if !self.keeps_dimensions || input.len() == 2 {
            return None;
        }
        let mut dimensions = input.clone();
        *dimensions.last_mut()? = self.units;
        Some(dimensions)
    }

    /// The input with two dimensions, if NNAPI's operation does not take it with those it has.
    fn flattened(&self, node: &mut Node<'_, '_, '_, '_>, input: Id) -> Result<Id, Refusal> {
        match (&self.input, self.batch) {
            (Some(dimensions), Some(batch)) if !(2..=4).contains(&dimensions.len()) => {
                node.reshaped(input, &[batch, self.input_size])
            }
            _ => Ok(input),
        }
    }

    /// Where the layer's operation writes for `output`: an operand of two dimensions, if the output has
    /// others.
    fn result_like(&self, node: &mut Node<'_, '_, '_, '_>, output: Id) -> Result<Id, Refusal> {
        if self.kept_dimensions().is_none() {
            return Ok(output);
        }
        let operand = node.graph.builder.operand(output).clone();
        node.temporary(Operand {
            dimensions: Vec::new(),
            ..operand
        })
    }

    /// Leads from what [`result_like`](Layer::result_like) gave to the output.
    fn keep_dimensions(&self, node: &mut Node<'_, '_, '_, '_>, from: Id, output: Id) -> Result<(), Refusal> {
        match self.kept_dimensions() {
            Some(dimensions) => node.emit_reshape(from, output, &dimensions),
            None => Ok(()),
        }
    }
}

/// How many vectors of this length an input has.
fn batch(input: &[u32], input_size: u32) -> Result<u32, Refusal> {
    let elements = input
        .iter()
        .try_fold(1_u32, |product, extent| product.checked_mul(*extent));
    match elements {
        Some(elements) if elements % input_size == 0 => Ok(elements / input_size),
        _ => Err(Refusal::Reason(format!(
            "its input has dimensions {input:?}, whose elements are no multiple of {input_size}, the length of a row \
             of its weights"
        ))),
    }
}

fn fully_connected(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<FullyConnectedOptions>()?;
    if options.weights_format != 0 {
        return Err("its weights are in the shuffled format, which NNAPI has not".into());
    }
    if hybrid::is_hybrid(node, 0, 1)? {
        return hybrid_layer(node, &options);
    }
    let (input, weights) = (node.input(0)?, node.weights(0, 1)?);
    let layer = Layer::new(node, input, weights, &options)?;
    let bias = bias(node, 2, input, weights, layer.units)?;
    let (target, code) = node.activated_output(0, options.activation)?;
    let is_per_channel = matches!(
        node.graph.builder.operand(weights).extra_params,
        ExtraParams::ChannelQuant(_)
    );
    if is_per_channel {
        as_convolution(node, &layer, [input, weights, bias, code], target.id)?;
    } else {
        let result = layer.result_like(node, target.id)?;
        let input = layer.flattened(node, input)?;
        node.emit(O::FULLY_CONNECTED, &[input, weights, bias, code], &[result])?;
        layer.keep_dimensions(node, result, target.id)?;
    }
    node.settle(target)
}

/// A float layer with integer weights.
fn hybrid_layer(node: &mut Node<'_, '_, '_, '_>, options: &FullyConnectedOptions) -> Result<(), Refusal> {
    let rounding = match options.asymmetric_quantize_inputs {
        true => Rounding::Asymmetric,
        false => Rounding::Symmetric,
    };
    let dimensions = node.tensor(1)?.dimensions.clone();
    let weights = hybrid::stored_weights(node, 1, &dimensions)?;
    let input = node.input(0)?;
    let layer = Layer::new(node, input, weights, options)?;
    let batch = layer.known_batch()?;
    let own_bias = bias(node, 2, input, weights, layer.units)?;
    let no_bias = node.filled(Operand::new(OperandType::TENSOR_FLOAT32, &[layer.units]), &[0; 4])?;
    // Each vector has a range of its own.
    let vectors = node.reshaped(input, &[batch, layer.input_size])?;
    let quantized = hybrid::quantize_input(node, vectors, rounding)?;
    let result = node.temporary(Operand::new(OperandType::TENSOR_FLOAT32, &[]))?;
    let no_activation = node.scalar_i32(0)?;
    node.emit(
        O::FULLY_CONNECTED,
        &[quantized.steps, weights, no_bias, no_activation],
        &[result],
    )?;
    let (target, code) = node.activated_output(0, options.activation)?;
    let real = hybrid::real_result(node, result, quantized, 1)?;
    let sum = layer.result_like(node, target.id)?;
    node.emit(O::ADD, &[real, own_bias, code], &[sum])?;
    layer.keep_dimensions(node, sum, target.id)?;
    node.settle(target)
}

/// The layer as a convolution over images of one pixel, whose channels are the elements of the vectors:
/// NNAPI's convolutions take a scale for each channel, its dense layers do not.
fn as_convolution(
    node: &mut Node<'_, '_, '_, '_>,
    layer: &Layer,
    [input, weights, bias, code]: [Id; 4],
    output: Id,
) -> Result<(), Refusal> {
    let index = node.input_index(1)?;
    let operand = node.graph.builder.operand(weights).clone();
    if let ExtraParams::ChannelQuant(params) = &operand.extra_params
        && params.channel_dim != 0
    {
        return Err(node.input_error(
            1,
            format_args!("has its scales along dimension {}, must be 0", params.channel_dim),
        ));
    }
    let batch = layer.known_batch()?;
    let filter = Operand {
        operand_type: OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL,
        dimensions: vec![layer.units, 1, 1, layer.input_size],
        ..operand
    };
    let filter = node
        .graph
        .requalified(index, filter)
        .map_err(|reason| node.input_error(1, reason))?;
    let image = node.reshaped(input, &[batch, 1, 1, layer.input_size])?;
    let result = Operand {
        dimensions: vec![batch, 1, 1, layer.units],
        ..node.graph.builder.operand(output).clone()
    };
    let result = node.temporary(result)?;
    let (padding, one) = (node.scalar_i32(2)?, node.scalar_i32(1)?);
    node.emit(
        O::CONV_2D,
        &[image, filter, bias, padding, one, one, code],
        &[result],
    )?;
    let dimensions = layer
        .kept_dimensions()
        .unwrap_or_else(|| vec![batch, layer.units]);
    node.emit_reshape(result, output, &dimensions)
}
