//! Inputs that come from somebody else's memory.
//!
//! What another process has just written comes out of its processor's cache more slowly than much of what is
//! computed of it, so large inputs are copied by all threads that will compute: each then has in its own
//! cache what it begins with, mostly.

use std::sync::OnceLock;

use nnhal_hal::Shape;
use nnhal_os::buffer::AlignedSlice;

use super::ExecutionError;
use super::run::Execution;
use crate::fast::copied;
use crate::interrupt::NeverInterrupted;
use crate::kernel::bind;
use crate::plan::cost::MIN_BYTES_FOR_THREADS;
use crate::threads::{Cost, Helpers, Team, Threads};

impl Execution {
    /// Wakes as many of these helpers as the last run had, if the next one is to have them, too. To be called
    /// before inputs are copied, which may take as long as getting up.
    pub fn rouse(&self, helpers: &Helpers) {
        if let Some((count, _)) = self.expected_helpers() {
            helpers.rouse(count);
        }
    }

    /// Gives input `index` this shape and reads its value in place, from memory that nobody writes any more.
    ///
    /// # Errors
    /// The shape contradicts the model, or the memory has not exactly as many bytes.
    pub fn bind_input(
        &mut self,
        index: usize,
        shape: Shape,
        memory: AlignedSlice,
    ) -> Result<(), ExecutionError> {
        let at = self.input_operand(index)?;
        let main = &self.program.model().model().main;
        let value = &mut self.frame.values[at];
        self.borrows = true;
        bind(value, &main.operands[at], shape, memory).map_err(|error| ExecutionError::Input {
            index,
            message: error.to_string(),
        })
    }

    /// Memory that others lent for a run is theirs again.
    #[inline]
    pub fn unbind_inputs(&mut self) {
        if std::mem::take(&mut self.borrows) {
            self.let_go_of_shared();
        }
    }

    #[inline(never)]
    fn let_go_of_shared(&mut self) {
        for &at in &self.inputs {
            let value = &mut self.frame.values[at as usize];
            if value.shared.take().is_some() {
                value.present = false;
            }
        }
    }

    /// How many bytes input `index` has with this shape; `None` if there is no such input, or they are too
    /// many.
    #[must_use]
    pub fn input_size(&self, index: usize, shape: &Shape) -> Option<usize> {
        let main = &self.program.model().model().main;
        let operand = main.operands.get(*main.input_indexes.get(index)? as usize)?;
        shape.byte_size(operand.operand_type.element_size()).ok()
    }

    /// Fills the memory that [`Execution::input`] gave for input `index`. `fill` is given parts of it, with
    /// where they begin, by several threads at once if the next run is to have helpers and the input is
    /// large.
    ///
    /// # Errors
    /// One that `fill` gave; the content is undefined then. An input that there is not has no bytes.
    pub fn fill_input<E: Send + Sync>(
        &mut self,
        index: usize,
        threads: Threads<'_>,
        fill: impl Fn(usize, &mut [u8]) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let expected = self.expected_helpers();
        let bytes = self.input_bytes(index);
        let Some((_, partable)) = expected.filter(|_| bytes.len() >= MIN_BYTES_FOR_THREADS) else {
            return fill(0, bytes);
        };
        let team = Team::new(threads, partable, &NeverInterrupted);
        let parts = team.parts_for(Cost::of_bytes(bytes.len()));
        let grid = copied(parts, bytes.len());
        let failure = OnceLock::new();
        let none: &mut [u8] = &mut [];
        team.for_each_block(parts.threads, &grid, (bytes, none), |mut block, _| {
            if failure.get().is_none()
                && let Err(error) = fill(block.columns().start, block.all())
            {
                // One is as good as another.
                let _ = failure.set(error);
            }
        });
        failure.into_inner().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape};
    use nnhal_os::cores::OwnCores;

    use super::MIN_BYTES_FOR_THREADS;
    use crate::test_graph::TestGraph;
    use crate::{Execution, Helpers, KernelSet, Program, RunOptions, Threads};

    /// A product of as many rows of 64 values, whose helpers pay.
    fn execution(rows: u32) -> Execution {
        let mut graph = TestGraph::default();
        let input = graph.input(Operand::new(OperandType::TENSOR_FLOAT32, &[rows, 64]));
        let weights = Operand::new(OperandType::TENSOR_FLOAT32, &[256, 64]);
        let weights = graph.constant(weights, &[0; 4 * 256 * 64]);
        let bias = Operand::new(OperandType::TENSOR_FLOAT32, &[256]);
        let bias = graph.constant(bias, &[0; 4 * 256]);
        let activation = graph.scalar(0);
        let output = Operand::new(OperandType::TENSOR_FLOAT32, &[rows, 256]);
        let inputs = [input, weights, bias, activation];
        let output = graph.operation(OperationType::FULLY_CONNECTED, &inputs, output);
        let valid = graph.valid(&[output]);
        Execution::new(Arc::new(
            Program::with_kernels(valid, &NoPools, KernelSet::Fast).unwrap(),
        ))
    }

    #[test]
    fn every_byte_is_filled_once() {
        let (helpers, cores) = (Helpers::new(1), OwnCores::new(2));
        let threads = Threads::new(&helpers, &cores, 2);
        let rows = 2048;
        let bytes = rows as usize * 64 * 4;
        assert!(bytes > MIN_BYTES_FOR_THREADS);
        let mut execution = execution(rows);
        let shape = Shape::new(&[rows, 64]).unwrap();
        let mut parted = false;
        // Whether a helper comes in time is left to the machine's other work.
        for _ in 0..20 {
            execution.input(0, &shape).unwrap().fill(0);
            let begun = Mutex::new(Vec::new());
            let parts = execution.expected_helpers().is_some();
            let outcome = execution.fill_input(0, threads, |from, part| {
                begun.lock().unwrap().push((from, part.len()));
                for (at, byte) in part.iter_mut().enumerate() {
                    *byte += ((from + at) % 251) as u8;
                }
                Ok::<(), ()>(())
            });
            outcome.unwrap();
            let filled = execution.input(0, &shape).unwrap();
            assert!(
                filled
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == (at % 251) as u8)
            );
            let mut begun = begun.into_inner().unwrap();
            begun.sort_unstable();
            assert_eq!(begun.len() > 1, parts, "{begun:?}");
            parted |= parts;
            execution.input(0, &shape).unwrap().fill(0);
            let options = RunOptions {
                threads,
                ..RunOptions::default()
            };
            execution.run(&options).unwrap();
        }
        assert!(parted, "after a run with helpers inputs are filled in parts");
        // One of the parts fails, and no other hides it.
        let outcome = execution.fill_input(
            0,
            threads,
            |from, _| if from == 0 { Err("first") } else { Ok(()) },
        );
        assert_eq!(outcome, Err("first"));
    }

    #[test]
    fn what_fills_may_fail() {
        let mut execution = execution(4);
        execution.input(0, &Shape::new(&[4, 64]).unwrap()).unwrap();
        let outcome = execution.fill_input(0, Threads::ALONE, |from, part| Err((from, part.len())));
        assert_eq!(outcome, Err((0, 4 * 64 * 4)));
    }
}
