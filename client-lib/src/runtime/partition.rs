//! Which operations run together, and in which order.
//!
//! An operation is ready when everything that it reads is there. Ready operations wait in a queue for their
//! device; one device at a time, from the last to the first, runs all that is ready for it, and what that
//! makes ready. Source: runtime rules of the NDK.

use std::collections::VecDeque;

use nnhal_hal::{OperandLifeTime, Subgraph};

/// Operations that one device runs together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Index of the device.
    pub(super) device: usize,
    /// Indexes of the operations, rising.
    pub(super) operations: Vec<usize>,
}

/// Divides the graph of a valid model by the devices chosen for its operations. Each part reads what earlier
/// parts compute.
pub(super) fn partition(graph: &Subgraph, choices: &[usize], devices: usize) -> Vec<Part> {
    let mut queues = vec![VecDeque::new(); devices];
    let readers = readers(graph);
    let mut missing: Vec<usize> = graph
        .operations
        .iter()
        .map(|operation| {
            let inputs = operation.inputs.iter();
            inputs.filter(|&&input| is_computed(graph, input)).count()
        })
        .collect();
    for (operation, _) in missing.iter().enumerate().filter(|(_, missing)| **missing == 0) {
        queues[choices[operation]].push_back(operation);
    }
    let mut parts = Vec::new();
    while let Some(device) = (0..devices).rev().find(|&device| !queues[device].is_empty()) {
        let mut operations = Vec::new();
        while let Some(operation) = queues[device].pop_front() {
            operations.push(operation);
            for &output in &graph.operations[operation].outputs {
                for &reader in &readers[output as usize] {
                    missing[reader] -= 1;
                    if missing[reader] == 0 {
                        queues[choices[reader]].push_back(reader);
                    }
                }
            }
        }
        operations.sort_unstable();
        parts.push(Part { device, operations });
    }
    parts
}

fn is_computed(graph: &Subgraph, operand: u32) -> bool {
    matches!(
        graph.operands[operand as usize].lifetime,
        OperandLifeTime::TemporaryVariable | OperandLifeTime::SubgraphOutput
    )
}

/// For each operand the operations that read it, as often as they do.
fn readers(graph: &Subgraph) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); graph.operands.len()];
    for (index, operation) in graph.operations.iter().enumerate() {
        for &input in &operation.inputs {
            readers[input as usize].push(index);
        }
    }
    readers
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, Operation, OperationType};

    use super::*;

    /// A graph of one input, operand 0, whose operations each write the operand after their index.
    fn graph(operations: &[&[u32]]) -> Subgraph {
        let mut operands = vec![
            Operand::new(OperandType::TENSOR_FLOAT32, &[1]).with_lifetime(OperandLifeTime::SubgraphInput),
        ];
        operands.extend(
            operations
                .iter()
                .map(|_| Operand::new(OperandType::TENSOR_FLOAT32, &[1])),
        );
        Subgraph {
            operands,
            operations: operations
                .iter()
                .enumerate()
                .map(|(index, inputs)| Operation {
                    operation_type: OperationType::ADD,
                    inputs: inputs.to_vec(),
                    outputs: vec![index as u32 + 1],
                })
                .collect(),
            ..Subgraph::default()
        }
    }

    fn parts(operations: &[&[u32]], choices: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let parts = partition(&graph(operations), choices, 3);
        parts
            .into_iter()
            .map(|part| (part.device, part.operations))
            .collect()
    }

    #[test]
    fn chain_is_cut_where_the_device_changes() {
        let chain: [&[u32]; 4] = [&[0], &[1], &[2], &[3]];
        assert_eq!(parts(&chain, &[0, 0, 1, 1]), [(0, vec![0, 1]), (1, vec![2, 3])]);
        assert_eq!(parts(&chain, &[2, 2, 2, 2]), [(2, vec![0, 1, 2, 3])]);
        assert_eq!(parts(&chain, &[1, 0, 1, 0]).len(), 4);
    }

    #[test]
    fn branches_of_one_device_are_one_part_and_later_devices_come_first() {
        // Two branches, one on each device, joined on the first.
        let branches: [&[u32]; 5] = [&[0], &[0], &[1], &[2, 2], &[3, 4]];
        assert_eq!(
            parts(&branches, &[0, 1, 0, 1, 0]),
            [(1, vec![1, 3]), (0, vec![0, 2, 4])]
        );
    }
}
