//! Comparisons, logic and choices.

use nnhal_hal::{OperationType as O, tflite};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(Builtin::EQUAL, &[O::EQUAL], "", |node| binary(node, O::EQUAL)),
    Mapping::new(Builtin::NOT_EQUAL, &[O::NOT_EQUAL], "", |node| {
        binary(node, O::NOT_EQUAL)
    }),
    Mapping::new(Builtin::LESS, &[O::LESS], "", |node| binary(node, O::LESS)),
    Mapping::new(Builtin::LESS_EQUAL, &[O::LESS_EQUAL], "", |node| {
        binary(node, O::LESS_EQUAL)
    }),
    Mapping::new(Builtin::GREATER, &[O::GREATER], "", |node| {
        binary(node, O::GREATER)
    }),
    Mapping::new(Builtin::GREATER_EQUAL, &[O::GREATER_EQUAL], "", |node| {
        binary(node, O::GREATER_EQUAL)
    }),
    Mapping::new(Builtin::LOGICAL_AND, &[O::LOGICAL_AND], "", |node| {
        binary(node, O::LOGICAL_AND)
    }),
    Mapping::new(Builtin::LOGICAL_OR, &[O::LOGICAL_OR], "", |node| {
        binary(node, O::LOGICAL_OR)
    }),
    Mapping::new(Builtin::LOGICAL_NOT, &[O::LOGICAL_NOT], "", |node| {
        let input = node.input(0)?;
        let output = node.output(0)?;
        node.emit(O::LOGICAL_NOT, &[input], &[output])
    }),
    Mapping::new(
        Builtin::SELECT,
        &[O::SELECT, O::RESHAPE, O::EXPAND_DIMS],
        "a condition of one dimension chooses along the first of the choices",
        |node| {
            let (condition, choice) = (node.input(0)?, node.input(1)?);
            let rank = node.graph.builder.operand(choice).dimensions.len();
            let condition = match node.graph.builder.operand(condition).dimensions[..] {
                [extent] if extent > 0 && rank > 1 => {
                    let mut dimensions = vec![1; rank];
                    dimensions[0] = extent;
                    node.reshaped(condition, &dimensions)?
                }
                [_] if rank > 1 => with_axes_behind(node, condition, rank)?,
                _ => condition,
            };
            select(node, condition)
        },
    ),
    Mapping::new(
        Builtin::SELECT_V2,
        &[O::SELECT],
        "the extension's where condition and choices have not one shape",
        |node| {
            let condition = node.input(0)?;
            select(node, condition)
        },
    ),
];

fn binary(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let inputs = [node.input(0)?, node.input(1)?];
    let output = node.output(0)?;
    node.emit(kind, &inputs, &[output])
}

/// A tensor of one axis with axes of extent 1 behind it, up to this rank.
fn with_axes_behind(node: &mut Node<'_, '_, '_, '_>, mut from: Id, rank: usize) -> Result<Id, Refusal> {
    for axis in 1..rank {
        let mut operand = node.graph.builder.operand(from).clone();
        operand.dimensions.push(1);
        let to = node.temporary(operand)?;
        let axis = node.scalar_i32(axis as i32)?;
        node.emit(O::EXPAND_DIMS, &[from, axis], &[to])?;
        from = to;
    }
    Ok(from)
}

/// NNAPI's operation takes one shape only, and does not know before execution that it gets others.
fn select(node: &mut Node<'_, '_, '_, '_>, condition: Id) -> Result<(), Refusal> {
    let inputs = [condition, node.input(1)?, node.input(2)?];
    let output = node.output(0)?;
    let builder = &node.graph.builder;
    let shape = builder.dimensions(condition);
    let have_one_shape = shape.is_some() && inputs.iter().all(|id| builder.dimensions(*id) == shape);
    let kind = if have_one_shape { O::SELECT } else { tflite::SELECT };
    node.emit(kind, &inputs, &[output])
}
