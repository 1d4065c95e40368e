//! Runs the nodes of a plan.
//!
//! What operations of small models do without is not inlined: a caller that has it all inside saves and
//! prepares more than such an operation takes.

use nnhal_hal::ops::{OpError, ShapeRule};
use nnhal_hal::{Operation, OperationType, Shape, Subgraph, SubgraphIndex};
use nnhal_os::time::{Clock, MonotonicClock, TimePoint};

use super::frame::{Frame, Memory};
use super::{ExecutionError, ObservedOperation, RunOptions};
use crate::fast::FusedStep;
use crate::interrupt::Interrupt as _;
use crate::kernel::{Inputs, KernelContext, KernelError, Outputs, Value, Values, allocate};
use crate::plan::node::{Node, Work};
use crate::plan::{FixedOutputs, Plan, Program};
use crate::threads::Team;

/// A graph as the model has it, and how it is computed.
pub(super) type Graphs<'g> = (&'g Subgraph, &'g Plan);

/// How large outputs are, if that is known beforehand; the rule otherwise.
type Sizes<'k> = Result<&'k FixedOutputs, ShapeRule>;

/// A run in progress.
pub(super) struct Runner<'a> {
    pub(super) program: &'a Program,
    pub(super) options: &'a RunOptions<'a>,
    pub(super) team: &'a Team<'a>,
    pub(super) memory: &'a mut Memory,
}

