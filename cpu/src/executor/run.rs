//! One run of a program.

use std::ops::Range;
use std::sync::Arc;

use nnhal_hal::ops::{OpError, ShapeRule};
use nnhal_hal::{MAX_RANK, Operation, Shape, Subgraph, SubgraphIndex};
use nnhal_os::buffer::{AlignedBuffer, OutOfMemory};
use nnhal_os::time::{Clock, MonotonicClock, TimePoint};

use super::fixed_outputs::FixedOutputs;
use super::program::{Graph, Program, Step, Work};
use super::{ExecutionError, ObservedOperation, RunOptions};
use crate::kernel::{Inputs, KernelContext, KernelError, Outputs, Value, Values, allocate};
use crate::scratch::Scratch;
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
    memory: Memory,
    /// How many microseconds the operations of the last run that can be parted take one thread, about.
    partable: u64,
    /// Whether helpers shorten the runs.
    tuner: ParallelismTuner,
    /// How many the last run had.
    helpers: usize,
    /// Whether an input reads memory of somebody else's.
    pub(super) borrows: bool,
}

/// The values of one graph while it runs.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// By operand.
    pub(super) values: Vec<Value>,
    /// By operation: the frames of the subgraphs that it runs, made when first needed.
    pub(super) children: Vec<Option<Box<[Frame; 2]>>>,
}

/// What frames share.
#[derive(Debug, Default)]
pub(super) struct Memory {
    free: Vec<AlignedBuffer>,
    outputs: Vec<Value>,
    shapes: Vec<Shape>,
    pub(super) scratch: Scratch,
}

impl Frame {
    pub(super) fn new(graph: &Subgraph) -> Frame {
        Frame {
            values: graph.operands.iter().map(|_| Value::default()).collect(),
            children: graph.operations.iter().map(|_| None).collect(),
        }
    }
}

impl Memory {
    /// Gives an empty buffer memory from the pool: the smallest one that holds `bytes`, else the largest
    /// there is.
    pub(super) fn reuse(&mut self, buffer: &mut AlignedBuffer, bytes: usize) {
        if buffer.capacity() >= bytes || self.free.is_empty() {
            return;
        }
        if let Some(at) = smallest_that_holds(bytes, self.free.iter().map(AlignedBuffer::capacity)) {
            let taken = self.free.swap_remove(at);
            let given_up = std::mem::replace(buffer, taken);
            self.give_back(given_up);
        }
    }

    pub(super) fn give_back(&mut self, buffer: AlignedBuffer) {
        if buffer.capacity() > 0 {
            self.free.push(buffer);
        }
    }
}

/// Which of these capacities is the smallest that holds `bytes`, else the largest there is.
pub(super) fn smallest_that_holds(bytes: usize, capacities: impl Iterator<Item = usize>) -> Option<usize> {
    let key = |(_, capacity): &(usize, usize)| {
        if *capacity >= bytes {
            (0, *capacity)
        } else {
            (1, usize::MAX - capacity)
        }
    };
    capacities.enumerate().min_by_key(key).map(|(at, _)| at)
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
        values
            + self
                .memory
                .free
                .iter()
                .map(AlignedBuffer::capacity)
                .sum::<usize>()
    }

    /// Gives input `index` this shape and returns its memory, to be filled before [`Execution::run`].
    ///
    /// # Errors
    /// The shape contradicts the model, or there is not enough memory.
    #[inline]
    pub fn input(&mut self, index: usize, shape: &Shape) -> Result<&mut [u8], ExecutionError> {
        let at = self.input_operand(index)?;
        // The shape of the last execution was allowed then.
        if self.input_again(index, shape).is_none() {
            self.allocate_input((index, at), *shape)?;
        }
        Ok(self.frame.values[at].buffer.bytes_mut())
    }

    /// The memory of input `index`, if it has this shape from the last run.
    #[must_use]
    #[inline]
    pub fn input_again(&mut self, index: usize, shape: &Shape) -> Option<&mut [u8]> {
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
        let (threads, timed) = self.tuner.begin(options.threads, self.partable);
        let team = Team::new(threads, self.partable);
        let outcome = Runner {
            program: &self.program,
            options,
            team: &team,
            memory: &mut self.memory,
        }
        .graph(SubgraphIndex::Main, &mut self.frame);
        self.partable = team.partable();
        self.helpers = team.helpers();
        self.tuner.end(&timed, outcome.is_ok());
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

/// A graph as the model has it, and as it is computed.
pub(super) type Graphs<'g> = (&'g Subgraph, &'g Graph);

/// How large an operation's outputs are: by the rule, unless it is known beforehand.
type Sizes<'k> = (ShapeRule, Option<&'k FixedOutputs>);

/// A run in progress.
pub(super) struct Runner<'a> {
    pub(super) program: &'a Program,
    pub(super) options: &'a RunOptions<'a>,
    pub(super) team: &'a Team<'a>,
    pub(super) memory: &'a mut Memory,
}

