//! Normalization.

use nnhal_hal::{OperandType, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{L2NormOptions, LocalResponseNormalizationOptions, SoftmaxOptions};
use crate::graph::Id;
use crate::tensor::Quantization;

const FIXED_SCALE: &str = "quantized anew where the output has not the scale that NNAPI fixes";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::SOFTMAX, &[O::SOFTMAX], FIXED_SCALE, |node| {
        let beta = node.options::<SoftmaxOptions>()?.beta;
        let input = node.input(0)?;
        let ty = node.ty(input);
        let beta = node.scalar_float(beta, ty)?;
        with_fixed_scale(node, O::SOFTMAX, &[input, beta], 1.0 / 256.0, (0, -128))
    }),
    Mapping::new(
        Builtin::LOG_SOFTMAX,
        &[O::LOG_SOFTMAX],
        "beta 1, last axis; quantized operands in floats",
        |node| {
            let input = node.real_input(0)?;
            let ty = node.ty(input);
            let inputs = [input, node.scalar_float(1.0, ty)?, node.scalar_i32(-1)?];
            let target = node.real_output(0)?;
            node.emit(O::LOG_SOFTMAX, &inputs, &[target.id])?;
            node.settle(target)
        },
    ),
    Mapping::new(
        Builtin::L2_NORMALIZATION,
        &[O::L2_NORMALIZATION],
        FIXED_SCALE,
        |node| {
            if node.options::<L2NormOptions>()?.activation != 0 {
                return Err("it has a fused activation, which NNAPI's has not".into());
            }
            let input = node.input(0)?;
            with_fixed_scale(node, O::L2_NORMALIZATION, &[input], 1.0 / 128.0, (128, 0))
        },
    ),
    Mapping::new(
        Builtin::LOCAL_RESPONSE_NORMALIZATION,
        &[O::LOCAL_RESPONSE_NORMALIZATION],
        "",
        |node| {
            let options = node.options::<LocalResponseNormalizationOptions>()?;
            let input = node.input(0)?;
            let ty = node.ty(input);
            let mut inputs = vec![input, node.scalar_i32(options.radius)?];
            for value in [options.bias, options.alpha, options.beta] {
                inputs.push(node.scalar_float(value, ty)?);
            }
            let output = node.output(0)?;
            node.emit(O::LOCAL_RESPONSE_NORMALIZATION, &inputs, &[output])
        },
    ),
];

/// An operation whose quantized results have one scale and, for unsigned and signed results, these zero
/// points. Those of 16 bits reach from -1 to 1.
pub(super) fn with_fixed_scale(
    node: &mut Node<'_, '_, '_, '_>,
    kind: O,
    inputs: &[Id],
    scale: f32,
    zero_points: (i32, i32),
) -> Result<(), Refusal> {
    let (scale, zero_point) = match node.ty(inputs[0]) {
        OperandType::TENSOR_QUANT8_ASYMM => (scale, zero_points.0),
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => (scale, zero_points.1),
        OperandType::TENSOR_QUANT16_SYMM => (1.0 / 32_768.0, 0),
        _ => {
            let output = node.output(0)?;
            return node.emit(kind, inputs, &[output]);
        }
    };
    let target = node.output_quantized(0, Quantization { scale, zero_point })?;
    node.emit(kind, inputs, &[target.id])?;
    node.settle(target)
}
