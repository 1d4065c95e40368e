//! Normalization.

use nnhal_hal::{Operand, OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{L2NormOptions, LocalResponseNormalizationOptions, SoftmaxOptions};
use crate::graph::Id;
use crate::tensor::{ElementType, Quantization};

const FIXED_SCALE: &str = "quantized anew where the output has not the scale that NNAPI fixes";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::SOFTMAX,
        &[O::SOFTMAX, tflite::SOFTMAX],
        FIXED_SCALE,
        |node| {
            let beta = node.options::<SoftmaxOptions>()?.beta;
            let input = node.input(0)?;
            let ty = node.ty(input);
            let beta = node.scalar_float(beta, ty)?;
            if ty == OperandType::TENSOR_QUANT8_ASYMM_SIGNED
                && node.output_tensor(0)?.element_type == ElementType::Int16
            {
                let output = unsigned_output(node)?;
                return node.emit(tflite::SOFTMAX, &[input, beta], &[output]);
            }
            with_fixed_scale(node, O::SOFTMAX, &[input, beta], 1.0 / 256.0, (0, -128))
        },
    ),
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

/// The 16-bit shares of signed bytes. The file has them as signed steps from the least value up, the
/// extension as unsigned ones. So they may go to other operators, but not out of the model.
fn unsigned_output(node: &mut Node<'_, '_, '_, '_>) -> Result<Id, Refusal> {
    let index = node.output_index(0)?;
    let number = node.graph.number();
    let mut given_out = node.graph.model.file.graphs()[number].outputs.iter();
    if given_out.any(|output| usize::try_from(output) == Ok(index)) {
        return Err(node.output_error(0, "has int16 elements that the model gives out"));
    }
    match node.output_tensor(0)?.quantization() {
        Some(Quantization {
            scale,
            zero_point: -32_768,
        }) if (scale * 65_536.0 - 1.0).abs() < 1e-3 => {}
        _ => return Err(node.output_error(0, "must have scale 1/65536 and zero point -32768")),
    }
    let dimensions = node.output_tensor(0)?.dimensions.clone();
    let operand = Operand::new(OperandType::TENSOR_QUANT16_ASYMM, &dimensions);
    node.declare(0, operand.with_quantization(1.0 / 65_536.0, 0))
}

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
