//! How many bytes an execution reads and writes for an operation, and how long that is expected to take.

use std::collections::BTreeSet;
use std::time::Duration;

use nnhal_hal::{OperandLifeTime, Shape, Subgraph, SubgraphIndex};

use super::cost::Cost;
use super::lower::Plan;
use super::node::{Node, Work};
use super::program::Program;

impl Program {
    /// How many bytes an execution by so many threads reads and writes for an operation and those that are
    /// computed with it: each operand that they read from memory once, constants in the size that the model
    /// has them in, and each that they write. What operations that are computed together hand on to each
    /// other stays in registers or caches, and does not count; nor does what was computed beforehand.
    ///
    /// `None` for an operation that is computed with one before it, which has all bytes; where dimensions are
    /// known in executions only; and for IF and WHILE.
    #[must_use]
    pub fn bytes_moved(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> Option<u64> {
        let (_, subgraph) = self.model().model().subgraphs().find(|(at, _)| *at == graph)?;
        let plan = self.plan(graph)?;
        subgraph.operations.get(operation)?;
        let Some(node) = self.node(graph, operation, threads) else {
            return Some(0);
        };
        match node.work {
            Work::InPlace => Some(0),
            Work::If(_) | Work::While(_) => None,
            _ if node.number() != operation => None,
            _ => Traffic { subgraph, plan }.of(node),
        }
    }

    /// About how long one thread takes for an operation and those that are computed with it where so many
    /// compute, by the figures that decide what is computed as one. `None` where [`Program::bytes_moved`] has
    /// none.
    #[must_use]
    pub fn expected_time(&self, graph: SubgraphIndex, operation: usize, threads: usize) -> Option<Duration> {
        let bytes = self.bytes_moved(graph, operation, threads)?;
        let leaves = self.node(graph, operation, threads)?.leaves().into_iter();
        let layers: Cost = leaves
            .filter_map(|leaf| leaf.layer()?.cost_of(leaf.elements()?))
            .sum();
        Some(Duration::from_nanos(Cost { bytes, ..layers }.nanos()))
    }
}

/// A graph whose operands are counted.
struct Traffic<'a> {
    subgraph: &'a Subgraph,
    plan: &'a Plan,
}

