//! Chains of element-wise operations that are computed together, beside the reference.

use std::sync::Arc;

use nnhal_hal::{NoPools, Operand, OperandType, OperationType as O, Shape, SubgraphIndex};
use nnhal_os::cores::OwnCores;

use crate::test_graph::TestGraph;
use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

/// A graph of element-wise operations on one input.
struct Chain {
    graph: TestGraph,
    dims: [u32; 2],
}

impl Chain {
    /// Its input is operand 0.
    fn new(dims: [u32; 2]) -> Chain {
        let mut graph = TestGraph::default();
        graph.input(Operand::new(OperandType::TENSOR_FLOAT32, &dims));
        Chain { graph, dims }
    }

    fn floats(&mut self, values: &[f32]) -> u32 {
        let operand = Operand::new(OperandType::TENSOR_FLOAT32, &[values.len() as u32]);
        self.graph.constant(operand, bytemuck::cast_slice(values))
    }

    /// A constant of so many elements.
    fn floats_of(&mut self, dims: &[u32]) -> u32 {
        let values: Vec<f32> = (0..dims.iter().product())
            .map(|at| at as f32 % 9.0 - 4.0)
            .collect();
        let operand = Operand::new(OperandType::TENSOR_FLOAT32, dims);
        self.graph.constant(operand, bytemuck::cast_slice(&values))
    }

    /// Pads to the present dimensions.
    fn pad(&mut self, input: u32, paddings: [i32; 4]) -> u32 {
        let operand = Operand::new(OperandType::TENSOR_INT32, &[2, 2]);
        let paddings = self.graph.constant(operand, bytemuck::cast_slice(&paddings));
        self.operation(O::PAD, &[input, paddings])
    }

    /// One more operation; returns the operand that it computes.
    fn operation(&mut self, operation_type: O, inputs: &[u32]) -> u32 {
        let mut inputs = inputs.to_vec();
        if matches!(operation_type, O::ADD | O::SUB | O::MUL | O::DIV) {
            inputs.push(self.graph.scalar(0));
        }
        let output = Operand::new(OperandType::TENSOR_FLOAT32, &self.dims);
        self.graph.operation(operation_type, &inputs, output)
    }

    /// Scales by a row and rounds to nearest, ties away from zero.
    fn scale_and_round(&mut self, input: u32) -> u32 {
        let row: Vec<f32> = (0..self.dims[1]).map(|at| at as f32 * 0.37 - 3.0).collect();
        let (row, half) = (self.floats(&row), self.floats(&[0.5]));
        let scaled = self.operation(O::MUL, &[input, row]);
        let negative = self.operation(O::NEG, &[scaled]);
        let halves = [scaled, negative].map(|value| {
            let clamp = self.operation(O::RELU, &[value]);
            let sum = self.operation(O::ADD, &[clamp, half]);
            self.operation(O::FLOOR, &[sum])
        });
        self.operation(O::SUB, &halves)
    }

    fn program(&self, outputs: &[u32], kernels: KernelSet) -> Arc<Program> {
        let valid = self.graph.valid(outputs);
        Arc::new(Program::with_kernels(valid, &NoPools, kernels).unwrap())
    }

    /// Checks that the results are those of the reference, and returns how the operations are computed.
    fn assert_alike(&self, outputs: &[u32]) -> Vec<&'static str> {
        let programs = [KernelSet::Fast, KernelSet::Reference].map(|set| self.program(outputs, set));
        let (helpers, cores) = (Helpers::new(2), OwnCores::new(3));
        let threads = [Threads::ALONE, Threads::new(&helpers, &cores, 3)];
        let [found, exact] = programs.clone().map(|program| {
            let mut execution = Execution::new(program);
            let results = threads.map(|threads| {
                let dims = &self.graph.model.main.operands[0].dimensions;
                let input = execution.input(0, &Shape::new(dims).unwrap()).unwrap();
                for (at, value) in input.chunks_exact_mut(4).enumerate() {
                    let float = ((at * 7919) % 2003) as f32 * 0.25 - 250.0;
                    value.copy_from_slice(&float.to_ne_bytes());
                }
                let options = RunOptions {
                    threads,
                    ..RunOptions::default()
                };
                execution.run(&options).unwrap();
                let output = |at| execution.output(at).unwrap().1.to_vec();
                (0..outputs.len()).map(output).collect::<Vec<_>>()
            });
            assert_eq!(results[0], results[1]);
            results
        });
        assert_eq!(found, exact);
        let operations = 0..self.graph.model.main.operations.len();
        operations
            .map(|at| programs[0].kernel_name(SubgraphIndex::Main, at, 1))
            .collect()
    }
}

const FIRST: &str = "f32 element-wise, with the next";
const FUSED: &str = "with the one before";

#[test]
fn elements_are_rounded_by_whatever_is_added() {
    for addends in [[0.5, 0.5], [0.0, 0.0], [0.25, 0.75], [1.5, 1.5], [-0.5, -0.5]] {
        for scale in [None, Some(0.37), Some(-2.0)] {
            let mut chain = Chain::new([37, 11]);
            let addends = addends.map(|addend| chain.floats(&[addend]));
            let mut value = chain.operation(O::NEG, &[0]);
            if let Some(scale) = scale {
                let scale = chain.floats(&[scale]);
                value = chain.operation(O::MUL, &[scale, value]);
            }
            let negative = chain.operation(O::NEG, &[value]);
            let parts = [value, negative];
            let floors: Vec<u32> = parts
                .into_iter()
                .zip(addends)
                .map(|(value, addend)| {
                    let clamp = chain.operation(O::RELU, &[value]);
                    let sum = chain.operation(O::ADD, &[addend, clamp]);
                    chain.operation(O::FLOOR, &[sum])
                })
                .collect();
            let rounded = chain.operation(O::SUB, &floors);
            let names = chain.assert_alike(&[rounded]);
            assert_eq!(names[0], FIRST);
            assert!(names[1..].iter().all(|name| *name == FUSED));
        }
    }
}

