//! IF, WHILE and StableHLO's CASE.

use nnhal_hal::{DataLocation, Operand, OperandLifeTime, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
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
            choice(node, condition, [options.then_subgraph, options.else_subgraph])
        },
    ),
    Mapping::new(
        Builtin::STABLEHLO_CASE,
        &[O::EQUAL, O::IF],
        "one branch or two, which become referenced graphs; no variables inside",
        |node| {
            let branches = node
                .options::<StablehloCaseOptions<'_>>()?
                .branch_subgraph_indices
                .to_vec();
            // Every index but 0 is that of the last one.
            let (&[last] | &[_, last]) = branches.as_slice() else {
                let count = branches.len();
                return Err(Refusal::Reason(format!(
                    "it has {count} branches; NNAPI's IF has two"
                )));
            };
            let (index, first) = (node.input(0)?, node.tensor_i32(&[0])?);
            let condition = node.temporary(Operand::new(OperandType::TENSOR_BOOL8, &[1]))?;
            node.emit(O::EQUAL, &[index, first], &[condition])?;
            choice(node, condition, [branches[0], last])
        },
    ),
    Mapping::new(
        Builtin::WHILE,
        &[O::WHILE],
        "condition and body become referenced graphs; no variables inside",
        |node| {
            let options = node.options::<WhileOptions>()?;
            let arguments = arguments(node, 0)?;
            let (condition, _) = referenced(node, options.cond_subgraph)?;
            let (body, dimensions) = referenced(node, options.body_subgraph)?;
            let mut inputs = vec![condition, body];
            inputs.extend(arguments);
            let outputs = outputs(node, &dimensions)?;
            node.emit(O::WHILE, &inputs, &outputs)
        },
    ),
];

/// An IF of two graphs, which take all inputs but the first.
fn choice(node: &mut Node<'_, '_, '_, '_>, condition: Id, branches: [i32; 2]) -> Result<(), Refusal> {
    let arguments = arguments(node, 1)?;
    let mut inputs = vec![condition];
    let mut results = Vec::with_capacity(2);
    for branch in branches {
        let (graph, outputs) = referenced(node, branch)?;
        inputs.push(graph);
        results.push(outputs);
    }
    inputs.extend(arguments);
    let dimensions: Vec<Vec<u32>> = results[0]
        .iter()
        .zip(&results[1])
        .map(|(one, other)| common(one, other))
        .collect();
    let outputs = outputs(node, &dimensions)?;
    node.emit(O::IF, &inputs, &outputs)
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

fn arguments(node: &mut Node<'_, '_, '_, '_>, first: usize) -> Result<Vec<Id>, Refusal> {
    (first..node.input_count())
        .map(|number| node.input(number))
        .collect()
}

/// The operand that refers to a graph of the file, and the dimensions of the graph's outputs.
fn referenced(node: &mut Node<'_, '_, '_, '_>, number: i32) -> Result<(Id, Vec<Vec<u32>>), Refusal> {
    let model = &node.graph.model;
    let place = usize::try_from(number)
        .ok()
        .and_then(|number| model.place_of(number));
    let place = place.ok_or_else(|| format!("it refers to graph {number}, which was not imported"))?;
    let outputs = model.output_dimensions(place);
    let operand = Operand {
        location: DataLocation {
            offset: u32::try_from(place).map_err(|error| error.to_string())?,
            ..DataLocation::default()
        },
        ..Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph)
    };
    Ok((node.graph.builder.add(operand)?, outputs))
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
