//! IF and WHILE, and what all control flow has in common.

use std::collections::HashMap;

use nnhal_hal::{DataLocation, Operand, OperandLifeTime, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::random;
use crate::file::options::{IfOptions, StablehloCaseOptions, WhileOptions};
use crate::file::tables::Operator;
use crate::file::{File, decode_options};
use crate::graph::Id;
use crate::tensor::Tensor;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::IF,
        &[O::IF],
        "the branches become referenced graphs, with the constants that they take; no variables inside",
        |node| {
            let options = node.options::<IfOptions>()?;
            let condition = node.input(0)?;
            let graphs = [options.then_subgraph, options.else_subgraph];
            let arguments = passed(node, &graphs)?;
            let places = [place(node, graphs[0])?, place(node, graphs[1])?];
            choice(node, condition, places, &arguments)
        },
    ),
    Mapping::new(
        Builtin::WHILE,
        &[O::WHILE],
        "condition and body become referenced graphs; no variables inside",
        |node| {
            let options = node.options::<WhileOptions>()?;
            let arguments = arguments(node, 0)?;
            let condition = place(node, options.cond_subgraph)?;
            let body = place(node, options.body_subgraph)?;
            random::require_no_seeds(node, [options.cond_subgraph, options.body_subgraph])?;
            let mut inputs = vec![referenced(node, condition)?, referenced(node, body)?];
            inputs.extend(arguments);
            let dimensions = node.graph.model.output_dimensions(body);
            let outputs = outputs(node, &dimensions)?;
            node.emit(O::WHILE, &inputs, &outputs)
        },
    ),
];

/// An IF that gives the outputs of one of two graphs.
pub(super) fn choice(
    node: &mut Node<'_, '_, '_, '_>,
    condition: Id,
    places: [usize; 2],
    arguments: &[Id],
) -> Result<(), Refusal> {
    let outputs = outputs(node, &common_dimensions(node, places))?;
    emit_choice(node, condition, places, arguments, &outputs)
}

/// An IF of the graphs at two places, which take these arguments.
pub(super) fn emit_choice(
    node: &mut Node<'_, '_, '_, '_>,
    condition: Id,
    places: [usize; 2],
    arguments: &[Id],
    outputs: &[Id],
) -> Result<(), Refusal> {
    let mut inputs = vec![condition];
    for place in places {
        inputs.push(referenced(node, place)?);
    }
    inputs.extend(arguments);
    node.emit(O::IF, &inputs, outputs)
}

/// The dimensions of the outputs that two graphs have in common.
pub(super) fn common_dimensions(node: &Node<'_, '_, '_, '_>, places: [usize; 2]) -> Vec<Vec<u32>> {
    let [one, other] = places.map(|place| node.graph.model.output_dimensions(place));
    let pairs = one.iter().zip(&other);
    pairs.map(|(one, other)| common(one, other)).collect()
}

/// The graphs that an operator calls.
#[derive(Debug, Default)]
pub(crate) struct Calls<'a> {
    /// Their numbers in the file.
    pub(crate) graphs: Vec<i32>,
    /// What each is called with.
    pub(crate) arguments: Vec<Argument<'a>>,
}

/// What a graph is called with.
#[derive(Debug)]
pub(crate) enum Argument<'a> {
    /// A value with these dimensions.
    Value(Vec<u32>),
    /// A constant, which the graph has in place of an input.
    Constant(Tensor<'a>),
}

/// The graphs that IF, WHILE or CASE calls; other operators call none.
pub(super) fn calls<'a>(node: &mut Node<'_, '_, '_, 'a>, operator: Builtin) -> Result<Calls<'a>, Refusal> {
    let graphs = graphs_of(operator, node.operator())?;
    let first = match operator {
        Builtin::IF | Builtin::STABLEHLO_CASE => 1,
        Builtin::WHILE => 0,
        _ => return Ok(Calls::default()),
    };
    if first > 0 {
        node.input(0)?;
    }
    let mut given = Vec::with_capacity(node.input_count().saturating_sub(first));
    for number in first..node.input_count() {
        let constant = constant(node, number, &graphs).filter(|_| first > 0);
        given.push(match constant {
            Some(tensor) => Argument::Constant(tensor),
            None => {
                let id = node.input(number)?;
                Argument::Value(node.graph.builder.operand(id).dimensions.clone())
            }
        });
    }
    Ok(Calls {
        graphs,
        arguments: given,
    })
}