#[test]
fn results_are_those_of_each_operation_alone() {
    for dims in [[1, 1], [1, 7], [3, 5], [64, 8], [73, 7], [2, 512], [5000, 30]] {
        let mut chain = Chain::new(dims);
        let rounded = chain.scale_and_round(0);
        let names = chain.assert_alike(&[rounded]);
        assert_eq!(names[0], FIRST, "{dims:?}");
        assert!(names[1..].iter().all(|name| *name == FUSED), "{dims:?}");
    }
}

#[test]
fn what_is_read_in_between_is_not_joined() {
    let mut chain = Chain::new([9, 4]);
    let row = chain.floats(&[0.5, -1.5, 1e30, f32::NAN]);
    let clamp = chain.operation(O::RELU6, &[0]);
    let sum = chain.operation(O::ADD, &[row, clamp]);
    let joined = chain.operation(O::FLOOR, &[sum]);
    let clamp = chain.operation(O::RELU1, &[joined]);
    let sum = chain.operation(O::ADD, &[clamp, clamp]);
    let floor = chain.operation(O::FLOOR, &[sum]);
    let clamp = chain.operation(O::RELU, &[floor]);
    let sum = chain.operation(O::ADD, &[clamp, row]);
    let floor = chain.operation(O::FLOOR, &[sum]);
    let last = chain.operation(O::MUL, &[floor, sum]);
    chain.assert_alike(&[last]);
}

#[test]
fn results_are_cut_where_nothing_else_reads_them() {
    let mut chain = Chain::new([37, 5]);
    let row = chain.floats(&[0.5, -1.5, 7.25, f32::NAN, -0.0]);
    let sum = chain.operation(O::ADD, &[0, row]);
    let clamp = chain.operation(O::RELU6, &[sum]);
    let product = chain.operation(O::MUL, &[clamp, row]);
    let clamp = chain.operation(O::RELU1, &[product]);
    let largest = chain.operation(O::MAXIMUM, &[clamp, row]);
    let clamp = chain.operation(O::RELU, &[largest]);
    let difference = chain.operation(O::SUB, &[clamp, product]);
    chain.assert_alike(&[difference]);
}

#[test]
fn rows_are_padded_on_the_way() {
    for (dims, [before, after]) in [
        ([5, 3], [0, 2]),
        ([70, 24], [1, 3]),
        ([4, 6], [2, 0]),
        ([3, 7], [0, 0]),
    ] {
        let mut chain = Chain::new(dims);
        let narrow = chain.operation(O::ABS, &[0]);
        let padded = [dims[0], dims[1] + (before + after) as u32];
        let wide = chain.floats_of(&padded);
        let narrow = chain.operation(O::NEG, &[narrow]);
        chain.dims = padded;
        let widened = chain.pad(narrow, [0, 0, before, after]);
        let sum = chain.operation(O::ADD, &[wide, widened]);
        let last = chain.operation(O::RELU, &[sum]);
        let names = chain.assert_alike(&[last]);
        let fused = if before + after > 0 { 2 } else { 0 };
        assert_eq!((names[fused], names[fused + 1]), (FIRST, FUSED), "{dims:?}");
    }
}

#[test]
fn other_paddings_are_left_to_the_operation() {
    let mut chain = Chain::new([4, 6]);
    chain.dims = [5, 7];
    let padded = chain.pad(0, [0, 1, 0, 1]);
    let clamp = chain.operation(O::RELU, &[padded]);
    let last = chain.operation(O::NEG, &[clamp]);
    let names = chain.assert_alike(&[last]);
    assert_eq!((names[0], names[1]), ("reference", FIRST));
}

#[test]
fn results_that_others_read_are_tensors() {
    let mut chain = Chain::new([4, 6]);
    let first = chain.operation(O::ABS, &[0]);
    let second = chain.operation(O::FLOOR, &[first]);
    let third = chain.operation(O::RELU, &[second]);
    let last = chain.operation(O::ADD, &[third, first]);
    let names = chain.assert_alike(&[second, last]);
    // The second is an output, and the first is read behind it.
    assert_eq!(names[2..], [FIRST, FUSED]);
    assert!(!names[..2].contains(&FUSED));
}

#[test]
fn rows_that_are_longer_than_what_passes_are_left_to_the_operations() {
    let mut chain = Chain::new([3, 700]);
    let rounded = chain.scale_and_round(0);
    let names = chain.assert_alike(&[rounded]);
    assert_eq!((names[0], names[1]), ("f32 element-wise", FIRST));
}

#[test]
fn operations_that_need_more_than_there_is_are_parted() {
    let mut chain = Chain::new([4, 6]);
    let mut sum = 0;
    for at in 0..40 {
        let addend = chain.floats(&[at as f32]);
        sum = chain.operation(O::ADD, &[sum, addend]);
    }
    let waiting: Vec<u32> = (0..6).map(|_| chain.operation(O::NEG, &[sum])).collect();
    let last = waiting
        .into_iter()
        .reduce(|left, right| chain.operation(O::MUL, &[left, right]));
    let names = chain.assert_alike(&[last.unwrap()]);
    assert!(names.iter().filter(|name| **name == FIRST).count() > 4);
}
