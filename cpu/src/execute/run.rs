//! One run of a program.

use std::sync::Arc;

use nnhal_hal::{Shape, SubgraphIndex};
use nnhal_os::buffer::AlignedBuffer;

use super::choice::Choice;
use super::frame::{Frame, Memory};
use super::nodes::Runner;
use super::{ExecutionError, RunOptions};
use crate::kernel::{KernelError, allocate};
use crate::plan::Program;
use crate::threads::{ParallelismTuner, Team};

/// The memory of one run at a time.
#[derive(Debug)]
pub struct Execution {
    pub(super) program: Arc<Program>,
    /// The operands that are the main graph's inputs and outputs, at hand: those of small models are looked
    /// up as fast as they are computed.
    pub(super) inputs: Box<[u32]>,
    outputs: Box<[u32]>,
    pub(super) frame: Frame,
    pub(super) memory: Memory,
    /// How many microseconds the operations of the last run that can be parted take one thread, about.
    partable: u64,
    /// Whether helpers shorten the runs.
    tuner: ParallelismTuner,
    /// How many the last run had.
    helpers: usize,
    /// Whether an input reads memory of somebody else's.
    pub(super) borrows: bool,
    pub(super) choice: Choice,
}

impl Execution {
    /// An execution of `program` with no memory yet.
    #[must_use]
    pub fn new(program: Arc<Program>) -> Execution {
        let main = &program.model.model().main;
        Execution {
            inputs: main.input_indexes.clone().into(),
            outputs: main.output_indexes.clone().into(),
            frame: Frame::new(main),
            choice: Choice::new(&program),
            program,
            memory: Memory::default(),
            partable: 0,
            tuner: ParallelismTuner::default(),
            helpers: 0,
            borrows: false,
        }
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The values of the main graph and what frames share.
    pub(super) fn parts(&mut self) -> (&mut Frame, &mut Memory) {
        (&mut self.frame, &mut self.memory)
    }

    /// How many bytes the values of the main graph and the pool have.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let values: usize = self
            .frame
            .values
            .iter()
            .map(|value| value.buffer.capacity())
            .sum();
        let free = self.memory.free.iter().map(AlignedBuffer::capacity);
        values + free.sum::<usize>()
    }

    /// Gives input `index` this shape and returns its memory, to be filled before [`Execution::run`].
    ///
    /// # Errors
    /// The shape contradicts the model, or there is not enough memory.
    #[inline]
    pub fn input(&mut self, index: usize, shape: &Shape) -> Result<&mut [u8], ExecutionError> {
        let at = self.input_operand(index)?;
        // The shape of the last execution was allowed then.
        if self.input_of_shape(index, shape).is_none() {
            self.allocate_input((index, at), *shape)?;
        }
        Ok(self.frame.values[at].buffer.bytes_mut())
    }

    /// The memory of input `index`, if it has this shape from the last run.
    #[must_use]
    #[inline]
    pub fn input_of_shape(&mut self, index: usize, shape: &Shape) -> Option<&mut [u8]> {
        let at = *self.inputs.get(index)? as usize;
        let value = self.frame.values.get_mut(at)?;
        let is_ready = value.present && value.shared.is_none() && value.shape == *shape;
        is_ready.then(|| value.buffer.bytes_mut())
    }

    #[inline(never)]
    fn allocate_input(&mut self, (index, at): (usize, usize), shape: Shape) -> Result<(), ExecutionError> {
        let main = &self.program.model.model().main;
        let value = &mut self.frame.values[at];
        allocate(value, &main.operands[at], shape).map_err(|error| match error {
            KernelError::OutOfMemory(source) => ExecutionError::InputMemory { index, source },
            error => ExecutionError::Input {
                index,
                message: error.to_string(),
            },
        })
    }

    /// Leaves input `index` out.
    pub fn omit_input(&mut self, index: usize) -> Result<(), ExecutionError> {
        let at = self.input_operand(index)?;
        let value = &mut self.frame.values[at];
        value.present = false;
        value.shared = None;
        Ok(())
    }

    /// Computes the outputs from the inputs given before.
    #[inline]
    pub fn run(&mut self, options: &RunOptions<'_>) -> Result<(), ExecutionError> {
        if self.program.for_shapes.is_some() {
            self.choose();
        }
        let (threads, timed) = self.tuner.begin(options.threads, self.partable);
        let team = Team::new(threads, self.partable, options.interrupt);
        let mut outcome = Runner {
            program: self.choice.program.as_ref().unwrap_or(&self.program),
            options,
            team: &team,
            memory: &mut self.memory,
        }
        .graph(SubgraphIndex::Main, &mut self.frame);
        if let Err(error) = outcome {
            outcome = self.run_again(error, (options, &team));
        }
        self.partable = team.partable();
        self.helpers = team.helpers();
        self.tuner.end(&timed, outcome.is_ok());
        if !self.choice.is_settled && outcome.is_ok() {
            self.count_run(options.interrupt);
        }
        self.unbind_inputs();
        outcome
    }