impl<'a> Runner<'a> {
    pub(super) fn subgraph(&self, at: SubgraphIndex) -> Graphs<'a> {
        let model = self.program.model.model();
        match at {
            SubgraphIndex::Main => (&model.main, &self.program.graphs[0]),
            SubgraphIndex::Referenced(index) => (&model.referenced[index], &self.program.graphs[index + 1]),
        }
    }

    /// Runs every operation of a graph whose inputs are in `frame`.
    pub(super) fn graph(&mut self, at: SubgraphIndex, frame: &mut Frame) -> Result<(), ExecutionError> {
        let graphs @ (_, graph) = self.subgraph(at);
        let is_observed = self.options.observer.is_some();
        let mut index = 0;
        while let Some(step) = graph.steps.get(index) {
            self.options.interrupt.check()?;
            if is_observed || step.group.is_some() || step.parted.is_some() || step.renames {
                index += self.several((at, index), graphs, frame)?;
                continue;
            }
            self.operation((at, index), graphs, frame)?;
            if !step.releases.is_empty() {
                self.release(step, frame);
            }
            index += 1;
        }
        Ok(())
    }

    /// Tells the observer of operations that have ended; of several that were computed together the first has
    /// all the time.
    #[cold]
    pub(super) fn tell(&self, at: SubgraphIndex, operations: Range<usize>, started: TimePoint) {
        let Some(observer) = self.options.observer else {
            return;
        };
        let (subgraph, _) = self.subgraph(at);
        let ended = MonotonicClock.now();
        for number in operations.clone() {
            observer.operation_ended(&ObservedOperation {
                graph: at,
                index: number,
                operation: subgraph.operations[number].operation_type,
                started: if number == operations.start {
                    started
                } else {
                    ended
                },
                ended,
            });
        }
    }

    /// Gives back the memory of the operands that this step is the last to read.
    pub(super) fn release(&mut self, step: &Step, frame: &mut Frame) {
        for &operand in &step.releases {
            let value = &mut frame.values[operand as usize];
            value.present = false;
            value.shared = None;
            // As `give_back` does, which is handed the buffer on the stack.
            if value.buffer.capacity() > 0 {
                self.memory.free.push(std::mem::take(&mut value.buffer));
            }
        }
    }

    /// Runs one operation.
    #[inline]
    pub(super) fn operation(
        &mut self,
        (at, index): (SubgraphIndex, usize),
        graphs @ (subgraph, graph): Graphs<'_>,
        frame: &mut Frame,
    ) -> Result<(), ExecutionError> {
        match &graph.steps[index].work {
            Work::Compute { .. } | Work::Planned { .. } => self
                .alone(graphs, index, frame)
                .map_err(|error| execution_error((at, index), &subgraph.operations[index], error)),
            Work::If => self.run_if(at, index, frame),
            Work::While => self.run_while(at, index, frame),
            Work::Folded => Ok(()),
        }
    }

    /// Computes an operation that is no control flow.
    #[inline]
    pub(super) fn alone(
        &mut self,
        graphs @ (subgraph, graph): Graphs<'_>,
        index: usize,
        frame: &mut Frame,
    ) -> Result<(), KernelError> {
        let (operation, step) = (&subgraph.operations[index], &graph.steps[index]);
        let fixed = step.fixed.as_ref();
        match &step.work {
            Work::Compute { kernel, shape } => {
                self.compute(graphs, operation, kernel, (*shape, fixed), frame)
            }
            Work::Planned { step, shape } => self.compute(
                graphs,
                operation,
                |context| step.run(context),
                (*shape, fixed),
                frame,
            ),
            Work::If | Work::While | Work::Folded => Ok(()),
        }
    }

    #[inline]
    fn compute(
        &mut self,
        graphs: Graphs<'_>,
        operation: &Operation,
        kernel: impl Fn(&mut KernelContext<'_>) -> Result<(), KernelError>,
        sizes: Sizes<'_>,
        frame: &mut Frame,
    ) -> Result<(), KernelError> {
        let (shape, fixed) = sizes;
        let fixed = fixed.filter(|fixed| fixed.apply_to(Values::all(&frame.values)));
        if let [at] = operation.outputs[..]
            && let Some((inputs, output)) = Values::but(&mut frame.values, at as usize)
        {
            let outputs = std::slice::from_mut(output);
            return self.compute_into(graphs, operation, kernel, (shape, fixed), inputs, outputs);
        }
        self.compute_several(graphs, operation, &kernel, (shape, fixed), frame)
    }

    /// The same for an operation that has not one output.
    #[inline(never)]
    fn compute_several(
        &mut self,
        graphs: Graphs<'_>,
        operation: &Operation,
        kernel: &dyn Fn(&mut KernelContext<'_>) -> Result<(), KernelError>,
        sizes: Sizes<'_>,
        frame: &mut Frame,
    ) -> Result<(), KernelError> {
        // Several change places with others outside the frame, so that inputs and outputs can be borrowed
        // side by side.
        let mut outside = std::mem::take(&mut self.memory.outputs);
        let count = operation.outputs.len();
        if outside.len() < count {
            outside.resize_with(count, Value::default);
        }
        let outputs = &mut outside[..count];
        exchange(&operation.outputs, frame, outputs);
        let inputs = Values::all(&frame.values);
        let result = self.compute_into(graphs, operation, kernel, sizes, inputs, outputs);
        exchange(&operation.outputs, frame, outputs);
        self.memory.outputs = outside;
        result
    }

    /// Computes an operation into its outputs, whose sizes are known beforehand only if this execution is as
    /// declared.
    // Always inlined, as the structures on the way to the kernel would be copied right after they were made.
    #[inline(always)]
    pub(super) fn compute_into(
        &mut self,
        (subgraph, graph): Graphs<'_>,
        operation: &Operation,
        kernel: impl Fn(&mut KernelContext<'_>) -> Result<(), KernelError>,
        (shape, fixed): Sizes<'_>,
        values: Values<'_>,
        outputs: &mut [Value],
    ) -> Result<(), KernelError> {
        let operands = &subgraph.operands;
        // Made where they are used: copying them takes longer than making them.
        let inputs = || Inputs {
            operation,
            operands,
            constants: &graph.constants,
            values,
        };
        if let Some(fixed) = fixed {
            fixed.give(outputs, |value, bytes| {
                self.memory.reuse(&mut value.buffer, bytes)
            })?;
        } else if let ShapeRule::Infer(rule) = shape {
            let inputs = inputs();
            let shapes = &mut self.memory.shapes;
            shapes.clear();
            shapes.resize(outputs.len(), Shape::SCALAR);
            rule(&inputs, shapes)?;
            self.allocate_inferred(&inputs, outputs)?;
        } else {
            // The kernel sizes them; buffers left from an earlier run are used again.
            outputs.iter_mut().for_each(|value| value.present = false);
        }
        let mut context = KernelContext {
            inputs: inputs(),
            outputs: Outputs {
                operation,
                operands,
                values: outputs,
            },
            scratch: &mut self.memory.scratch,
            relaxed: self.program.model.model().relax_computation_float32_to_float16,
            interrupt: self.options.interrupt,
            team: self.team,
        };
        kernel(&mut context)?;
        if context.outputs.values.iter().all(|value| value.present) {
            return Ok(());
        }
        Err(not_written(context.outputs.values))
    }

    /// Gives the outputs of an operation the shapes that its rule has inferred, and memory.
    #[inline(never)]
    fn allocate_inferred(&mut self, inputs: &Inputs<'_>, outputs: &mut [Value]) -> Result<(), KernelError> {
        for (number, value) in outputs.iter_mut().enumerate() {
            let operand = &inputs.operands[inputs.operation.outputs[number] as usize];
            let shape = self.memory.shapes[number];
            let bytes = shape.byte_size(operand.operand_type.element_size()).unwrap_or(0);
            self.memory.reuse(&mut value.buffer, bytes);
            allocate(value, operand, shape).map_err(|error| match error {
                KernelError::Operation(error) => OpError::output(number, error.message).into(),
                other => other,
            })?;
        }
        Ok(())
    }
}

/// Has the values of some operands change places with others: moving them by way of the stack waits for its
/// stores.
#[inline]
fn exchange(operands: &[u32], frame: &mut Frame, others: &mut [Value]) {
    for (at, other) in operands.iter().zip(others) {
        std::mem::swap(&mut frame.values[*at as usize], other);
    }
}

#[cold]
pub(super) fn execution_error(
    (graph, index): (SubgraphIndex, usize),
    operation: &Operation,
    error: KernelError,
) -> ExecutionError {
    match error {
        KernelError::Interrupted(interrupted) => ExecutionError::Interrupted(interrupted),
        error => ExecutionError::Operation {
            graph,
            index,
            operation: operation.operation_type,
            error,
        },
    }
}

#[cold]
fn not_written(outputs: &[Value]) -> KernelError {
    let number = outputs.iter().position(|value| !value.present);
    OpError::output(number.unwrap_or(0), "was not written").into()
}

/// Copies an operand's value, shape included, from one frame's operand to another's.
pub(super) fn copy_value(
    from: Option<(Shape, &[u8])>,
    to: &mut Value,
    operand: &nnhal_hal::Operand,
) -> Result<(), KernelError> {
    let Some((shape, bytes)) = from else {
        to.present = false;
        return Ok(());
    };
    debug_assert!(shape.rank() <= MAX_RANK);
    allocate(to, operand, shape)?;
    let target = to.buffer.bytes_mut();
    if target.len() != bytes.len() {
        return Err(OutOfMemory { bytes: bytes.len() }.into());
    }
    target.copy_from_slice(bytes);
    Ok(())
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
