//! What IF and WHILE contain.

use nnhal_hal::{Model, Operand, OperandType, Operation, Subgraph};

/// The graphs that an operation refers to, by index, in the order of its inputs.
pub(super) fn referenced(graph: &Subgraph, operation: &Operation) -> Vec<usize> {
    let inputs = operation.inputs.iter();
    let operands = inputs.filter_map(|&index| graph.operands.get(index as usize));
    operands
        .filter(|operand| operand.operand_type == OperandType::SUBGRAPH)
        .map(|operand| operand.location.offset as usize)
        .collect()
}

/// Every graph that an operation runs, at any depth, each once.
pub(super) fn all_referenced(model: &Model, graph: &Subgraph, operation: &Operation) -> Vec<usize> {
    let mut seen = vec![false; model.referenced.len()];
    let mut found = Vec::new();
    let mut pending = referenced(graph, operation);
    while let Some(index) = pending.pop() {
        let (Some(inner), Some(seen)) = (model.referenced.get(index), seen.get_mut(index)) else {
            continue;
        };
        if std::mem::replace(seen, true) {
            continue;
        }
        found.push(index);
        pending.extend(
            inner
                .operations
                .iter()
                .flat_map(|operation| referenced(inner, operation)),
        );
    }
    found.sort_unstable();
    found
}

/// Whether a tensor's dimensions are not all known before the execution.
pub(super) fn is_open(operand: &Operand) -> bool {
    operand.dimensions.contains(&0) || (operand.operand_type.is_tensor() && operand.dimensions.is_empty())
}

/// Whether an IF or WHILE, or anything in it, has an operand whose size is not known.
pub(super) fn has_unknown_size(model: &Model, operation: &Operation) -> bool {
    let main = &model.main;
    let own = operation.inputs.iter().chain(&operation.outputs);
    let mut own = own.filter_map(|&index| main.operands.get(index as usize));
    let graphs = all_referenced(model, main, operation);
    let mut inner = graphs.iter().flat_map(|&index| &model.referenced[index].operands);
    own.any(is_open) || inner.any(is_open)
}