    /// As many helpers as the last run had, if the next one is to have them, too, and about how many
    /// microseconds one thread takes for what they take part in.
    #[inline]
    pub(super) fn expected_helpers(&self) -> Option<(usize, u64)> {
        let are_wanted = self.helpers > 0 && self.tuner.wants_helpers(self.partable);
        are_wanted.then_some((self.helpers, self.partable))
    }

    /// The memory of input `index`; none if there is no such input.
    pub(super) fn input_bytes(&mut self, index: usize) -> &mut [u8] {
        match self.inputs.get(index) {
            Some(&at) => self.frame.values[at as usize].buffer.bytes_mut(),
            None => &mut [],
        }
    }

    /// Shape and bytes of output `index` after a run that succeeded.
    #[must_use]
    #[inline]
    pub fn output(&self, index: usize) -> Option<(&Shape, &[u8])> {
        let at = *self.outputs.get(index)? as usize;
        let value = self.frame.values.get(at).filter(|value| value.present)?;
        Some((&value.shape, value.bytes()))
    }

    /// Exchanges the memory of output `index` after a run that succeeded for other memory, which the next run
    /// uses. Returns whether there is such an output; [`Execution::output`] has nothing for it afterwards.
    pub fn exchange_output(&mut self, index: usize, memory: &mut AlignedBuffer) -> bool {
        let value = self
            .outputs
            .get(index)
            .and_then(|at| self.frame.values.get_mut(*at as usize));
        let Some(value) = value.filter(|value| value.present && value.shared.is_none()) else {
            return false;
        };
        std::mem::swap(&mut value.buffer, memory);
        value.present = false;
        true
    }

    /// Gives back all memory; the next run allocates it again.
    pub fn release_memory(&mut self) {
        self.frame = Frame::new(&self.program.model.model().main);
        self.memory = Memory::default();
    }

    #[inline]
    pub(super) fn input_operand(&self, index: usize) -> Result<usize, ExecutionError> {
        let at = self.inputs.get(index).map(|at| *at as usize);
        at.ok_or_else(|| ExecutionError::Input {
            index,
            message: format!("the model has {} inputs", self.inputs.len()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{
        Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph,
        SubgraphIndex,
    };
    use nnhal_os::buffer::AlignedBuffer;

    use super::{Execution, Program};
    use crate::test_graph::TestGraph;
    use crate::{KernelSet, RunOptions};

    /// `(x + x) + x` over a tensor of unknown length.
    fn triple() -> Arc<Program> {
        let tensor = |lifetime, consumers| {
            let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &[0]).with_lifetime(lifetime);
            operand.number_of_consumers = consumers;
            operand
        };
        let mut activation =
            Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
        activation.number_of_consumers = 2;
        activation.location.length = 4;
        let add = |inputs: &[u32], output| Operation {
            operation_type: OperationType::ADD,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        };
        let model = Model {
            main: Subgraph {
                operands: vec![
                    tensor(OperandLifeTime::SubgraphInput, 3),
                    activation,
                    tensor(OperandLifeTime::TemporaryVariable, 1),
                    tensor(OperandLifeTime::SubgraphOutput, 0),
                ],
                operations: vec![add(&[0, 0, 1], 2), add(&[2, 0, 1], 3)],
                input_indexes: vec![0],
                output_indexes: vec![3],
            },
            operand_values: vec![0; 4],
            ..Model::default()
        };
        let model = ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap();
        Arc::new(Program::new(Arc::new(model), &NoPools).unwrap())
    }

    #[test]
    fn result_without_elements_is_none_of_a_declared_extent() {
        // SLICE of run-time extents into a temporary of one element, which ADD then reads.
        let mut operands = vec![
            Operand::new(OperandType::TENSOR_FLOAT32, &[2]).with_lifetime(OperandLifeTime::SubgraphInput),
            Operand::new(OperandType::TENSOR_INT32, &[1]).with_lifetime(OperandLifeTime::SubgraphInput),
            Operand::new(OperandType::TENSOR_INT32, &[1]).with_lifetime(OperandLifeTime::SubgraphInput),
            Operand::new(OperandType::TENSOR_FLOAT32, &[1]).with_lifetime(OperandLifeTime::TemporaryVariable),
            Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy),
            Operand::new(OperandType::TENSOR_FLOAT32, &[1]).with_lifetime(OperandLifeTime::SubgraphOutput),
        ];
        operands[4].location.length = 4;
        for (operand, consumers) in operands.iter_mut().zip([1, 1, 1, 2, 1, 0]) {
            operand.number_of_consumers = consumers;
        }
        let operation = |operation_type, inputs: &[u32], output| Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        };
        let model = Model {
            main: Subgraph {
                operands,
                operations: vec![
                    operation(OperationType::SLICE, &[0, 1, 2], 3),
                    operation(OperationType::ADD, &[3, 3, 4], 5),
                ],
                input_indexes: vec![0, 1, 2],
                output_indexes: vec![5],
            },
            operand_values: vec![0; 4],
            ..Model::default()
        };
        let model = ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap();
        for kernels in [crate::KernelSet::Reference, crate::KernelSet::Fast] {
            let program = Program::with_kernels(Arc::new(model.clone()), &NoPools, kernels).unwrap();
            let mut execution = Execution::new(Arc::new(program));
            for (size, is_right) in [(1_i32, true), (0, false)] {
                for (index, dims, values) in [(0, 2, &[1, 2][..]), (1, 1, &[0]), (2, 1, &[size])] {
                    let shape = Shape::new(&[dims]).unwrap();
                    let input = execution.input(index, &shape).unwrap();
                    input.copy_from_slice(bytemuck::cast_slice(values));
                }
                let result = execution.run(&RunOptions::default());
                assert_eq!(result.is_ok(), is_right, "{kernels:?} {result:?}");
            }
        }
    }

    fn run(execution: &mut Execution, input: &[f32]) -> Vec<f32> {
        let shape = Shape::new(&[input.len() as u32]).unwrap();
        execution
            .input(0, &shape)
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(input));
        execution.run(&RunOptions::default()).unwrap();
        let (found, bytes) = execution.output(0).unwrap();
        assert_eq!(*found, shape);
        bytemuck::cast_slice(bytes).to_vec()
    }

