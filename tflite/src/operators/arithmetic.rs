//! ADD, SUB, MUL, DIV and what they make: extremes, powers, squares, sums of many.

use nnhal_hal::{OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{AddOptions, DivOptions, MulOptions, SubOptions};
use crate::tensor::ElementType;

const FUSED: &str = "fused activation passed on; TANH as an operation of its own";

const UNQUANTIZED: &str = "floats and integers of 32 or 64 bits";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::ADD, &[O::ADD], FUSED, |node| {
        let activation = node.options::<AddOptions>()?.activation;
        with_activation(node, O::ADD, activation)
    }),
    Mapping::new(Builtin::SUB, &[O::SUB], FUSED, |node| {
        let activation = node.options::<SubOptions>()?.activation;
        with_activation(node, O::SUB, activation)
    }),
    Mapping::new(
        Builtin::MUL,
        &[O::MUL],
        "as ADD; in floats where the output scale is not above the product of the input scales",
        |node| {
            let activation = node.options::<MulOptions>()?.activation;
            if is_too_fine(node)? {
                in_floats(node, O::MUL, activation)
            } else {
                with_activation(node, O::MUL, activation)
            }
        },
    ),
    Mapping::new(
        Builtin::DIV,
        &[O::DIV, tflite::TRUNCATED_DIV],
        "as ADD; quantized operands in floats; integers by TRUNCATED_DIV, without activation",
        |node| {
            let activation = node.options::<DivOptions>()?.activation;
            match (node.tensor(0)?.element_type, activation) {
                // NNAPI's quotient of integers is rounded down.
                (ElementType::Int32 | ElementType::Int64, 0) => plain(node, tflite::TRUNCATED_DIV),
                (ElementType::Int32 | ElementType::Int64, _) => {
                    Err("it divides integers and has a fused activation".into())
                }
                _ => in_floats(node, O::DIV, activation),
            }
        },
    ),
    Mapping::new(Builtin::MAXIMUM, &[O::MAXIMUM], "", |node| {
        plain(node, O::MAXIMUM)
    }),
    Mapping::new(Builtin::MINIMUM, &[O::MINIMUM], "", |node| {
        plain(node, O::MINIMUM)
    }),
    Mapping::new(Builtin::POW, &[O::POW], "", |node| plain(node, O::POW)),
    Mapping::new(Builtin::ATAN2, &[tflite::ATAN2], "", |node| {
        plain(node, tflite::ATAN2)
    }),
    Mapping::new(Builtin::FLOOR_DIV, &[tflite::FLOOR_DIV], "", |node| {
        plain(node, tflite::FLOOR_DIV)
    }),
    Mapping::new(Builtin::FLOOR_MOD, &[tflite::FLOOR_MOD], "", |node| {
        plain(node, tflite::FLOOR_MOD)
    }),
    Mapping::new(Builtin::BITWISE_XOR, &[tflite::BITWISE_XOR], "", |node| {
        plain(node, tflite::BITWISE_XOR)
    }),
    Mapping::new(Builtin::RIGHT_SHIFT, &[tflite::RIGHT_SHIFT], "", |node| {
        plain(node, tflite::RIGHT_SHIFT)
    }),
    Mapping::new(Builtin::STABLEHLO_SHIFT_LEFT, &[tflite::LEFT_SHIFT], "", |node| {
        plain(node, tflite::LEFT_SHIFT)
    }),
    Mapping::new(
        Builtin::STABLEHLO_AND,
        &[O::LOGICAL_AND, tflite::BITWISE_AND],
        "LOGICAL_AND of truth values",
        |node| match node.tensor(0)?.element_type {
            ElementType::Bool => plain(node, O::LOGICAL_AND),
            _ => plain(node, tflite::BITWISE_AND),
        },
    ),
    Mapping::new(Builtin::STABLEHLO_ADD, &[O::ADD], UNQUANTIZED, |node| {
        require_numbers(node)?;
        with_activation(node, O::ADD, 0)
    }),
    Mapping::new(Builtin::STABLEHLO_MULTIPLY, &[O::MUL], UNQUANTIZED, |node| {
        require_numbers(node)?;
        with_activation(node, O::MUL, 0)
    }),
    Mapping::new(Builtin::STABLEHLO_MAXIMUM, &[O::MAXIMUM], UNQUANTIZED, |node| {
        require_numbers(node)?;
        plain(node, O::MAXIMUM)
    }),
    Mapping::new(Builtin::STABLEHLO_MINIMUM, &[O::MINIMUM], UNQUANTIZED, |node| {
        require_numbers(node)?;
        plain(node, O::MINIMUM)
    }),
    Mapping::new(
        Builtin::SQUARED_DIFFERENCE,
        &[O::SUB, O::MUL],
        "the difference times itself; quantized operands in floats",
        |node| {
            let inputs = [node.real_input(0)?, node.real_input(1)?];
            let none = node.scalar_i32(0)?;
            let target = node.real_output(0)?;
            let operand = node.graph.builder.operand(target.id).clone();
            let difference = node.temporary(operand)?;
            node.emit(O::SUB, &[inputs[0], inputs[1], none], &[difference])?;
            node.emit(O::MUL, &[difference, difference, none], &[target.id])?;
            node.settle(target)
        },
    ),
    Mapping::new(Builtin::SQUARE, &[O::MUL], "the input times itself", |node| {
        let input = node.real_input(0)?;
        let none = node.scalar_i32(0)?;
        let target = node.real_output(0)?;
        node.emit(O::MUL, &[input, input, none], &[target.id])?;
        node.settle(target)
    }),
    Mapping::new(
        Builtin::ADD_N,
        &[O::ADD],
        "one ADD for each input after the first",
        add_n,
    ),
];

