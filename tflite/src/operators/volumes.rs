//! Convolutions of volumes.

use nnhal_hal::tflite;

use super::builtin::Builtin;
use super::convolution::{bias, padding_code};
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::Conv3DOptions;
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::CONV_3D,
        &[tflite::CONV_3D],
        "a missing bias is zero",
        |node| {
            let options = node.options::<Conv3DOptions>()?;
            let layer = layer(node, (0, 1, 2), 4, &options)?;
            let (target, code) = node.activated_output(0, options.activation)?;
            let inputs = [layer.as_slice(), &[code]].concat();
            node.emit(tflite::CONV_3D, &inputs, &[target.id])?;
            node.settle(target)
        },
    ),
    Mapping::new(
        Builtin::CONV_3D_TRANSPOSE,
        &[tflite::CONV_3D_TRANSPOSE],
        "a missing bias is zero",
        |node| {
            let options = node.options::<Conv3DOptions>()?;
            let layer = layer(node, (2, 1, 3), 3, &options)?;
            let shape = node.input(0)?;
            let (target, code) = node.activated_output(0, options.activation)?;
            let inputs = [layer.as_slice(), &[code, shape]].concat();
            node.emit(tflite::CONV_3D_TRANSPOSE, &inputs, &[target.id])?;
            node.settle(target)
        },
    ),
];

/// The arguments that both begin with: input, filter and bias, which are these inputs of the operator, and
/// how the window moves. The filter has its output channels along the axis `channels`.
fn layer(
    node: &mut Node<'_, '_, '_, '_>,
    (input, filter, bias_number): (usize, usize, usize),
    channels: usize,
    options: &Conv3DOptions,
) -> Result<Vec<Id>, Refusal> {
    let dimensions = node.dimensions(filter)?;
    let count = dimensions.get(channels).copied();
    let count = count.ok_or_else(|| node.input_error(filter, "must have five dimensions"))?;
    let (input, filter) = (node.input(input)?, node.input(filter)?);
    let bias = bias(node, bias_number, input, filter, count)?;
    let mut inputs = vec![input, filter, bias, padding_code(node, options.padding)?];
    let strides = [options.stride_d, options.stride_h, options.stride_w];
    let dilations = [options.dilation_d, options.dilation_h, options.dilation_w];
    for value in strides.into_iter().chain(dilations) {
        inputs.push(node.scalar_i32(value)?);
    }
    Ok(inputs)
}
