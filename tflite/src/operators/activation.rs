//! Activations that are operators of their own.

use nnhal_hal::{Operand, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::normalization::with_fixed_scale;
use crate::file::options::LeakyReluOptions;
use crate::graph::Id;

const LIKE_INPUT: &str = "quantized anew where input and output differ in scale";
const FIXED_SCALE: &str = "quantized anew where the output has not the scale that NNAPI fixes";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::RELU, &[O::RELU], LIKE_INPUT, |node| clamp(node, O::RELU)),
    Mapping::new(Builtin::RELU_N1_TO_1, &[O::RELU1], LIKE_INPUT, |node| {
        clamp(node, O::RELU1)
    }),
    Mapping::new(Builtin::RELU6, &[O::RELU6], LIKE_INPUT, |node| {
        clamp(node, O::RELU6)
    }),
    Mapping::new(
        Builtin::RELU_0_TO_1,
        &[O::RELU, O::MINIMUM],
        "the lesser of RELU and 1",
        relu_0_to_1,
    ),
    Mapping::new(Builtin::LOGISTIC, &[O::LOGISTIC], FIXED_SCALE, |node| {
        let input = node.input(0)?;
        with_fixed_scale(node, O::LOGISTIC, &[input], 1.0 / 256.0, (0, -128))
    }),
    Mapping::new(Builtin::TANH, &[O::TANH], FIXED_SCALE, |node| {
        let input = node.input(0)?;
        with_fixed_scale(node, O::TANH, &[input], 1.0 / 128.0, (128, 0))
    }),
    Mapping::new(
        Builtin::ELU,
        &[O::ELU],
        "alpha 1; quantized operands in floats",
        |node| {
            let input = node.real_input(0)?;
            let ty = node.ty(input);
            let alpha = node.scalar_float(1.0, ty)?;
            let target = node.real_output(0)?;
            node.emit(O::ELU, &[input, alpha], &[target.id])?;
            node.settle(target)
        },
    ),
    Mapping::new(Builtin::HARD_SWISH, &[O::HARD_SWISH], "", |node| {
        let input = node.input(0)?;
        let output = node.output(0)?;
        node.emit(O::HARD_SWISH, &[input], &[output])
    }),
    Mapping::new(Builtin::PRELU, &[O::PRELU], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?];
        let output = node.output(0)?;
        node.emit(O::PRELU, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::LEAKY_RELU,
        &[O::PRELU],
        "PRELU with a constant alpha of one element",
        leaky_relu,
    ),
];

fn clamp(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let target = node.output_quantized_like(0, input)?;
    node.emit(kind, &[input], &[target.id])?;
    node.settle(target)
}

fn relu_0_to_1(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let operand = node.graph.builder.operand(input).clone();
    let one = constant_of_one(node, operand.operand_type, 1.0)?;
    let positive = node.temporary(operand)?;
    let output = node.output(0)?;
    node.emit(O::RELU, &[input], &[positive])?;
    node.emit(O::MINIMUM, &[positive, one], &[output])
}

fn leaky_relu(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let alpha = node.options::<LeakyReluOptions>()?.alpha;
    let input = node.input(0)?;
    let ty = node.ty(input);
    let alpha = constant_of_one(node, ty, alpha)?;
    let output = node.output(0)?;
    node.emit(O::PRELU, &[input, alpha], &[output])
}

/// A constant of one element of this type. A quantized one represents the value without error: one step of
/// its size away from the zero point, which of 16-bit steps is 0.
fn constant_of_one(node: &mut Node<'_, '_, '_, '_>, ty: OperandType, value: f32) -> Result<Id, Refusal> {
    if !value.is_finite() {
        return Err(Refusal::Reason(format!(
            "it has the parameter {value}, must be finite"
        )));
    }
    let operand = Operand::new(ty, &[1]);
    match ty {
        OperandType::TENSOR_FLOAT16 => node.filled(operand, &half::f16::from_f32(value).to_le_bytes()),
        OperandType::TENSOR_QUANT16_SYMM => {
            let scale = if value == 0.0 { 1.0 } else { value.abs() };
            let element = i16::from(value > 0.0) - i16::from(value < 0.0);
            node.filled(operand.with_quantization(scale, 0), &element.to_le_bytes())
        }
        OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
            let (scale, zero_point, element) = match value {
                0.0 => (1.0, 0, 0),
                negative if negative < 0.0 => (-negative, 1, 0),
                positive => (positive, 0, 1),
            };
            node.filled(operand.with_quantization(scale, zero_point), &[element])
        }
        _ => node.filled(operand, &value.to_le_bytes()),
    }
}