impl Traffic<'_> {
    /// Of what a node reads and writes.
    fn of(&self, node: &Node) -> Option<u64> {
        let operands = node.operation.inputs.iter().chain(&node.operation.outputs);
        let operands: BTreeSet<u32> = operands.copied().collect();
        operands.into_iter().map(|operand| self.bytes(operand)).sum()
    }

    /// How many bytes an operand takes, if that is the same in every execution.
    fn bytes(&self, at: u32) -> Option<u64> {
        let operand = self.subgraph.operands.get(at as usize)?;
        if operand.lifetime == OperandLifeTime::NoValue {
            return Some(0);
        }
        let element = operand.operand_type.element_size() as u64;
        let shape = match self.plan.constants.get(at as usize)? {
            Some(constant) => constant.shape,
            None => Shape::new(&operand.dimensions).ok()?,
        };
        let is_known = operand.operand_type.is_scalar() || (shape.rank() > 0 && shape.is_fully_specified());
        if is_known {
            return Some(shape.elements().ok()? as u64 * element);
        }
        self.computed_bytes(at)
    }

    /// The same of what an operation computes, by its rule.
    fn computed_bytes(&self, at: u32) -> Option<u64> {
        let mut nodes = self.plan.nodes.iter().flat_map(Node::leaves);
        let node = nodes.find(|node| node.operation.outputs.contains(&at))?;
        let sizes = node.fixed.as_ref()?.sizes();
        let mut outputs = node.operation.outputs.iter().zip(sizes);
        let (_, bytes) = outputs.find(|(output, _)| **output == at)?;
        Some(bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, SubgraphIndex};

    use crate::plan::cost::Cost;
    use crate::test_graph::TestGraph;
    use crate::{KernelSet, Program};

    fn float(dims: &[u32]) -> Operand {
        Operand::new(T::TENSOR_FLOAT32, dims)
    }

    fn bytes(graph: &TestGraph, output: u32, kernels: KernelSet) -> Vec<Option<u64>> {
        let model = graph.valid(&[output]);
        let program = Program::with_kernels(model, &NoPools, kernels).unwrap();
        let count = program.model().model().main.operations.len();
        let of = |at| program.bytes_moved(SubgraphIndex::Main, at, 1);
        (0..count).map(of).collect()
    }

    /// An operand that is read twice, the magnitude of the sum, and what does not depend on executions.
    fn sum_of_doubled() -> (TestGraph, u32) {
        let mut graph = TestGraph::default();
        let dims = [6, 100];
        let x = graph.input(float(&dims));
        let none = graph.scalar(0);
        let constant = graph.constant(float(&[100]), &[0; 400]);
        let negated = graph.operation(O::NEG, &[constant], float(&[100]));
        let doubled = graph.operation(O::ADD, &[x, x, none], float(&dims));
        let sum = graph.operation(O::ADD, &[doubled, negated, none], float(&dims));
        let result = graph.operation(O::ABS, &[sum], float(&dims));
        (graph, result)
    }

    #[test]
    fn each_operand_is_counted_once_where_operations_are_computed_alone() {
        let (graph, result) = sum_of_doubled();
        let expected = [800, 4804, 5204, 4800].map(Some);
        assert_eq!(bytes(&graph, result, KernelSet::Reference), expected);
    }

    #[test]
    fn what_operations_hand_on_when_they_are_computed_together_is_not_counted() {
        let (graph, result) = sum_of_doubled();
        // The input, the negated constant and the activation code, and the result.
        let group = 2400 + 400 + 4 + 2400;
        let expected = [Some(0), Some(group), None, None];
        assert_eq!(bytes(&graph, result, KernelSet::Fast), expected);
    }

    #[test]
    fn products_of_fully_connected_layers_take_time_beside_what_they_read() {
        let mut graph = TestGraph::default();
        let x = graph.input(float(&[200, 200]));
        let weights = graph.constant(float(&[200, 200]), &[0; 4 * 200 * 200]);
        let bias = graph.constant(float(&[200]), &[0; 4 * 200]);
        let none = graph.scalar(0);
        let result = graph.operation(O::FULLY_CONNECTED, &[x, weights, bias, none], float(&[200, 200]));
        let program = Program::with_kernels(graph.valid(&[result]), &NoPools, KernelSet::Fast).unwrap();
        let expected = program.expected_time(SubgraphIndex::Main, 0, 1).unwrap();
        let moved = program.bytes_moved(SubgraphIndex::Main, 0, 1).unwrap();
        assert!(
            u128::from(Cost::of_bytes(moved as usize).nanos()) * 2 < expected.as_nanos(),
            "{expected:?}"
        );
    }

    #[test]
    fn tensors_of_another_shape_stay_and_unknown_ones_are_not_guessed() {
        // What the model leaves open of a result follows from the rule, if the input is declared.
        for (input, expected) in [([0, 8], None), ([5, 8], Some(320))] {
            let mut graph = TestGraph::default();
            let x = graph.input(float(&input));
            let result = graph.operation(O::TANH, &[x], float(&[0, 8]));
            assert_eq!(bytes(&graph, result, KernelSet::Fast), [expected]);
        }

        let mut graph = TestGraph::default();
        let x = graph.input(float(&[2, 50]));
        let axis = graph.scalar(1);
        let softmax = [
            x,
            graph.constant(Operand::new(T::FLOAT32, &[]), &1_f32.to_ne_bytes()),
        ];
        let shares = graph.operation(O::SOFTMAX, &softmax, float(&[2, 50]));
        let wider = graph.operation(O::EXPAND_DIMS, &[shares, axis], float(&[2, 1, 50]));
        let axes = graph.constant(Operand::new(T::TENSOR_INT32, &[1]), &2_i32.to_ne_bytes());
        let keeps = graph.constant(Operand::new(T::BOOL, &[]), &[0]);
        let most = graph.operation(O::REDUCE_MAX, &[wider, axes, keeps], float(&[2, 1]));
        let expected = [804, 0, 413].map(Some);
        assert_eq!(bytes(&graph, most, KernelSet::Fast), expected);
    }
}
