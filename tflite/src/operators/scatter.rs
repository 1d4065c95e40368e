//! Operators on places of tensors that indices name, and on diagonals and sequences.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{OneHotOptions, ReverseSequenceOptions};

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::GATHER_ND, &[tflite::GATHER_ND], "", |node| {
        moving(node, tflite::GATHER_ND, 2, 0)
    }),
    Mapping::new(Builtin::SCATTER_ND, &[tflite::SCATTER_ND], "", |node| {
        moving(node, tflite::SCATTER_ND, 3, 1)
    }),
    Mapping::new(Builtin::SPARSE_TO_DENSE, &[tflite::SPARSE_TO_DENSE], "", |node| {
        moving(node, tflite::SPARSE_TO_DENSE, 4, 2)
    }),
    Mapping::new(
        Builtin::DYNAMIC_UPDATE_SLICE,
        &[tflite::DYNAMIC_UPDATE_SLICE],
        "",
        |node| moving(node, tflite::DYNAMIC_UPDATE_SLICE, 3, 0),
    ),
    Mapping::new(Builtin::MATRIX_DIAG, &[tflite::MATRIX_DIAG], "", |node| {
        moving(node, tflite::MATRIX_DIAG, 1, 0)
    }),
    Mapping::new(Builtin::MATRIX_SET_DIAG, &[tflite::MATRIX_SET_DIAG], "", |node| {
        moving(node, tflite::MATRIX_SET_DIAG, 2, 0)
    }),
    Mapping::new(
        Builtin::REVERSE_SEQUENCE,
        &[tflite::REVERSE_SEQUENCE],
        "",
        |node| {
            let options = node.options::<ReverseSequenceOptions>()?;
            let mut inputs = node.inputs(2)?;
            inputs.push(node.scalar_i32(options.seq_dim)?);
            inputs.push(node.scalar_i32(options.batch_dim)?);
            let output = node.output_moved_from(0, inputs[0])?;
            node.emit(tflite::REVERSE_SEQUENCE, &inputs, &[output])
        },
    ),
    Mapping::new(
        Builtin::ONE_HOT,
        &[tflite::ONE_HOT, O::RESHAPE],
        "a RESHAPE where the index is a scalar",
        one_hot,
    ),
];

/// An operation of the first `count` inputs, whose output has values of the input `source`.
fn moving(node: &mut Node<'_, '_, '_, '_>, kind: O, count: usize, source: usize) -> Result<(), Refusal> {
    let inputs = node.inputs(count)?;
    let output = node.output_moved_from(0, inputs[source])?;
    node.emit(kind, &inputs, &[output])
}

fn one_hot(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let axis = node.options::<OneHotOptions>()?.axis;
    let mut inputs = node.inputs(4)?;
    inputs.push(node.scalar_i32(axis)?);
    let output = node.output_moved_from(0, inputs[2])?;
    let index_is_scalar = node.tensor(0)?.dimensions.is_empty();
    let (true, &[depth]) = (index_is_scalar, node.output_tensor(0)?.dimensions.as_slice()) else {
        return node.emit(tflite::ONE_HOT, &inputs, &[output]);
    };
    // A scalar has one dimension in the model, which the result has then, too.
    let operand = node.graph.builder.operand(output).clone();
    let row = node.temporary(nnhal_hal::Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    node.emit(tflite::ONE_HOT, &inputs, &[row])?;
    node.emit_reshape(row, output, &[depth])
}
