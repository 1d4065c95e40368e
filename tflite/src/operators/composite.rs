//! Composites: operators with a name of their own that the file also spells out, as a graph of others. The
//! operators of that graph stand in the model.

use super::builtin::Builtin;
use super::mapping::Mapping;
use super::node::{Node, Refusal};
use crate::file::options::StableHLOCompositeOptions;
use crate::graph::Id;
use crate::graph_import::GraphImport;
use crate::tensor::Tensor;

/// Largest constant, in bytes, that stays one inside the graph: shapes and axes, not data.
const MAX_CONSTANT: usize = 1 << 15;

pub(super) const MAPPINGS: &[Mapping] = &[Mapping::new(
    Builtin::STABLEHLO_COMPOSITE,
    &[],
    "the operators of its decomposition; no variables inside",
    composite,
)];

/// What a composite passes to its graph.
struct Argument<'a> {
    id: Id,
    /// The tensor, if it is a small constant.
    constant: Option<Tensor<'a>>,
}

fn composite(node: &mut Node<'_, '_, '_, '_>) -> Result<(), Refusal> {
    let number = node
        .options::<StableHLOCompositeOptions<'_>>()?
        .decomposition_subgraph_index;
    let number = usize::try_from(number).map_err(|_| format!("it refers to graph {number}"))?;
    let mut arguments = Vec::with_capacity(node.input_count());
    for input in 0..node.input_count() {
        let tensor = node.tensor(input)?;
        let is_small = |data: &[u8]| data.len() <= MAX_CONSTANT;
        let constant = tensor
            .data
            .as_deref()
            .is_some_and(is_small)
            .then(|| tensor.clone());
        let id = node.input(input)?;
        arguments.push(Argument { id, constant });
    }
    let origin = node.graph.origin(node.index());
    let results = decomposed(node.graph, number, origin, arguments)?;
    if results.len() != node.output_count() {
        return Err(Refusal::Reason(format!(
            "it has {} outputs and its graph {}",
            node.output_count(),
            results.len()
        )));
    }
    for (output, id) in results.into_iter().enumerate() {
        let index = node.output_index(output)?;
        let (stated, found) = (node.output_operand(output)?.operand_type, node.ty(id));
        if node.graph.is_written(index) {
            return Err(node.output_error(output, "has a value already"));
        }
        if stated != found {
            return Err(node.output_error(output, format_args!("is {stated} and {found} in its graph")));
        }
        node.graph.set_value(index, id);
    }
    Ok(())
}

/// Adds the operations of the graph `number` of the file and gives its results.
fn decomposed<'a>(
    graph: &mut GraphImport<'_, '_, 'a>,
    number: usize,
    origin: usize,
    arguments: Vec<Argument<'a>>,
) -> Result<Vec<Id>, Refusal> {
    graph.model.enter(number)?;
    let table = &graph.model.file.graphs()[number];
    graph
        .model
        .charge(1 + table.tensors.len() + table.operators.len())?;
    let mut inner = GraphImport::new(&mut *graph.model, number);
    inner.stands_for = Some(origin);
    std::mem::swap(&mut inner.builder, &mut graph.builder);
    let results = results(&mut inner, arguments);
    std::mem::swap(&mut inner.builder, &mut graph.builder);
    graph.model.open.pop();
    results
}

fn results<'a>(
    graph: &mut GraphImport<'_, '_, 'a>,
    arguments: Vec<Argument<'a>>,
) -> Result<Vec<Id>, Refusal> {
    let table = &graph.model.file.graphs()[graph.number];
    if table.inputs.len() != arguments.len() {
        return Err(Refusal::Reason(format!(
            "it has {} inputs and its graph {}",
            arguments.len(),
            table.inputs.len()
        )));
    }
    for (tensor, argument) in table.inputs.iter().zip(arguments) {
        let tensor = tensor as usize;
        let stated = graph.tensors[tensor].operand()?.operand_type;
        let found = graph.builder.operand(argument.id).operand_type;
        if stated != found {
            let label = graph.tensors[tensor].label(tensor);
            return Err(Refusal::Reason(format!(
                "it passes {found} where its graph has {stated} ({label})"
            )));
        }
        match argument.constant {
            Some(constant) => graph.tensors[tensor] = constant,
            None => graph.set_value(tensor, argument.id),
        }
    }
    let inner = |error| Refusal::Inner(Box::new(error));
    graph.add_operators().map_err(inner)?;
    let outputs = table.outputs.iter().map(|tensor| {
        let tensor = tensor as usize;
        let id = graph.value(tensor);
        id.map_err(|reason| inner(graph.tensor_error(tensor, reason)))
    });
    outputs.collect()
}
