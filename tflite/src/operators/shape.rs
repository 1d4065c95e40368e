//! Operators that change a tensor's dimensions and keep its values, or ask for them.

use nnhal_hal::{OperandType, OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::{ReshapeOptions, SqueezeOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::RESHAPE,
        &[O::RESHAPE],
        "the shape from the second input or the options, one extent of -1 allowed",
        reshape,
    ),
    Mapping::new(
        Builtin::SQUEEZE,
        &[O::SQUEEZE],
        "every axis of extent 1 where it names none",
        squeeze,
    ),
    Mapping::new(Builtin::EXPAND_DIMS, &[O::EXPAND_DIMS], "constant axis", |node| {
        let input = node.input(0)?;
        let axis = node.single_i32(1)?;
        let axis = node.scalar_i32(axis)?;
        let output = node.output_moved_from(0, input)?;
        node.emit(O::EXPAND_DIMS, &[input, axis], &[output])
    }),
    Mapping::new(Builtin::TRANSPOSE, &[O::TRANSPOSE], "", |node| {
        let inputs = [node.input(0)?, node.input(1)?];
        let output = node.output_moved_from(0, inputs[0])?;
        node.emit(O::TRANSPOSE, &inputs, &[output])
    }),
    Mapping::new(
        Builtin::SHAPE,
        &[tflite::SHAPE],
        "a constant, where the dimensions are known before execution",
        |node| {
            let input = node.input(0)?;
            let output = node.output(0)?;
            node.emit(tflite::SHAPE, &[input], &[output])
        },
    ),
    Mapping::new(
        Builtin::BROADCAST_ARGS,
        &[tflite::BROADCAST_ARGS],
        "a constant, where both inputs are",
        |node| {
            let inputs = node.inputs(2)?;
            let output = node.output(0)?;
            node.emit(tflite::BROADCAST_ARGS, &inputs, &[output])
        },
    ),
    Mapping::new(Builtin::RANK, &[], "a constant", |node| {
        node.rank(0)?;
        Err("its result does not fit its element type".into())
    }),
];

fn reshape(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let input = node.input(0)?;
    let shape = match new_shape(node)? {
        Some(shape) => node.tensor_i32(&shape)?,
        None => node.input(1)?,
    };
    let output = node.output_moved_from(0, input)?;
    node.emit(O::RESHAPE, &[input, shape], &[output])
}

/// The dimensions that a RESHAPE gives, if they are known before execution. A scalar gets one dimension.
pub(super) fn new_shape(node: &Node<'_, '_, '_, '_>) -> Result<Option<Vec<i32>>, Refusal> {
    let shape = if node.has(1) {
        // A tensor of no elements has no data: it asks for a scalar.
        if node.tensor(1)?.dimensions == [0] {
            return Ok(Some(vec![1]));
        }
        if !node.is_constant(1) {
            return Ok(None);
        }
        node.i32s(1)?
    } else {
        node.options::<ReshapeOptions<'_>>()?.new_shape.to_vec()
    };
    // Old files say [0] for a scalar.
    Ok(Some(match shape.as_slice() {
        [] | [0] => vec![1],
        _ => shape,
    }))
}

fn squeeze(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let axes = node.options::<SqueezeOptions<'_>>()?.squeeze_dims.to_vec();
    let input = node.input(0)?;
    let axes: Id = if axes.is_empty() {
        node.graph.builder.no_value(OperandType::TENSOR_INT32)?
    } else {
        let rank = node.rank(0)?;
        let resolved: Vec<i32> = axes
            .iter()
            .map(|axis| node.axis(*axis, rank).map(|axis| axis as i32))
            .collect::<Result<_, _>>()?;
        node.tensor_i32(&resolved)?
    };
    let output = node.output_moved_from(0, input)?;
    node.emit(O::SQUEEZE, &[input, axes], &[output])
}
