//! Joining, repeating and filling.

use nnhal_hal::{Operand, OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{ConcatenationOptions, PackOptions, UnpackOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::CONCATENATION,
        &[O::CONCATENATION],
        "a fused activation as an operation of its own",
        |node| {
            let options = node.options::<ConcatenationOptions>()?;
            let mut inputs = (0..node.input_count())
                .map(|number| node.input(number))
                .collect::<Result<Vec<_>, _>>()?;
            let rank = node.rank(0)?;
            let axis = node.axis(options.axis, rank)?;
            inputs.push(node.scalar_i32(axis as i32)?);
            let target = node.separately_activated_output(0, options.activation)?;
            node.emit(O::CONCATENATION, &inputs, &[target.id])?;
            node.settle(target)
        },
    ),
    Mapping::new(
        Builtin::PACK,
        &[O::PACK, O::CONCATENATION, O::RESHAPE],
        "scalars, which have one axis already, by CONCATENATION, or without the axis that PACK adds",
        pack,
    ),
    Mapping::new(
        Builtin::UNPACK,
        &[O::SPLIT, O::SQUEEZE],
        "a SPLIT into parts of extent 1, each without that axis",
        unpack,
    ),
    Mapping::new(Builtin::TILE, &[O::TILE], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::TILE, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::BROADCAST_TO,
        &[O::EXPAND_DIMS, O::TILE, tflite::BROADCAST_TO],
        "axes added in front, then repeated; by the extension for a shape that is not constant",
        |node| {
            let input = node.input(0)?;
            if !node.is_constant(1) || node.graph.builder.dimensions(input).is_none() {
                let shape = node.input(1)?;
                let output = node.output_moved_from(0, input)?;
                return node.emit(tflite::BROADCAST_TO, &[input, shape], &[output]);
            }
            let shape: Vec<u32> = node
                .i32s(1)?
                .into_iter()
                .map(|extent| u32::try_from(extent).map_err(|_| node.input_error(1, "has a negative extent")))
                .collect::<Result<_, _>>()?;
            let source = expanded(node, input, shape.len())?;
            let multiples = multiples(node, source, &shape)?;
            let output = node.output_moved_from(0, input)?;
            let multiples = node.tensor_i32(&multiples)?;
            node.emit(O::TILE, &[source, multiples], &[output])
        },
    ),
    Mapping::new(
        Builtin::FILL,
        &[O::FILL, tflite::FILL],
        "a value that is not constant, or of other types than NNAPI fills, by the extension",
        fill,
    ),
    Mapping::new(
        Builtin::ZEROS_LIKE,
        &[tflite::SHAPE, tflite::FILL],
        "a constant, where the dimensions are known before execution",
        zeros_like,
    ),
];

/// Whether the file has an input as a scalar, which is a tensor of one dimension in the model. The file's own
/// dimensions do not always tell it from a tensor of unknown shape; those of the result of a PACK, which has
/// one dimension more, or the length of its shape do.
fn is_scalar(node: &Node<'_, '_, '_, '_>, number: usize, joined_rank: usize) -> Result<bool, Refusal> {
    Ok(node.tensor(number)?.dimensions.is_empty() && joined_rank <= 1)
}

fn pack(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let axis = node.options::<PackOptions>()?.axis;
    let inputs = (0..node.input_count())
        .map(|number| node.input(number))
        .collect::<Result<Vec<_>, _>>()?;
    let first = node.input(0)?;
    let joined_rank = node.output_tensor(0)?.dimensions.len();
    if is_scalar(node, 0, joined_rank)? {
        return pack_scalars(node, inputs);
    }
    let rank = node.rank(0)?;
    let axis = node.axis(axis, rank + 1)?;
    let mut arguments = vec![node.scalar_i32(axis as i32)?];
    arguments.extend(inputs);
    let output = node.output_moved_from(0, first)?;
    node.emit(O::PACK, &arguments, &[output])
}

/// Scalars, which are tensors of one element in the model.
fn pack_scalars(node: &mut Node<'_, '_, '_, '_>, mut inputs: Vec<Id>) -> Result<(), Refusal> {
    let first = node.input(0)?;
    let count = inputs.len() as u32;
    let axis = node.scalar_i32(0)?;
    let output = node.output_moved_from(0, first)?;
    let operand = node.graph.builder.operand(first).clone();
    if operand.operand_type != OperandType::TENSOR_INT32 {
        inputs.push(axis);
        return node.emit(O::CONCATENATION, &inputs, &[output]);
    }
    let column = node.temporary(Operand {
        dimensions: vec![count, 1],
        ..operand
    })?;
    inputs.insert(0, axis);
    node.emit(O::PACK, &inputs, &[column])?;
    node.emit_reshape(column, output, &[count])
}

