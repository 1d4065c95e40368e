//! Memory for an execution before its first run.
//!
//! Values of declared sizes are gone through in the order of the operations as a run goes through them: each
//! takes memory that values before it have left, and leaves it after its last reader. What that comes to is
//! taken at once, in pages that are there, so that the first run finds what the later ones find.

use std::sync::Arc;

use nnhal_hal::{Operation, Subgraph};
use nnhal_os::buffer::AlignedBuffer;

use super::program::{Graph, Step};
use super::run::{Execution, smallest_that_holds};
use crate::kernel::Value;

/// More is not taken before a run shows that it is needed.
const MOST_BYTES: usize = 256 << 20;

/// Graphs with more results are left to their runs, which can be interrupted.
const MOST_RESULTS: usize = 4096;

/// How often the values are gone through: memory that was too small for a later value has been exchanged for
/// larger, so that the next time an earlier one may find other memory.
const ROUNDS: usize = 2;

impl Execution {
    /// Takes the memory that operations of the main graph need for their results, as far as the model
    /// declares how much that is: all of it, unless that is more than 256 MiB or for more than 4096 results.
    /// Runs take the rest. Does nothing after the first input.
    pub fn reserve(&mut self) {
        let program = Arc::clone(self.program());
        let (frame, memory) = self.parts();
        let is_new = |value: &Value| !value.present && value.buffer.capacity() == 0;
        let operations = &program.model.model().main.operations;
        let results: usize = operations.iter().map(|operation| operation.outputs.len()).sum();
        if results > MOST_RESULTS || !frame.values.iter().all(is_new) {
            return;
        }
        let mut rehearsal = Rehearsal {
            main: &program.model.model().main,
            graph: &program.graphs[0],
            values: vec![0; frame.values.len()],
            free: Vec::new(),
        };
        (0..ROUNDS).for_each(|_| rehearsal.go_through());
        let sizes = || rehearsal.values.iter().chain(&rehearsal.free);
        if sizes()
            .try_fold(0_usize, |sum, bytes| sum.checked_add(*bytes))
            .is_none_or(|sum| sum > MOST_BYTES)
        {
            return;
        }
        for (value, bytes) in frame.values.iter_mut().zip(&rehearsal.values) {
            value.buffer = touched(*bytes);
        }
        for bytes in &rehearsal.free {
            memory.give_back(touched(*bytes));
        }
    }
}

/// A buffer of so many bytes whose pages are there; an empty one if they cannot be had.
fn touched(bytes: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::new();
    if buffer.resize(bytes).is_ok() {
        buffer.touch();
    }
    buffer
}

/// A run that computes nothing and only counts bytes.
struct Rehearsal<'a> {
    main: &'a Subgraph,
    graph: &'a Graph,
    /// How many each value has.
    values: Vec<usize>,
    /// How many the buffers of the pool have.
    free: Vec<usize>,
}

