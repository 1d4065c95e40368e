//! Which program computes a run, where the model leaves shapes of inputs open.

use std::sync::Arc;

use nnhal_hal::SubgraphIndex;

use super::nodes::Runner;
use super::run::Execution;
use super::{ExecutionError, RunOptions};
use crate::interrupt::Interrupt;
use crate::kernel::Value;
use crate::plan::{Found, ProgramError};
use crate::threads::Team;

impl Execution {
    /// Finds what computes inputs of the shapes that they have, unless it is what computed them before.
    #[inline(never)]
    pub(super) fn choose(&mut self) {
        let Some(programs) = &self.program.for_shapes else {
            return;
        };
        let values = self.inputs.iter().map(|at| &self.frame.values[*at as usize]);
        let mut before = self.choice.shapes.iter();
        // Compared where they are: what an input was before a run does not tell what it was in the last one.
        let is_same = |value: &Value| match before.next() {
            Some(Some(shape)) => value.present && value.shape == *shape,
            Some(None) => !value.present,
            None => false,
        };
        if self.choice.is_settled && values.clone().all(is_same) {
            return;
        }
        let shapes = values.map(|value| value.present.then_some(value.shape));
        self.choice.shapes.clear();
        self.choice.shapes.extend(shapes);
        let found = programs.find(&self.choice.shapes);
        self.choice.is_settled = !matches!(found, Found::NotYet);
        self.choice.program = match found {
            Found::Program(program) => Some(program),
            Found::NotYet | Found::Never => None,
        };
    }

    /// After a run that failed: has the general program compute it again, if another did before. What that
    /// can compute it computes from now on; what it cannot is no fault of the other.
    #[cold]
    pub(super) fn run_again(
        &mut self,
        error: ExecutionError,
        (options, team): (&RunOptions<'_>, &Team<'_>),
    ) -> Result<(), ExecutionError> {
        let is_stopped = matches!(
            error,
            ExecutionError::Interrupted(_) | ExecutionError::LoopTimeout { .. }
        );
        let (Some(programs), false) = (&self.program.for_shapes, is_stopped) else {
            return Err(error);
        };
        let Some(program) = self.choice.program.take() else {
            return Err(error);
        };
        let shapes = &self.choice.shapes;
        let outcome = Runner {
            program: &self.program,
            options,
            team,
            memory: &mut self.memory,
        }
        .graph(SubgraphIndex::Main, &mut self.frame);
        match outcome {
            Ok(()) => programs.put(shapes, Found::Never),
            Err(_) => self.choice.program = Some(program),
        }
        outcome
    }

    /// After a run of the general program that succeeded: makes the program for its shapes, if they have come
    /// often enough.
    #[cold]
    pub(super) fn count_run(&mut self, interrupt: &dyn Interrupt) {
        let Some(programs) = &self.program.for_shapes else {
            return;
        };
        if !programs.count_run(&self.choice.shapes) {
            return;
        }
        let (values, inputs) = (&self.frame.values, &self.choice.shapes);
        // Of an input that is left out the value still has the shape of another run.
        let shape = |at: u32| match self.inputs.iter().position(|input| *input == at) {
            Some(index) => inputs[index],
            None => values.get(at as usize).map(|value| value.shape),
        };
        let found = match self.program.shaped(&shape, interrupt) {
            Ok(program) => Found::Program(Arc::new(program)),
            // What this run had no time or memory for, another may have.
            Err(ProgramError::Interrupted(_) | ProgramError::OutOfMemory(_)) => Found::NotYet,
            Err(_) => Found::Never,
        };
        programs.put(&self.choice.shapes, found);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape};
    use nnhal_os::buffer::AlignedBuffer;

