//! IF, WHILE and StableHLO's CASE.

use nnhal_hal::{DataLocation, Operand, OperandLifeTime, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::case;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use super::random;
use crate::file::options::{IfOptions, StablehloCaseOptions, WhileOptions};
use crate::graph::Id;

pub(super) const MAPPINGS: &[Mapping] = &[
    Mapping::new(
        Builtin::IF,
        &[O::IF],
        "the branches become referenced graphs; no variables inside",
        |node| {
            let options = node.options::<IfOptions>()?;
            let condition = node.input(0)?;
            let arguments = arguments(node, 1)?;
            let places = [
                place(node, options.then_subgraph)?,
                place(node, options.else_subgraph)?,
            ];
            choice(node, condition, places, &arguments)
        },
    ),
    Mapping::new(
        Builtin::STABLEHLO_CASE,
        &[O::EQUAL, O::LESS, O::SELECT, O::IF],
        "the branches become referenced graphs, of more than two in IFs that halve them; no variables inside",
        case::case,
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
pub(crate) struct Calls {
    /// Their numbers in the file.
    pub(crate) graphs: Vec<i32>,
    /// The dimensions of the arguments that each is called with.
    pub(crate) arguments: Vec<Vec<u32>>,
}

/// The graphs that IF, WHILE or CASE calls; other operators call none.
pub(super) fn calls(node: &mut Node<'_, '_, '_, '_>, operator: Builtin) -> Result<Calls, Refusal> {
    let (graphs, first) = match operator {
        Builtin::IF => {
            let options = node.options::<IfOptions>()?;
            node.input(0)?;
            (vec![options.then_subgraph, options.else_subgraph], 1)
        }
        Builtin::STABLEHLO_CASE => {
            let options = node.options::<StablehloCaseOptions<'_>>()?;
            node.input(0)?;
            (options.branch_subgraph_indices.to_vec(), 1)
        }
        Builtin::WHILE => {
            let options = node.options::<WhileOptions>()?;
            (vec![options.cond_subgraph, options.body_subgraph], 0)
        }
        _ => return Ok(Calls::default()),
    };
    let arguments = arguments(node, first)?;
    let builder = &node.graph.builder;
    let dimensions = arguments.iter().map(|id| builder.operand(*id).dimensions.clone());
    Ok(Calls {
        graphs,
        arguments: dimensions.collect(),
    })
}

/// The inputs from this one on.
pub(super) fn arguments(node: &mut Node<'_, '_, '_, '_>, first: usize) -> Result<Vec<Id>, Refusal> {
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