impl<'a> Runner<'a> {
    pub(super) fn subgraph(&self, at: SubgraphIndex) -> Graphs<'a> {
        let program = self.program;
        match at {
            SubgraphIndex::Main => (program.main(), &program.plans[0]),
            SubgraphIndex::Referenced(index) => (
                &program.model.model().referenced[index],
                &program.plans[index + 1],
            ),
        }
    }

    /// Runs every node of a graph whose inputs are in `frame`.
    #[inline]
    pub(super) fn graph(&mut self, at: SubgraphIndex, frame: &mut Frame) -> Result<(), ExecutionError> {
        let graphs @ (_, plan) = self.subgraph(at);
        self.nodes((at, graphs), &plan.nodes, frame)?;
        Ok(self.team.outcome()?)
    }

    /// Runs nodes, each by its parts where it does not compute as one.
    fn nodes(
        &mut self,
        (at, graphs): (SubgraphIndex, Graphs<'a>),
        nodes: &[Node],
        frame: &mut Frame,
    ) -> Result<(), ExecutionError> {
        for node in nodes {
            self.team.check()?;
            let started = self.options.observer.map(|_| MonotonicClock.now());
            if !self.node((at, graphs), node, frame)? {
                self.nodes((at, graphs), &node.parts, frame)?;
                continue;
            }
            if let Some(started) = started {
                self.tell(at, node, started);
            }
            if !node.releases.is_empty() {
                self.release(node, frame);
            }
        }
        Ok(())
    }

    /// Runs a node; says whether it has computed, which it does unless something is not as it needs it.
    #[inline]
    fn node(
        &mut self,
        (at, graphs): (SubgraphIndex, Graphs<'_>),
        node: &Node,
        frame: &mut Frame,
    ) -> Result<bool, ExecutionError> {
        let computed = match &node.work {
            Work::Reference(kernel, shape) => self.compute(graphs, node, (*shape, kernel), frame),
            Work::Step(step, shape) => {
                self.compute(graphs, node, (*shape, |context: &mut _| step.run(context)), frame)
            }
            Work::Fused(step) => self.fused(graphs, node, &**step, frame),
            Work::InPlace => Self::in_place(node, frame),
            Work::If(index) => return self.run_if(at, *index, frame).map(|()| true),
            Work::While(index) => return self.run_while(at, *index, frame).map(|()| true),
        };
        computed.map_err(|error| {
            let operation = graphs.0.operations[node.number()].operation_type;
            execution_error((at, node.number()), operation, error)
        })
    }

    /// Tells the observer of a node that has ended: of its operations the first has all the time.
    #[cold]
    fn tell(&self, at: SubgraphIndex, node: &Node, started: TimePoint) {
        let Some(observer) = self.options.observer else {
            return;
        };
        let (subgraph, _) = self.subgraph(at);
        let ended = MonotonicClock.now();
        for (place, computed) in node.computes.iter().enumerate() {
            observer.operation_ended(&ObservedOperation {
                graph: at,
                index: computed.number,
                operation: subgraph.operations[computed.number].operation_type,
                started: if place == 0 { started } else { ended },
                ended,
            });
        }
    }

    /// Gives back the memory of the operands that this node is the last to read.
    fn release(&mut self, node: &Node, frame: &mut Frame) {
        for &operand in &node.releases {
            let value = &mut frame.values[operand as usize];
            value.present = false;
            value.shared = None;
            // As `give_back` does, which is handed the buffer on the stack.
            if value.buffer.capacity() > 0 {
                self.memory.free.push(std::mem::take(&mut value.buffer));
            }
        }
    }

    /// Has an operation's input and output exchange their memory, unless the input is not as declared.
    #[inline(never)]
    fn in_place(node: &Node, frame: &mut Frame) -> Result<bool, KernelError> {
        let (input, output) = (
            node.operation.inputs[0] as usize,
            node.operation.outputs[0] as usize,
        );
        let fixed = node.fixed.as_ref();
        let Some(fixed) = fixed.filter(|fixed| fixed.apply_to(Values::all(&frame.values))) else {
            return Ok(false);
        };
        if frame.values[input].shared.is_some() {
            return Ok(false);
        }
        let Ok([given, value]) = frame.values.get_disjoint_mut([input, output]) else {
            return Ok(false);
        };
        std::mem::swap(&mut given.buffer, &mut value.buffer);
        fixed.give(std::slice::from_mut(value), |_, _| {})?;
        Ok(true)
    }

    /// Computes several operations as one, if everything that they read is there and the team suits.
    #[inline(never)]
    fn fused(
        &mut self,
        graphs: Graphs<'_>,
        node: &Node,
        step: &dyn FusedStep,
        frame: &mut Frame,
    ) -> Result<bool, KernelError> {
        let (Some(fixed), &[output]) = (&node.fixed, &node.operation.outputs[..]) else {
            return Ok(false);
        };
        if !step.suits_team(self.team) || !fixed.apply_to(Values::all(&frame.values)) {
            return Ok(false);
        }
        let Some((inputs, output)) = Values::but(&mut frame.values, output as usize) else {
            return Ok(false);
        };
        let outputs = std::slice::from_mut(output);
        let mut has_computed = false;
        let run = |context: &mut KernelContext<'_>| {
            has_computed = step.run(context)?;
            Ok(())
        };
        self.compute_into(graphs, &node.operation, run, Ok(fixed), inputs, outputs)?;
        Ok(has_computed)
    }

    /// Computes an operation, which it always does.
    #[inline]
    fn compute(
        &mut self,
        graphs: Graphs<'_>,
        node: &Node,
        (shape, kernel): (
            ShapeRule,
            impl Fn(&mut KernelContext<'_>) -> Result<(), KernelError>,
        ),
        frame: &mut Frame,
    ) -> Result<bool, KernelError> {
        let (operation, fixed) = (&node.operation, node.fixed.as_ref());
        let fixed = fixed.filter(|fixed| fixed.apply_to(Values::all(&frame.values)));
        let sizes = fixed.ok_or(shape);
        if let [at] = operation.outputs[..]
            && let Some((inputs, output)) = Values::but(&mut frame.values, at as usize)
        {
            let outputs = std::slice::from_mut(output);
            self.compute_into(graphs, operation, kernel, sizes, inputs, outputs)?;
            return Ok(true);
        }
        self.compute_several(graphs, operation, &kernel, sizes, frame)?;
        Ok(true)
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
    fn compute_into(
        &mut self,
        (subgraph, plan): Graphs<'_>,
        operation: &Operation,
        kernel: impl FnOnce(&mut KernelContext<'_>) -> Result<(), KernelError>,
        sizes: Sizes<'_>,
        values: Values<'_>,
        outputs: &mut [Value],
    ) -> Result<(), KernelError> {
        let operands = &subgraph.operands;
        // Made where they are used: copying them takes longer than making them.
        let inputs = || Inputs {
            operation,
            operands,
            constants: &plan.constants,
            values,
        };
        if let Ok(fixed) = sizes {
            fixed.give(outputs, |value, bytes| {
                self.memory.reuse(&mut value.buffer, bytes)
            })?;
        } else if let Err(ShapeRule::Infer(rule)) = sizes {
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
            allocate(value, operand, shape).map_err(|error| error.at_output(number))?;
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
fn execution_error(
    (graph, index): (SubgraphIndex, usize),
    operation: OperationType,
    error: KernelError,
) -> ExecutionError {
    match error {
        KernelError::Interrupted(interrupted) => ExecutionError::Interrupted(interrupted),
        error => ExecutionError::Operation {
            graph,
            index,
            operation,
            error,
        },
    }
}

#[cold]
fn not_written(outputs: &[Value]) -> KernelError {
    let number = outputs.iter().position(|value| !value.present);
    OpError::output(number.unwrap_or(0), "was not written").into()
}
