//! StableHLO's CASE: one of many graphs by an index. Every index outside of the list is that of the last one.

use nnhal_hal::{Operand, OperandLifeTime, OperandType, OperationType as O};

use super::builtin::Builtin;
use super::control_flow::{choice, common_dimensions, emit_choice, passed, place};
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::StablehloCaseOptions;
use crate::graph::Id;
use crate::graph_import::ReferencedGraph;

pub(super) const MAPPINGS: &[Mapping] = &[Mapping::new(
    Builtin::STABLEHLO_CASE,
    &[O::EQUAL, O::LESS, O::SELECT, O::IF],
    "the branches become referenced graphs, of more than two in IFs that halve them; no variables inside",
    case,
)];

fn case(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let branches = node
        .options::<StablehloCaseOptions<'_>>()?
        .branch_subgraph_indices
        .to_vec();
    let places = branches.iter().map(|branch| place(node, *branch));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    let Some(last) = places.last() else {
        return Err("it has no branches".into());
    };
    let index = node.input(0)?;
    let arguments = passed(node, &branches)?;
    if places.len() <= 2 {
        let first = node.tensor_i32(&[0])?;
        let condition = compared(node, O::EQUAL, index, first)?;
        return choice(node, condition, [places[0], *last], &arguments);
    }
    halved(node, index, &places, *last, arguments)
}

/// IFs that each decide which half of the branches the index is in.
fn halved(
    node: &mut Node<'_, '_, '_, '_>,
    index: Id,
    places: &[usize],
    last: usize,
    mut arguments: Vec<Id>,
) -> Result<(), Refusal> {
    let index = without_negative(node, index, places.len() - 1)?;
    let mut level = places.to_vec();
    // Both halves of each IF take the same arguments, so all branches are as deep.
    level.resize(places.len().next_power_of_two(), last);
    arguments.insert(0, index);
    let mut width = 1;
    while level.len() > 2 {
        let is_lowest = width == 1;
        let pairs = level.chunks_exact(2).enumerate();
        let halves = pairs.map(|(number, pair)| {
            let middle = (2 * number + 1) * width;
            half(node, &arguments, middle, [pair[0], pair[1]], is_lowest)
        });
        level = halves.collect::<Result<_, _>>()?;
        width *= 2;
    }
    let condition = is_below(node, index, width)?;
    choice(node, condition, [level[0], level[1]], &arguments)
}

/// The index, or `last` where it is negative.
fn without_negative(node: &mut Node<'_, '_, '_, '_>, index: Id, last: usize) -> Result<Id, Refusal> {
    let is_negative = is_below(node, index, 0)?;
    let last = node.narrowed(std::iter::once(last as i64))?;
    let found = node.temporary(Operand::new(OperandType::TENSOR_INT32, &[1]))?;
    node.emit(O::SELECT, &[is_negative, last, index], &[found])?;
    Ok(found)
}

fn is_below(node: &mut Node<'_, '_, '_, '_>, index: Id, limit: usize) -> Result<Id, Refusal> {
    let limit = node.narrowed(std::iter::once(limit as i64))?;
    compared(node, O::LESS, index, limit)
}

fn compared(node: &mut Node<'_, '_, '_, '_>, kind: O, index: Id, other: Id) -> Result<Id, Refusal> {
    let found = node.temporary(Operand::new(OperandType::TENSOR_BOOL8, &[1]))?;
    node.emit(kind, &[index, other], &[found])?;
    Ok(found)
}

/// Makes a graph that takes the index and then the arguments, and chooses between the graphs at two places by
/// whether the index is below `middle`. Branches take no index.
fn half(
    node: &mut Node<'_, '_, '_, '_>,
    arguments: &[Id],
    middle: usize,
    places: [usize; 2],
    is_lowest: bool,
) -> Result<usize, Refusal> {
    node.graph
        .model
        .charge(1 + arguments.len() + node.output_count())?;
    let outer = std::mem::take(&mut node.graph.builder);
    let operands = arguments.iter().map(|id| Operand {
        lifetime: OperandLifeTime::SubgraphInput,
        location: Default::default(),
        ..outer.operand(*id).clone()
    });
    let operands: Vec<Operand> = operands.collect();
    let made = made(node, operands, middle, places, is_lowest);
    let builder = std::mem::replace(&mut node.graph.builder, outer);
    let (inputs, outputs) = made?;
    let (graph, origins) = builder.finish(&inputs, &outputs);
    let number = node.graph.number();
    let referenced = &mut node.graph.model.referenced;
    referenced.push(Some(ReferencedGraph {
        number,
        graph,
        origins,
    }));
    Ok(referenced.len() - 1)
}

/// Adds inputs and operations of such a graph, and gives its inputs and outputs.
fn made(
    node: &mut Node<'_, '_, '_, '_>,
    operands: Vec<Operand>,
    middle: usize,
    places: [usize; 2],
    is_lowest: bool,
) -> Result<(Vec<Id>, Vec<Id>), Refusal> {
    let inputs = operands
        .into_iter()
        .map(|operand| node.graph.builder.add(operand))
        .collect::<Result<Vec<Id>, String>>()?;
    let mut outputs = Vec::with_capacity(node.output_count());
    for (number, dimensions) in common_dimensions(node, places).into_iter().enumerate() {
        let mut operand = node.output_operand(number)?;
        operand.dimensions = dimensions;
        outputs.push(node.temporary(operand)?);
    }
    let condition = is_below(node, inputs[0], middle)?;
    let taken = if is_lowest { &inputs[1..] } else { &inputs[..] };
    emit_choice(node, condition, places, taken, &outputs)?;
    Ok((inputs, outputs))
}
