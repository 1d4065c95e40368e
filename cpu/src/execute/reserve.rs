//! Memory for an execution before its first run.

use std::sync::Arc;

use nnhal_os::buffer::AlignedBuffer;

use super::run::Execution;
use crate::kernel::Value;
use crate::plan::memory::Sizes;

impl Execution {
    /// Takes the memory that operations of the main graph need for their results, as far as the model
    /// declares how much that is: all of it, unless that is more than 256 MiB or for more than 4096 results.
    /// Runs take the rest. Does nothing after the first input.
    pub fn reserve(&mut self) {
        let program = Arc::clone(self.program());
        let (frame, memory) = self.parts();
        let is_new = |value: &Value| !value.present && value.buffer.capacity() == 0;
        if !frame.values.iter().all(is_new) {
            return;
        }
        let Some(sizes) = Sizes::of(&program.plans[0].nodes, frame.values.len()) else {
            return;
        };
        for (value, bytes) in frame.values.iter_mut().zip(&sizes.values) {
            value.buffer = touched(*bytes);
        }
        for bytes in &sizes.free {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape};

    use crate::plan::memory::MOST_RESERVED_BYTES;
    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

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
        let mut large = negations((MOST_RESERVED_BYTES / 12) as u32 + 1);
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
