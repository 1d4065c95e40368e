//! Look-up by index, key or rank.

use nnhal_hal::{Operand, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{GatherOptions, LSHProjectionOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::GATHER,
        &[O::GATHER, tflite::GATHER, O::RESHAPE],
        "a RESHAPE where the index is a scalar",
        gather,
    ),
    Mapping::new(Builtin::EMBEDDING_LOOKUP, &[O::EMBEDDING_LOOKUP], "", |node| {
        let inputs = [node.input(0)?, embedding_table(node)?];
        let output = node.output_moved_from(0, inputs[1])?;
        node.emit(O::EMBEDDING_LOOKUP, &inputs, &[output])
    }),
    Mapping::new(Builtin::HASHTABLE_LOOKUP, &[O::HASHTABLE_LOOKUP], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
        let outputs = [node.output_moved_from(0, inputs[2])?, node.output(1)?];
        node.emit(O::HASHTABLE_LOOKUP, &inputs, &outputs)
    }),
    Mapping::new(
        Builtin::LSH_PROJECTION,
        &[O::LSH_PROJECTION],
        "sparse projections as NNAPI's type 3, dense ones as 2",
        |node| {
            let kind = match node.options::<LSHProjectionOptions>()?.kind {
                1 => 3,
                2 => 2,
                other => {
                    return Err(Refusal::Reason(format!(
                        "its projection type is {other}, must be 1 (sparse) or 2 (dense)"
                    )));
                }
            };
            let hash = node.input(0)?;
            let weight_type = node.ty(hash);
            let inputs = [
                hash,
                node.input(1)?,
                node.input_or_none(2, weight_type)?,
                node.scalar_i32(kind)?,
            ];
            let output = node.output(0)?;
            node.emit(O::LSH_PROJECTION, &inputs, &[output])
        },
    ),
];

fn gather(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let options = node.options::<GatherOptions>()?;
    let (input, indices) = (node.input(0)?, node.input(1)?);
    let rank = node.rank(0)?;
    let axis = node.axis(options.axis, rank)?;
    let position = node.scalar_i32(axis as i32)?;
    // Without dimensions the file's index is a scalar, or of unknown rank, which that of the result tells.
    let result_rank = node.output_tensor(0)?.dimensions.len();
    let index_is_scalar =
        node.tensor(1)?.dimensions.is_empty() && (node.is_constant(1) || result_rank + 1 == rank);
    let output = node.output_moved_from(0, input)?;
    if options.batch_dims != 0 {
        let inputs = [input, position, indices, node.scalar_i32(options.batch_dims)?];
        return node.emit(tflite::GATHER, &inputs, &[output]);
    }
    if !index_is_scalar || rank == 1 {
        return node.emit(O::GATHER, &[input, position, indices], &[output]);
    }
    let dimensions = node.graph.builder.dimensions(input).map(<[u32]>::to_vec);
    let operand = node.graph.builder.operand(output).clone();
    let kept = node.temporary(Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    node.emit(O::GATHER, &[input, position, indices], &[kept])?;
    if let Some(mut dimensions) = dimensions {
        dimensions.remove(axis);
        return node.emit_reshape(kept, output, &dimensions);
    }
    let axes = node.tensor_i32(&[axis as i32])?;
    node.emit(O::SQUEEZE, &[kept, axes], &[output])
}

/// The table of an embedding: integers become floats where the result is one.
fn embedding_table(node: &mut Node<'_, '_, '_, '_>) -> Result<Id, Refusal> {
    if node.output_tensor(0)?.is_float() {
        node.float_weights(1)
    } else {
        node.input(1)
    }
}