impl Rehearsal<'_> {
    fn go_through(&mut self) {
        let mut index = 0;
        while let Some(step) = self.graph.steps.get(index) {
            let count = step.group.as_ref().map_or(1, |group| group.operations());
            let before = step.group.iter().flat_map(|group| group.before());
            for number in before.copied().chain([count - 1]) {
                let at = index + number;
                if let (Some(operation), Some(step)) =
                    (self.main.operations.get(at), self.graph.steps.get(at))
                {
                    self.give_outputs(operation, step);
                }
            }
            for step in self.graph.steps.iter().skip(index).take(count) {
                for &operand in &step.releases {
                    let left = std::mem::take(&mut self.values[operand as usize]);
                    self.give_back(left);
                }
            }
            index += count;
        }
    }

    fn give_back(&mut self, bytes: usize) {
        if bytes > 0 {
            self.free.push(bytes);
        }
    }

    fn give_outputs(&mut self, operation: &Operation, step: &Step) {
        if let (true, [input, ..], [output]) = (step.renames, &operation.inputs[..], &operation.outputs[..]) {
            let renamed = std::mem::take(&mut self.values[*input as usize]);
            let before = std::mem::replace(&mut self.values[*output as usize], renamed);
            return self.give_back(before);
        }
        let Some(fixed) = step.fixed.as_ref().filter(|_| !step.is_folded()) else {
            return;
        };
        for (&at, bytes) in operation.outputs.iter().zip(fixed.sizes()) {
            self.give(at as usize, bytes);
        }
    }

    fn give(&mut self, value: usize, bytes: usize) {
        if self.values[value] >= bytes {
            return;
        }
        if let Some(at) = smallest_that_holds(bytes, self.free.iter().copied()) {
            let taken = self.free.swap_remove(at);
            let given_up = std::mem::replace(&mut self.values[value], taken);
            self.give_back(given_up);
        }
        self.values[value] = self.values[value].max(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape};

    use crate::executor::{Execution, KernelSet, Program, RunOptions};
    use crate::test_graph::TestGraph;

    const COUNT: u32 = 1 << 20;

    fn floats(dims: &[u32]) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, dims)
    }

    fn execution(graph: &TestGraph, outputs: &[u32], kernels: KernelSet) -> Execution {
        let program = Program::with_kernels(graph.valid(outputs), &NoPools, kernels).unwrap();
        Execution::new(Arc::new(program))
    }

    /// `-(-(-(x)))` by kernels that compute each operation alone.
    fn negations(count: u32) -> Execution {
        let mut graph = TestGraph::default();
        let mut last = graph.input(floats(&[count]));
        for _ in 0..3 {
            last = graph.operation(OperationType::NEG, &[last], floats(&[count]));
        }
        execution(&graph, &[last], KernelSet::Reference)
    }

    /// Gives the input of so many elements these dimensions and runs; returns the last output.
    fn run(execution: &mut Execution, dims: &[u32], output: usize) -> Vec<f32> {
        let input = execution.input(0, &Shape::new(dims).unwrap()).unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&((at % 100) as f32 - 50.0).to_ne_bytes());
        }
        execution.run(&RunOptions::default()).unwrap();
        bytemuck::cast_slice(execution.output(output).unwrap().1).to_vec()
    }

    #[test]
    fn runs_take_no_more_than_the_input() {
        let mut execution = negations(COUNT);
        execution.reserve();
        let reserved = execution.bytes();
        // Two temporaries, and the output, which keeps what it has from one run to the next.
        assert_eq!(reserved, 3 * 4 * COUNT as usize);
        for _ in 0..3 {
            assert_eq!(run(&mut execution, &[COUNT], 0)[..2], [50.0, 49.0]);
            assert_eq!(execution.bytes(), reserved + 4 * COUNT as usize);
        }
        execution.release_memory();
        assert_eq!(execution.bytes(), 0);
    }

    #[test]
    fn results_are_those_of_an_execution_without() {
        // Operations that are computed together, one on constants, one that only gives another shape, one
        // with two outputs.
        let mut graph = TestGraph::default();
        let input = graph.input(floats(&[8, 600]));
        let constant = graph.constant(floats(&[600]), bytemuck::cast_slice(&[3.0_f32; 600]));
        let folded = graph.operation(OperationType::NEG, &[constant], floats(&[600]));
        let none = graph.scalar(0);
        let sum = graph.operation(OperationType::ADD, &[input, folded, none], floats(&[8, 600]));
        let absolute = graph.operation(OperationType::ABS, &[sum], floats(&[8, 600]));
        let shape = graph.constant(
            Operand::new(OperandType::TENSOR_INT32, &[1]),
            &4800_i32.to_ne_bytes(),
        );
        let flat = graph.operation(OperationType::RESHAPE, &[absolute, shape], floats(&[4800]));
        let root = graph.operation(OperationType::SQRT, &[flat], floats(&[4800]));
        let count = graph.scalar(7);
        let values = graph.operation(OperationType::TOPK_V2, &[root, count], floats(&[7]));
        let indexes = graph.another_output(Operand::new(OperandType::TENSOR_INT32, &[7]));
        for kernels in [KernelSet::Fast, KernelSet::Reference] {
            let new = || execution(&graph, &[values, indexes, root], kernels);
            let (mut plain, mut reserved) = (new(), new());
            reserved.reserve();
            assert!(reserved.bytes() > 0);
            for _ in 0..3 {
                assert_eq!(run(&mut plain, &[8, 600], 2), run(&mut reserved, &[8, 600], 2));
                assert_eq!(plain.output(1), reserved.output(1));
            }
        }
    }

    #[test]
    fn what_is_reserved_is_no_value() {
        let mut execution = negations(4);
        execution.reserve();
        assert!(execution.output(0).is_none());
        let error = execution.run(&RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains("omitted"), "{error}");
    }

    #[test]
    fn unknown_sizes_very_large_ones_and_used_executions_are_left_to_the_runs() {
        let mut unknown = negations(0);
        let mut large = negations((super::MOST_BYTES / 12) as u32 + 1);
        for execution in [&mut unknown, &mut large] {
            execution.reserve();
            assert_eq!(execution.bytes(), 0);
        }
        let mut used = negations(COUNT);
        used.input(0, &Shape::new(&[COUNT]).unwrap()).unwrap();
        let before = used.bytes();
        used.reserve();
        assert_eq!(used.bytes(), before);
    }
}