/// Refuses small integers, which wrap in the file's runtime, whatever their scale.
fn require_numbers(node: &Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let found = node.tensor(0)?.element_type;
    let is_taken = matches!(
        found,
        ElementType::Float32 | ElementType::Float16 | ElementType::Int32 | ElementType::Int64
    );
    if is_taken {
        return Ok(());
    }
    Err(node.input_error(0, format_args!("has {found} elements, must have {UNQUANTIZED}")))
}

/// An operation of two inputs and an activation code.
fn with_activation(node: &mut Node<'_, '_, '_, '_>, kind: O, activation: i8) -> Result<(), Refusal> {
    let inputs = [node.input(0)?, node.input(1)?];
    let (target, code) = node.activated_output(0, activation)?;
    node.emit(kind, &[inputs[0], inputs[1], code], &[target.id])?;
    node.settle(target)
}

/// The same on dequantized operands. Those that are not quantized are taken as they are.
fn in_floats(node: &mut Node<'_, '_, '_, '_>, kind: O, activation: i8) -> Result<(), Refusal> {
    if !node.tensor(0)?.is_quant8() {
        return with_activation(node, kind, activation);
    }
    if !(0..=3).contains(&activation) {
        return Err("it has quantized operands and a fused activation that is not of the RELU family".into());
    }
    let inputs = [node.real_input(0)?, node.real_input(1)?];
    let code = node.scalar_i32(i32::from(activation))?;
    let target = node.real_output(0)?;
    node.emit(kind, &[inputs[0], inputs[1], code], &[target.id])?;
    node.settle(target)
}

/// Whether the output of a quantized MUL is finer than NNAPI's allows.
fn is_too_fine(node: &Node<'_, '_, '_, '_>) -> Result<bool, Refusal> {
    let (left, right) = (node.tensor(0)?.quantization(), node.tensor(1)?.quantization());
    let output = node.output_tensor(0)?.quantization();
    Ok(match (left, right, output) {
        (Some(left), Some(right), Some(output)) => output.scale <= left.scale * right.scale,
        _ => false,
    })
}

fn plain(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let inputs = [node.input(0)?, node.input(1)?];
    let output = node.output(0)?;
    node.emit(kind, &inputs, &[output])
}

fn add_n(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let none = node.scalar_i32(0)?;
    let mut sum = node.input(0)?;
    if node.input_count() == 1 {
        let output = node.output(0)?;
        return node.emit(O::CAST, &[sum], &[output]);
    }
    let types = [
        OperandType::TENSOR_FLOAT32,
        OperandType::TENSOR_INT32,
        tflite::TENSOR_INT64,
    ];
    if !types.contains(&node.ty(sum)) {
        return Err(node.input_error(0, "must have float32, int32 or int64 elements"));
    }
    for number in 1..node.input_count() {
        let term = node.input(number)?;
        let next = if number + 1 == node.input_count() {
            node.output(0)?
        } else {
            node.temporary(node.output_operand(0)?)?
        };
        node.emit(O::ADD, &[sum, term, none], &[next])?;
        sum = next;
    }
    Ok(())
}
