//! Spectra, and the parts of the complex numbers that they have. Two floats along one more axis stand for
//! one.

use nnhal_hal::{Operand, OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};

const TAKES: &str = "what RFFT2D gives";

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::RFFT2D,
        &[tflite::RFFT2D],
        "real and imaginary parts lie along one more axis, also in the outputs of the model",
        rfft2d,
    ),
    Mapping::new(Builtin::REAL, &[O::STRIDED_SLICE], TAKES, |node| part(node, 0)),
    Mapping::new(Builtin::IMAG, &[O::STRIDED_SLICE], TAKES, |node| part(node, 1)),
    Mapping::new(Builtin::COMPLEX_ABS, &[tflite::COMPLEX_ABS], TAKES, |node| {
        require_complex(node)?;
        let input = node.input_of_any_type(0)?;
        let output = node.output(0)?;
        node.emit(tflite::COMPLEX_ABS, &[input], &[output])
    }),
];

fn rfft2d(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let tensor = node.output_tensor(0)?;
    if !tensor.is_complex() {
        let reason = format!("has {} elements, must have complex64", tensor.element_type);
        return Err(node.output_error(0, reason));
    }
    let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &tensor.dimensions);
    operand.dimensions.push(2);
    let inputs = node.inputs(2)?;
    let output = node.declare(0, operand)?;
    node.emit(tflite::RFFT2D, &inputs, &[output])
}

fn require_complex(node: &Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let tensor = node.tensor(0)?;
    if tensor.is_complex() {
        return Ok(());
    }
    let reason = format!("has {} elements, must have complex64", tensor.element_type);
    Err(node.input_error(0, reason))
}

/// The real or the imaginary part: an element of the last axis, which goes.
fn part(node: &mut Node<'_, '_, '_, '_>, number: i32) -> Result<(), Refusal> {
    require_complex(node)?;
    let input = node.input_of_any_type(0)?;
    let Some(last) = node.graph.builder.operand(input).dimensions.len().checked_sub(1) else {
        return Err(node.input_error(0, "has a rank that is not known before execution"));
    };
    let mut begin = vec![0; last];
    begin.push(number);
    let mut end = vec![0; last];
    end.push(number + 1);
    let whole = (1 << last) - 1;
    let inputs = [
        input,
        node.tensor_i32(&begin)?,
        node.tensor_i32(&end)?,
        node.tensor_i32(&vec![1; last + 1])?,
        node.scalar_i32(whole)?,
        node.scalar_i32(whole)?,
        node.scalar_i32(1 << last)?,
    ];
    let output = node.output(0)?;
    node.emit(O::STRIDED_SLICE, &inputs, &[output])
}
