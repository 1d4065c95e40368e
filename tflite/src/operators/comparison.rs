//! Comparisons, logic and choices.

use nnhal_hal::OperationType as O;

use super::builtin::Builtin;
use super::joining::broadcast_to;
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
        &[O::SELECT],
        "condition and choices of one shape",
        |node| {
            let inputs = [node.input(0)?, node.input(1)?, node.input(2)?];
            let output = node.output(0)?;
            node.emit(O::SELECT, &inputs, &[output])
        },
    ),
    Mapping::new(
        Builtin::SELECT_V2,
        &[O::SELECT, O::EXPAND_DIMS, O::TILE],
        "choices repeated to one shape; the condition must have it",
        select_v2,
    ),
];

fn binary(node: &mut Node<'_, '_, '_, '_>, kind: O) -> Result<(), Refusal> {
    let inputs = [node.input(0)?, node.input(1)?];
    let output = node.output(0)?;
    node.emit(kind, &inputs, &[output])
}

fn select_v2(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let condition = node.input(0)?;
    let shape = node.dimensions(0)?;
    let mut choices: Vec<Id> = Vec::with_capacity(2);
    for number in [1, 2] {
        let choice = node.input(number)?;
        choices.push(
            broadcast_to(node, choice, &shape).map_err(|refusal| match refusal {
                Refusal::Reason(reason) => node.input_error(
                    number,
                    format_args!("does not repeat to the dimensions {shape:?} of the condition: {reason}"),
                ),
                inner => inner,
            })?,
        );
    }
    let output = node.output(0)?;
    node.emit(O::SELECT, &[condition, choices[0], choices[1]], &[output])
}
