//! Memory for an execution before its first run.
//!
//! Values of declared shapes are gone through in the order of the operations as a run goes through them: each takes memory
//! that values before it have left, and leaves it after its last reader. So the first run finds what the later ones find, in
//! pages that are there.

use std::sync::Arc;

use nnhal::hal::{Operation, Shape, Subgraph};

use super::program::{Graph, Step};
use super::run::{Execution, Frame, Memory};
use crate::buffer::{AlignedBuffer, OutOfMemory};

/// More is not taken before a run shows that it is needed.
const MOST_BYTES: usize = 256 << 20;

/// How often the values are gone through: memory that was too small for a later value has been exchanged for larger, so that
/// the next time an earlier one may find other memory.
const ROUNDS: usize = 2;

impl Execution {
    /// Takes the memory that runs need, as far as the model declares how much that is, up to 256 MiB. Subgraphs take theirs
    /// when they run.
    ///
    /// # Errors
    /// [`OutOfMemory`], or there would be more. What has been taken is kept, and a run takes what it lacks.
    pub fn reserve(&mut self) -> Result<(), OutOfMemory> {
        let program = Arc::clone(self.program());
        let (frame, memory) = self.parts();
        let mut rehearsal = Rehearsal {
            main: &program.model.model().main,
            graph: &program.graphs[0],
            frame,
            memory,
            left: MOST_BYTES,
        };
        let outcome = (0..ROUNDS).try_for_each(|_| rehearsal.go_through());
        memory.free().for_each(AlignedBuffer::touch);
        let buffers = frame.values.iter_mut().map(|value| &mut value.buffer);
        buffers.for_each(AlignedBuffer::touch);
        outcome
    }
}

/// A run that computes nothing.
struct Rehearsal<'a> {
    main: &'a Subgraph,
    graph: &'a Graph,
    frame: &'a mut Frame,
    memory: &'a mut Memory,
    /// How many bytes may be added to those that there are.
    left: usize,
}

impl Rehearsal<'_> {
    fn go_through(&mut self) -> Result<(), OutOfMemory> {
        self.give_inputs()?;
        let mut index = 0;
        while let Some(step) = self.graph.steps.get(index) {
            let count = step.together.as_ref().map_or(1, |together| together.operations());
            let last = index + count - 1;
            if let (Some(operation), Some(step)) =
                (self.main.operations.get(last), self.graph.steps.get(last))
            {
                self.give_outputs(operation, step)?;
            }
            for step in self.graph.steps.iter().skip(index).take(count) {
                for &operand in &step.releases {
                    let buffer = std::mem::take(self.buffer(operand));
                    self.memory.give_back(buffer);
                }
            }
            index += count;
        }
        Ok(())
    }

    fn buffer(&mut self, operand: u32) -> &mut AlignedBuffer {
        &mut self.frame.values[operand as usize].buffer
    }

    fn give(&mut self, operand: u32, bytes: usize) -> Result<(), OutOfMemory> {
        let buffer = &mut self.frame.values[operand as usize].buffer;
        self.memory.reuse(buffer, bytes);
        let more = bytes.saturating_sub(buffer.capacity());
        self.left = self.left.checked_sub(more).ok_or(OutOfMemory { bytes })?;
        buffer.resize(bytes)
    }

    fn give_inputs(&mut self) -> Result<(), OutOfMemory> {
        for &at in &self.main.input_indexes {
            let operand = &self.main.operands[at as usize];
            let ty = operand.operand_type;
            let is_known =
                |shape: &Shape| !ty.is_tensor() || (shape.rank() > 0 && shape.is_fully_specified());
            let shape = Shape::new(&operand.dimensions).ok().filter(is_known);
            if let Some(bytes) = shape.and_then(|shape| shape.byte_size(ty.element_size()).ok()) {
                self.give(at, bytes)?;
            }
        }
        Ok(())
    }

    fn give_outputs(&mut self, operation: &Operation, step: &Step) -> Result<(), OutOfMemory> {
        if let (true, [input, ..], [output]) = (step.renames, &operation.inputs[..], &operation.outputs[..]) {
            let renamed = std::mem::take(self.buffer(*input));
            let before = std::mem::replace(self.buffer(*output), renamed);
            self.memory.give_back(before);
            return Ok(());
        }
        let Some(fixed) = step.fixed.as_ref().filter(|_| !step.is_folded()) else {
            return Ok(());
        };
        for (&at, bytes) in operation.outputs.iter().zip(fixed.sizes()) {
            self.give(at, bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal::hal::{NoPools, Operand, OperandType, OperationType, Shape};

    use crate::executor::{Execution, KernelSet, Program, RunOptions};
    use crate::test_graph::TestGraph;

    const COUNT: u32 = 1 << 20;

    fn floats(count: u32) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, &[count])
    }

    /// `-(-(-(x)))` by kernels that compute each operation alone.
    fn execution(count: u32) -> Execution {
        let mut graph = TestGraph::default();
        let mut last = graph.input(floats(count));
        for _ in 0..3 {
            last = graph.operation(OperationType::NEG, &[last], floats(count));
        }
        let model = graph.valid(&[last]);
        let program = Program::with_kernels(model, &NoPools, KernelSet::Reference).unwrap();
        Execution::new(Arc::new(program))
    }

    #[test]
    fn first_run_takes_no_memory() {
        let mut execution = execution(COUNT);
        execution.reserve().unwrap();
        let reserved = execution.bytes();
        // The input, two temporaries, and the output, which keeps what it has from one run to the next.
        assert_eq!(reserved, 4 * 4 * COUNT as usize);
        let input = execution.input(0, Shape::new(&[COUNT]).unwrap()).unwrap();
        input[..4].copy_from_slice(&2.5_f32.to_ne_bytes());
        for _ in 0..3 {
            execution.run(&RunOptions::default()).unwrap();
            assert_eq!(execution.bytes(), reserved);
        }
        assert_eq!(execution.output(0).unwrap().1[..4], (-2.5_f32).to_ne_bytes());
        execution.release_memory();
        assert_eq!(execution.bytes(), 0);
    }

    #[test]
    fn what_is_reserved_is_no_value() {
        let mut execution = execution(4);
        execution.reserve().unwrap();
        assert!(execution.output(0).is_none());
        let error = execution.run(&RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains("omitted"), "{error}");
    }

    #[test]
    fn unknown_sizes_and_very_large_ones_are_left_to_the_runs() {
        let mut unknown = execution(0);
        unknown.reserve().unwrap();
        assert_eq!(unknown.bytes(), 0);
        let mut large = execution((super::MOST_BYTES / 8) as u32 + 1);
        large.reserve().unwrap_err();
        assert!(large.bytes() <= super::MOST_BYTES);
    }
}