    #[test]
    fn inputs_are_read_and_outputs_are_taken_in_place() {
        let mut first = Execution::new(triple());
        let mut second = Execution::new(triple());
        let shape = Shape::new(&[2]).unwrap();
        let mut taken = AlignedBuffer::new();
        assert!(!first.exchange_output(0, &mut taken));
        first
            .input(0, &shape)
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(&[1.0_f32, 2.0]));
        first.run(&RunOptions::default()).unwrap();
        let computed = first.output(0).unwrap().1.as_ptr();
        assert!(first.exchange_output(0, &mut taken));
        assert_eq!(taken.bytes().as_ptr(), computed);
        assert!(first.output(0).is_none() && !first.exchange_output(0, &mut taken));

        let passed = Arc::new(taken);
        second.bind_input(0, shape, Arc::clone(&passed).into()).unwrap();
        assert!(
            second
                .bind_input(0, Shape::new(&[3]).unwrap(), Arc::clone(&passed).into())
                .is_err()
        );
        second.bind_input(0, shape, Arc::clone(&passed).into()).unwrap();
        second.run(&RunOptions::default()).unwrap();
        assert_eq!(
            second.output(0).unwrap().1,
            bytemuck::cast_slice::<f32, u8>(&[9.0, 18.0])
        );
        assert_eq!(Arc::strong_count(&passed), 1, "a run lets go of what it has read");
        second.bind_input(0, shape, Arc::clone(&passed).into()).unwrap();
        second.unbind_inputs();
        assert_eq!(Arc::strong_count(&passed), 1, "also where nothing was run");
        assert!(second.run(&RunOptions::default()).is_err(), "there is no input");
    }

    #[test]
    fn one_execution_serves_many_runs_of_different_shapes() {
        let mut execution = Execution::new(triple());
        assert_eq!(run(&mut execution, &[1.0, 2.0]), [3.0, 6.0]);
        assert_eq!(run(&mut execution, &[1.0, 2.0, -4.0]), [3.0, 6.0, -12.0]);
        assert_eq!(run(&mut execution, &[5.0]), [15.0]);
    }

    #[test]
    fn omitted_input_gives_an_error_that_names_the_operation() {
        let mut execution = Execution::new(triple());
        execution.omit_input(0).unwrap();
        let error = execution.run(&RunOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "operation 0 (ADD) of the main graph: input 0: is omitted but not optional"
        );
    }

    /// `-(x)` as another shape, whose `NEG` is the result.
    fn negated_twice() -> Arc<ValidModel> {
        let float = |dims: &[u32]| Operand::new(OperandType::TENSOR_FLOAT32, dims);
        let mut graph = TestGraph::default();
        let input = graph.input(float(&[2, 3]));
        let shape = Operand::new(OperandType::TENSOR_INT32, &[1]);
        let shape = graph.constant(shape, &6_i32.to_ne_bytes());
        let negated = graph.operation(OperationType::NEG, &[input], float(&[2, 3]));
        let flat = graph.operation(OperationType::RESHAPE, &[negated, shape], float(&[6]));
        let output = graph.operation(OperationType::NEG, &[flat], float(&[6]));
        graph.valid(&[output])
    }

    #[test]
    fn another_shape_is_in_the_same_memory() {
        let program = Program::with_kernels(negated_twice(), &NoPools, KernelSet::Fast).unwrap();
        let name = program.kernel_name(SubgraphIndex::Main, 1, 1);
        assert_eq!(name, "another shape in the same memory");
        let mut execution = Execution::new(Arc::new(program));
        for values in [[1.0_f32, -2.0, 3.0, 4.0, 5.0, 6.0], [0.5; 6], [-1.0; 6]] {
            let input = execution.input(0, &Shape::new(&[2, 3]).unwrap()).unwrap();
            input.copy_from_slice(bytemuck::cast_slice(&values));
            execution.run(&RunOptions::default()).unwrap();
            let (shape, output) = execution.output(0).unwrap();
            assert_eq!((shape.dims(), output), (&[6][..], bytemuck::cast_slice(&values)));
        }
    }
}