fn unpack(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let axis = node.options::<UnpackOptions>()?.axis;
    let input = node.input(0)?;
    let dimensions = node.dimensions(0)?;
    let axis = node.axis(axis, dimensions.len())?;
    let count = node.output_count();
    if dimensions[axis] as usize != count {
        return Err(Refusal::Reason(format!(
            "it unpacks extent {} into {count} outputs",
            dimensions[axis]
        )));
    }
    let position = node.scalar_i32(axis as i32)?;
    let axes = node.tensor_i32(&[axis as i32])?;
    let parts = [input, position, node.scalar_i32(count as i32)?];
    let outputs = (0..count)
        .map(|number| node.output_moved_from(number, input))
        .collect::<Result<Vec<_>, _>>()?;
    // The parts of a vector are scalars, which keep their one dimension in the model.
    if dimensions.len() == 1 {
        return node.emit(O::SPLIT, &parts, &outputs);
    }
    let mut slices = Vec::with_capacity(count);
    for _ in 0..count {
        let operand = node.graph.builder.operand(input).clone();
        slices.push(node.temporary(Operand {
            dimensions: Vec::new(),
            ..operand
        })?);
    }
    node.emit(O::SPLIT, &parts, &slices)?;
    for (slice, output) in slices.into_iter().zip(outputs) {
        node.emit(O::SQUEEZE, &[slice, axes], &[output])?;
    }
    Ok(())
}

fn zeros_like(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let dimensions = node.graph.builder.dimensions(input).map(<[u32]>::to_vec);
    let operand = Operand {
        dimensions: dimensions.clone().unwrap_or_else(|| vec![1]),
        ..node.output_operand(0)?
    };
    let zero = operand.zero_point.to_le_bytes();
    let element = match operand.operand_type.element_size() {
        1 => zero[..1].to_vec(),
        size => vec![0; size],
    };
    let constant = node.filled(operand, &element)?;
    if dimensions.is_some() {
        let index = node.output_index(0)?;
        node.graph.set_value(index, constant);
        return Ok(());
    }
    let shape = node.temporary(Operand::new(OperandType::TENSOR_INT32, &[0]))?;
    node.emit(tflite::SHAPE, &[input], &[shape])?;
    let output = node.output(0)?;
    node.emit(tflite::FILL, &[shape, constant], &[output])
}

/// NNAPI's takes the value as a scalar, of few types, the extension's as a tensor of any.
fn fill(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let (dims, value) = (node.input(0)?, node.input(1)?);
    let ty = match node.ty(value) {
        OperandType::TENSOR_FLOAT32 => Some(OperandType::FLOAT32),
        OperandType::TENSOR_FLOAT16 => Some(OperandType::FLOAT16),
        OperandType::TENSOR_INT32 => Some(OperandType::INT32),
        _ => None,
    };
    let bytes = node.tensor(1)?.data.as_ref().map(|data| data.to_vec());
    let (Some(ty), Some(bytes)) = (ty, bytes) else {
        let output = node.output_moved_from(0, value)?;
        return node.emit(tflite::FILL, &[dims, value], &[output]);
    };
    let bytes = bytes
        .get(..ty.element_size())
        .ok_or_else(|| node.input_error(1, "has no element"))?;
    let graph = &mut *node.graph;
    let value = graph.builder.scalar(&mut graph.model.store, ty, bytes)?;
    let output = node.output(0)?;
    node.emit(O::FILL, &[dims, value], &[output])
}

/// The operand repeated to these dimensions, by the rules of broadcasting.
pub(super) fn broadcast_to(
    node: &mut Node<'_, '_, '_, '_>,
    id: Id,
    dimensions: &[u32],
) -> Result<Id, Refusal> {
    if node.graph.builder.dimensions(id) == Some(dimensions) {
        return Ok(id);
    }
    let source = expanded(node, id, dimensions.len())?;
    let multiples = multiples(node, source, dimensions)?;
    if multiples.iter().all(|multiple| *multiple == 1) {
        return Ok(source);
    }
    let operand = node.graph.builder.operand(source).clone();
    let repeated = node.temporary(Operand {
        dimensions: Vec::new(),
        ..operand
    })?;
    let multiples = node.tensor_i32(&multiples)?;
    node.emit(O::TILE, &[source, multiples], &[repeated])?;
    Ok(repeated)
}

/// The operand with axes of extent 1 added in front until it has this rank.
fn expanded(node: &mut Node<'_, '_, '_, '_>, id: Id, rank: usize) -> Result<Id, Refusal> {
    let Some(dimensions) = node.graph.builder.dimensions(id) else {
        return Err("its dimensions are not known before execution".into());
    };
    let missing = rank.saturating_sub(dimensions.len());
    let front = node.scalar_i32(0)?;
    let mut id = id;
    for _ in 0..missing {
        let operand = node.graph.builder.operand(id).clone();
        let wider = node.temporary(Operand {
            dimensions: Vec::new(),
            ..operand
        })?;
        node.emit(O::EXPAND_DIMS, &[id, front], &[wider])?;
        id = wider;
    }
    Ok(id)
}

/// How often each axis of the operand is repeated to give these dimensions.
fn multiples(node: &Node<'_, '_, '_, '_>, id: Id, dimensions: &[u32]) -> Result<Vec<i32>, Refusal> {
    let found = node.graph.builder.dimensions(id).unwrap_or_default();
    if found.len() != dimensions.len() {
        return Err(Refusal::Reason(format!(
            "dimensions {found:?} do not broadcast to {dimensions:?}"
        )));
    }
    found
        .iter()
        .zip(dimensions)
        .map(|(from, to)| match (*from, *to) {
            (from, to) if from == to => Ok(1),
            (1, to) => i32::try_from(to).map_err(|error| Refusal::Reason(error.to_string())),
            _ => Err(Refusal::Reason(format!(
                "dimensions {found:?} do not broadcast to {dimensions:?}"
            ))),
        })
        .collect()
}