/// The numbers of the graphs that an operator calls by control flow.
fn graphs_of(kind: Builtin, operator: &Operator<'_>) -> Result<Vec<i32>, String> {
    Ok(match kind {
        Builtin::IF => {
            let options = decode_options::<IfOptions>(operator)?;
            vec![options.then_subgraph, options.else_subgraph]
        }
        Builtin::STABLEHLO_CASE => {
            let options = decode_options::<StablehloCaseOptions<'_>>(operator)?;
            options.branch_subgraph_indices.to_vec()
        }
        Builtin::WHILE => {
            let options = decode_options::<WhileOptions>(operator)?;
            vec![options.cond_subgraph, options.body_subgraph]
        }
        _ => Vec::new(),
    })
}

/// How often control flow calls each graph of a file.
pub(crate) fn counted_calls(file: &File<'_>) -> HashMap<i32, usize> {
    let mut counts = HashMap::new();
    for operator in file.graphs().iter().flat_map(|graph| &graph.operators) {
        let kind = Builtin::of(file, operator);
        // What cannot be read is told when it is mapped.
        let graphs = kind.and_then(|kind| graphs_of(kind, operator).ok());
        for graph in graphs.into_iter().flatten() {
            *counts.entry(graph).or_default() += 1;
        }
    }
    counts
}

/// The constant that an input is, if the called graphs can have it in place of an input of theirs: nothing
/// else calls them, so nobody calls them with another value. Weights are packed so, and not copied in each
/// execution: a wake-word model with a layer in a branch takes a third of the time.
fn constant<'a>(node: &Node<'_, '_, '_, 'a>, number: usize, graphs: &[i32]) -> Option<Tensor<'a>> {
    let index = node.input_index(number).ok()?;
    let graph = &node.graph;
    // What is an input of its own graph may be a constant in one place and none in another.
    let is_input = || {
        let mut inputs = graph.model.file.graphs()[graph.number()].inputs.iter();
        inputs.any(|input| usize::try_from(input) == Ok(index))
    };
    let calls = &graph.model.calls;
    let are_called_once = graphs.iter().all(|graph| calls.get(graph) == Some(&1));
    let tensor = graph.tensors.get(index)?;
    let is_plain = tensor.is_constant() && !tensor.is_sparse;
    (is_plain && are_called_once && !is_input()).then(|| tensor.clone())
}

/// The inputs that IF or CASE passes to these graphs: all but the first, less the constants that they have.
pub(super) fn passed(node: &mut Node<'_, '_, '_, '_>, graphs: &[i32]) -> Result<Vec<Id>, Refusal> {
    let numbers = (1..node.input_count()).filter(|number| constant(node, *number, graphs).is_none());
    let numbers: Vec<usize> = numbers.collect();
    numbers.into_iter().map(|number| node.input(number)).collect()
}

/// The inputs from this one on.
fn arguments(node: &mut Node<'_, '_, '_, '_>, first: usize) -> Result<Vec<Id>, Refusal> {
    (first..node.input_count())
        .map(|number| node.input(number))
        .collect()
}

/// The place of a graph of the file.
pub(super) fn place(node: &Node<'_, '_, '_, '_>, number: i32) -> Result<usize, Refusal> {
    let found = usize::try_from(number).ok();
    let found = found.and_then(|number| node.graph.model.place_of(number));
    Ok(found.ok_or_else(|| format!("it refers to graph {number}, which was not imported"))?)
}

/// The operand that refers to the graph at a place.
fn referenced(node: &mut Node<'_, '_, '_, '_>, place: usize) -> Result<Id, Refusal> {
    let operand = Operand {
        location: DataLocation {
            offset: u32::try_from(place).map_err(|error| error.to_string())?,
            ..DataLocation::default()
        },
        ..Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph)
    };
    Ok(node.graph.builder.add(operand)?)
}

/// The dimensions that hold for both, with 0 where they differ; none if not even the rank is the same.
fn common(one: &[u32], other: &[u32]) -> Vec<u32> {
    if one.len() != other.len() {
        return Vec::new();
    }
    one.iter()
        .zip(other)
        .map(|(one, other)| if one == other { *one } else { 0 })
        .collect()
}

/// The outputs, with the dimensions that the graphs give them.
fn outputs(node: &mut Node<'_, '_, '_, '_>, dimensions: &[Vec<u32>]) -> Result<Vec<Id>, Refusal> {
    if dimensions.len() != node.output_count() {
        return Err(Refusal::Reason(format!(
            "it has {} outputs and its graphs {}",
            node.output_count(),
            dimensions.len()
        )));
    }
    dimensions
        .iter()
        .enumerate()
        .map(|(number, dimensions)| {
            let id = node.output(number)?;
            node.graph
                .builder
                .operand_mut(id)
                .dimensions
                .clone_from(dimensions);
            Ok(id)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::common;

    #[test]
    fn extents_that_differ_between_branches_are_open() {
        assert_eq!(common(&[2, 3], &[2, 4]), [2, 0]);
        assert_eq!(common(&[2, 3], &[6]), [0_u32; 0]);
    }
}
