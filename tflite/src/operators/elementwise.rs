//! Functions of one tensor, element by element.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::GeluOptions;
use crate::tensor::ElementType;

const IN_FLOATS: &str = "quantized operands in floats";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::ABS, &[O::ABS], IN_FLOATS, |node| unary(node, O::ABS)),
    Mapping::new(Builtin::NEG, &[O::NEG], IN_FLOATS, |node| unary(node, O::NEG)),
    Mapping::new(
        Builtin::EXP,
        &[O::EXP],
        "8-bit operands in floats",
        |node| match node.tensor(0)?.element_type {
            ElementType::Int16 => of_steps(node, O::EXP),
            _ => unary(node, O::EXP),
        },
    ),
    Mapping::new(Builtin::LOG, &[O::LOG], IN_FLOATS, |node| unary(node, O::LOG)),
    Mapping::new(Builtin::SQRT, &[O::SQRT], IN_FLOATS, |node| unary(node, O::SQRT)),
    Mapping::new(Builtin::RSQRT, &[O::RSQRT], "", |node| of_steps(node, O::RSQRT)),
    Mapping::new(Builtin::SIN, &[O::SIN], "", |node| unary(node, O::SIN)),
    Mapping::new(Builtin::COS, &[tflite::COS], "", |node| unary(node, tflite::COS)),
    Mapping::new(Builtin::ROUND, &[tflite::ROUND], "", |node| {
        unary(node, tflite::ROUND)
    }),
    Mapping::new(Builtin::SIGN, &[tflite::SIGN], "", |node| {
        unary(node, tflite::SIGN)
    }),
    Mapping::new(Builtin::GELU, &[tflite::GELU], "", |node| {
        let approximate = node.options::<GeluOptions>()?.approximate;
        let approximate = node.scalar_bool(approximate)?;
        let input = node.input(0)?;
        let output = node.output(0)?;
        node.emit(tflite::GELU, &[input, approximate], &[output])
    }),
    Mapping::new(Builtin::FLOOR, &[O::FLOOR], "", |node| unary(node, O::FLOOR)),
    Mapping::new(
        Builtin::CEIL,
        &[O::NEG, O::FLOOR],
        "the negative of the floor of the negative",
        |node| {
            let input = node.input(0)?;
            let operand = node.graph.builder.operand(input).clone();
            let negative = node.temporary(operand.clone())?;
            let floor = node.temporary(operand)?;
            let output = node.output(0)?;
            node.emit(O::NEG, &[input], &[negative])?;
            node.emit(O::FLOOR, &[negative], &[floor])?;
            node.emit(O::NEG, &[floor], &[output])
        },
    ),
];

/// Quantized operands as they are.
fn of_steps(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let output = node.output(0)?;
    node.emit(kind, &[input], &[output])
}

/// Quantized operands in floats.
fn unary(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let input = node.real_input(0)?;
    let target = node.real_output(0)?;
    node.emit(kind, &[input], &[target.id])?;
    node.settle(target)
}