    use crate::interrupt::{Interrupt, Interrupted};
    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    fn float(dims: &[u32]) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, dims)
    }

    /// A layer, its activation, and what is done with each row of its results, of as many rows as `rows`
    /// says: 0 for any number. A reshaped tensor takes its shape from the second input.
    fn network(rows: u32) -> Execution {
        let mut graph = TestGraph::default();
        let input = graph.input(float(&[rows, 8]));
        let shape = graph.input(Operand::new(OperandType::TENSOR_INT32, &[2]));
        let values: Vec<f32> = (0..8 * 16).map(|at| (at * 7 % 11) as f32 / 8.0 - 0.5).collect();
        let weights = graph.constant(float(&[16, 8]), bytemuck::cast_slice(&values));
        let bias = graph.constant(float(&[16]), bytemuck::cast_slice(&[0.25_f32; 16]));
        let none = graph.scalar(0);
        let inputs = [input, weights, bias, none];
        let sums = graph.operation(OperationType::FULLY_CONNECTED, &inputs, float(&[rows, 16]));
        let relu = graph.operation(OperationType::RELU, &[sums], float(&[rows, 16]));
        let added = graph.operation(OperationType::ADD, &[relu, bias, none], float(&[rows, 16]));
        let shaped = graph.operation(OperationType::RESHAPE, &[added, shape], float(&[0, 0]));
        let root = graph.operation(OperationType::SQRT, &[shaped], float(&[0, 0]));
        let result = graph.operation(OperationType::NEG, &[root], float(&[0, 0]));
        let program = Program::with_kernels(graph.valid(&[result]), &NoPools, KernelSet::Fast);
        Execution::new(Arc::new(program.unwrap()))
    }

    /// Gives the inputs of `rows` rows, whose results get this shape.
    fn fill(execution: &mut Execution, rows: u32, shape: [i32; 2]) {
        let input = execution.input(0, &Shape::new(&[rows, 8]).unwrap()).unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&((at % 13) as f32 / 7.0).to_ne_bytes());
        }
        let bytes = execution.input(1, &Shape::new(&[2]).unwrap()).unwrap();
        bytes.copy_from_slice(bytemuck::cast_slice(&shape));
    }

    /// Computes them.
    fn run(execution: &mut Execution, rows: u32, shape: [i32; 2]) -> Result<(Shape, Vec<f32>), String> {
        fill(execution, rows, shape);
        execution
            .run(&RunOptions::default())
            .map_err(|error| error.to_string())?;
        let (shape, bytes) = execution.output(0).unwrap();
        Ok((*shape, bytemuck::cast_slice(bytes).to_vec()))
    }

    fn is_made(execution: &Execution) -> bool {
        execution.choice.program.is_some()
    }

    #[test]
    fn shapes_that_repeat_get_a_program_with_the_steps_of_a_closed_model_and_the_same_bits() {
        let mut open = network(0);
        for rows in [3, 1, 7] {
            let expected = run(&mut open, rows, [-1, 4]).unwrap();
            for round in 1..6 {
                let found = run(&mut open, rows, [-1, 4]).unwrap();
                assert_eq!(found, expected, "{rows} rows, round {round}");
                assert_eq!(is_made(&open), round >= 3, "{rows} rows, round {round}");
            }
            let made = open.choice.program.clone().unwrap();
            let names = |program: &Program| -> Vec<&'static str> {
                let at = nnhal_hal::SubgraphIndex::Main;
                (0..6)
                    .map(|operation| program.kernel_name(at, operation, 1))
                    .collect()
            };
            // A layer of one row is computed otherwise where the model says that there is one.
            if rows > 1 {
                assert_eq!(names(&made)[..3], names(network(rows).program())[..3]);
            }
        }
    }

    #[test]
    fn shapes_that_take_turns_keep_their_programs_and_executions_share_them() {
        let mut open = network(0);
        for round in 0..6 {
            for rows in [2, 9, 4] {
                let (shape, _) = run(&mut open, rows, [-1, 4]).unwrap();
                assert_eq!(shape.dims(), [rows * 4, 4]);
                assert_eq!(is_made(&open), round >= 3, "{rows} rows, round {round}");
            }
        }
        let mut other = Execution::new(Arc::clone(open.program()));
        run(&mut other, 9, [-1, 4]).unwrap();
        assert!(is_made(&other));
    }

    #[test]
    fn shape_that_values_give_may_change_while_inputs_keep_theirs() {
        let mut open = network(0);
        for _ in 0..5 {
            run(&mut open, 2, [8, 4]).unwrap();
        }
        assert!(is_made(&open));
        let (shape, values) = run(&mut open, 2, [4, 8]).unwrap();
        assert_eq!(shape.dims(), [4, 8]);
        let mut new = network(0);
        assert_eq!(values, run(&mut new, 2, [4, 8]).unwrap().1);
        assert!(!is_made(&open), "the general program computes them from now on");
        assert_eq!(run(&mut open, 2, [8, 4]).unwrap().0.dims(), [8, 4]);
        assert!(!is_made(&open));
    }

    #[test]
    fn failure_that_the_general_program_shares_is_told_as_it_tells_it() {
        let mut open = network(0);
        let expected = run(&mut network(0), 2, [5, 5]).unwrap_err();
        for _ in 0..5 {
            run(&mut open, 2, [8, 4]).unwrap();
        }
        assert_eq!(run(&mut open, 2, [5, 5]).unwrap_err(), expected);
        assert!(is_made(&open));
        assert_eq!(run(&mut open, 2, [8, 4]).unwrap().0.dims(), [8, 4]);
    }

    /// Goes on so many times.
    struct Stops(std::cell::Cell<u32>);

    impl Interrupt for Stops {
        fn check(&self) -> Result<(), Interrupted> {
            let left = self.0.get().checked_sub(1).ok_or(Interrupted::Cancelled)?;
            self.0.set(left);
            Ok(())
        }
    }

    #[test]
    fn program_that_there_was_no_time_for_is_made_some_runs_later() {
        let mut open = network(0);
        run(&mut open, 2, [8, 4]).unwrap();
        run(&mut open, 2, [8, 4]).unwrap();
        // Time for the six operations of the run, and for none of the program.
        let stops = Stops(std::cell::Cell::new(6));
        fill(&mut open, 2, [8, 4]);
        let options = RunOptions {
            interrupt: &stops,
            ..RunOptions::default()
        };
        open.run(&options).unwrap();
        assert_eq!(stops.0.get(), 0);
        for round in 0..5 {
            run(&mut open, 2, [8, 4]).unwrap();
            assert_eq!(is_made(&open), round >= 3, "round {round}");
        }
    }

    #[test]
    fn input_that_is_left_out_now_and_then_has_the_results_of_each_run() {
        let mut graph = TestGraph::default();
        let input = graph.input(float(&[0, 3]));
        let order = graph.input(Operand::new(OperandType::TENSOR_INT32, &[2]));
        let turned = graph.operation(OperationType::TRANSPOSE, &[input, order], float(&[0, 0]));
        let result = graph.operation(OperationType::NEG, &[turned], float(&[0, 0]));
        let program = Program::with_kernels(graph.valid(&[result]), &NoPools, KernelSet::Fast);
        let mut execution = Execution::new(Arc::new(program.unwrap()));
        for round in 0..24_u32 {
            // Several runs of each kind, and both in turn.
            let is_left_out = if round < 16 {
                round / 4 % 2 == 1
            } else {
                round % 2 == 1
            };
            execution.input(0, &Shape::new(&[2, 3]).unwrap()).unwrap().fill(0);
            if is_left_out {
                execution.omit_input(1).unwrap();
            } else {
                let order = AlignedBuffer::copy_of(bytemuck::cast_slice(&[0_i32, 1])).unwrap();
                let shape = Shape::new(&[2]).unwrap();
                execution.bind_input(1, shape, Arc::new(order).into()).unwrap();
            }
            execution.run(&RunOptions::default()).unwrap();
            let expected = if is_left_out { [3, 2] } else { [2, 3] };
            assert_eq!(execution.output(0).unwrap().0.dims(), expected, "round {round}");
        }
    }

    #[test]
    fn however_many_shapes_come_only_so_many_are_remembered() {
        let mut open = network(0);
        for _ in 0..4 {
            for rows in 1..40 {
                run(&mut open, rows, [-1, 4]).unwrap();
                assert!(!is_made(&open));
            }
        }
        for _ in 0..4 {
            run(&mut open, 50, [-1, 4]).unwrap();
        }
        assert!(is_made(&open));
    }
}
