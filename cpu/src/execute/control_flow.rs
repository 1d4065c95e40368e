//! IF and WHILE.
//!
//! Source: the NN HAL 1.3 text. A condition is one TENSOR_BOOL8 element. A WHILE's loop-carried values go
//! from the body's outputs to the next iteration's inputs by exchanging buffers. The time limit is checked
//! after a condition that came out true, before the body, as in the HAL's reference.

use std::time::Instant;

use nnhal_hal::ops::OpError;
use nnhal_hal::{Operand, Operation, Shape, Subgraph, SubgraphIndex};

use super::ExecutionError;
use super::frame::{Frame, copy_value};
use super::nodes::Runner;
use crate::kernel::{Inputs, KernelError, Value, Values, allowed_size};

impl Runner<'_> {
    // Not inlined, for the reason that `nodes` gives.
    #[inline(never)]
    pub(super) fn run_if(
        &mut self,
        at: SubgraphIndex,
        index: usize,
        frame: &mut Frame,
    ) -> Result<(), ExecutionError> {
        self.with_children(at, index, frame, [1, 2], Self::choose)
    }

    // As above.
    #[inline(never)]
    pub(super) fn run_while(
        &mut self,
        at: SubgraphIndex,
        index: usize,
        frame: &mut Frame,
    ) -> Result<(), ExecutionError> {
        self.with_children(at, index, frame, [0, 1], Self::iterate)
    }

    /// Runs an operation with the two graphs that these inputs refer to, and the frames of these, which are
    /// out of the frame for as long as they run.
    fn with_children(
        &mut self,
        at: SubgraphIndex,
        index: usize,
        frame: &mut Frame,
        inputs: [usize; 2],
        run: ControlFlow<Self>,
    ) -> Result<(), ExecutionError> {
        let (subgraph, _) = self.subgraph(at);
        let operation = &subgraph.operations[index];
        let [first, second] = inputs.map(|input| referenced(subgraph, operation, input));
        let failed = failure(at, index, operation);
        let graphs = [first.map_err(failed)?, second.map_err(failed)?];
        let mut children = self.children(frame, index, graphs);
        let result = run(self, at, index, frame, graphs, &mut children);
        frame.children[index] = Some(children);
        result
    }

    /// Runs the branch that the condition says.
    fn choose(
        &mut self,
        at: SubgraphIndex,
        index: usize,
        frame: &mut Frame,
        branches: [SubgraphIndex; 2],
        children: &mut [Frame; 2],
    ) -> Result<(), ExecutionError> {
        let (subgraph, _) = self.subgraph(at);
        let operation = &subgraph.operations[index];
        let failed = failure(at, index, operation);
        let condition = self.inputs(at, operation, &frame.values).tensor(0);
        let holds = truth(condition.map_err(failed)?.bytes, 0).map_err(failed)?;
        let taken = usize::from(!holds);
        let (branch, child) = (branches[taken], &mut children[taken]);
        self.enter(at, operation, 3, &frame.values, branch, child)
            .map_err(failed)?;
        self.graph(branch, child)?;
        let (inner, _) = self.subgraph(branch);
        give_outputs((subgraph, operation), frame, &inner.output_indexes, child).map_err(failed)
    }

    /// Runs the body for as long as the condition holds.
    fn iterate(
        &mut self,
        at: SubgraphIndex,
        index: usize,
        frame: &mut Frame,
        [condition, body]: [SubgraphIndex; 2],
        children: &mut [Frame; 2],
    ) -> Result<(), ExecutionError> {
        let (subgraph, _) = self.subgraph(at);
        let operation = &subgraph.operations[index];
        let failed = failure(at, index, operation);
        let [condition_frame, body_frame] = children;
        let (condition_graph, _) = self.subgraph(condition);
        let (body_graph, _) = self.subgraph(body);
        let limit = self.options.loop_timeout;
        let started = Instant::now();
        self.enter(at, operation, 2, &frame.values, body, body_frame)
            .map_err(failed)?;
        loop {
            // The loop's values, which are the inputs of the body, go to the condition.
            let value = |number: usize| {
                let value = &body_frame.values[*body_graph.input_indexes.get(number)? as usize];
                value.present.then(|| (value.shape, value.bytes()))
            };
            give_inputs(condition_graph, condition_frame, 2, value).map_err(failed)?;
            self.graph(condition, condition_frame)?;
            let holds = condition_graph
                .output_indexes
                .first()
                .map(|at| &condition_frame.values[*at as usize]);
            let holds = holds.filter(|value| value.present).map_or(&[][..], Value::bytes);
            if !truth(holds, 0).map_err(failed)? {
                break;
            }
            if started.elapsed() > limit {
                return Err(ExecutionError::LoopTimeout {
                    graph: at,
                    index,
                    limit,
                });
            }
            self.graph(body, body_frame)?;
            let carried = body_graph.output_indexes.iter().zip(&body_graph.input_indexes);
            for (number, (&output, &input)) in carried.enumerate() {
                let (output, input) = (output as usize, input as usize);
                body_frame.values.swap(output, input);
                // What is computed of an input may rest on its declared shape.
                allowed_size(&body_graph.operands[input], body_frame.values[input].shape)
                    .map_err(|error| failed(error.at_input(2 + number)))?;
            }
        }
        // After the exchange, and also without any iteration, the current values are the body's inputs.
        let current = &body_graph.input_indexes;
        give_outputs((subgraph, operation), frame, current, body_frame).map_err(failed)
    }

    fn inputs<'b>(&self, at: SubgraphIndex, operation: &'b Operation, values: &'b [Value]) -> Inputs<'b>
    where
        Self: 'b,
    {
        let (subgraph, plan) = self.subgraph(at);
        Inputs {
            operation,
            operands: &subgraph.operands,
            constants: &plan.constants,
            values: Values::all(values),
        }
    }

    /// The frames of the graphs that the operation runs, out of the frame for as long as they run.
    fn children(&self, frame: &mut Frame, index: usize, graphs: [SubgraphIndex; 2]) -> Box<[Frame; 2]> {
        let mut children = frame.children[index].take().unwrap_or_default();
        for (child, graph) in children.iter_mut().zip(graphs) {
            let (subgraph, _) = self.subgraph(graph);
            if child.values.len() != subgraph.operands.len()
                || child.children.len() != subgraph.operations.len()
            {
                *child = Frame::new(subgraph);
            }
        }
        children
    }

    /// Copies the operation's inputs from `first` on to the inputs of the graph that it runs.
    fn enter(
        &self,
        at: SubgraphIndex,
        operation: &Operation,
        first: usize,
        values: &[Value],
        graph: SubgraphIndex,
        child: &mut Frame,
    ) -> Result<(), KernelError> {
        let (inner, _) = self.subgraph(graph);
        let inputs = self.inputs(at, operation, values);
        give_inputs(inner, child, first, |number| {
            let tensor = inputs.optional(first + number)?;
            Some((tensor.shape, tensor.bytes))
        })
    }
}

/// What an operation does with two graphs and their frames.
type ControlFlow<R> = fn(
    &mut R,
    SubgraphIndex,
    usize,
    &mut Frame,
    [SubgraphIndex; 2],
    &mut [Frame; 2],
) -> Result<(), ExecutionError>;

/// Copies values to the inputs of a graph, of which the first is input `first` of the operation.
fn give_inputs<'v>(
    graph: &Subgraph,
    frame: &mut Frame,
    first: usize,
    value: impl Fn(usize) -> Option<(Shape, &'v [u8])>,
) -> Result<(), KernelError> {
    for (number, &operand) in graph.input_indexes.iter().enumerate() {
        let operand = operand as usize;
        let (to, declared) = (&mut frame.values[operand], &graph.operands[operand]);
        copy_value(value(number), to, declared).map_err(|error| error.at_input(first + number))?;
    }
    Ok(())
}

fn failure(
    graph: SubgraphIndex,
    index: usize,
    operation: &Operation,
) -> impl Fn(KernelError) -> ExecutionError + Copy {
    let operation = operation.operation_type;
    move |error| ExecutionError::Operation {
        graph,
        index,
        operation,
        error,
    }
}

/// The graph that the operation's input refers to.
fn referenced(
    subgraph: &Subgraph,
    operation: &Operation,
    input: usize,
) -> Result<SubgraphIndex, KernelError> {
    operation
        .inputs
        .get(input)
        .and_then(|at| subgraph.operands.get(*at as usize))
        .map(|operand| SubgraphIndex::Referenced(operand.location.offset as usize))
        .ok_or_else(|| OpError::input(input, "is missing").into())
}

fn truth(bytes: &[u8], input: usize) -> Result<bool, KernelError> {
    match bytes {
        [byte] => Ok(*byte != 0),
        _ => Err(OpError::input(
            input,
            format!("is a condition of {} elements, must be one", bytes.len()),
        )
        .into()),
    }
}

/// Hands a subgraph's results, which are these of its operands, to the operation's outputs.
fn give_outputs(
    (subgraph, operation): (&Subgraph, &Operation),
    frame: &mut Frame,
    results: &[u32],
    child: &mut Frame,
) -> Result<(), KernelError> {
    for (number, outer) in operation.outputs.iter().enumerate() {
        let result = results.get(number);
        let value = result.and_then(|at| child.values.get_mut(*at as usize));
        give_output(
            &subgraph.operands[*outer as usize],
            &mut frame.values[*outer as usize],
            value.filter(|value| value.present),
            number,
        )?;
    }
    Ok(())
}

/// Hands a subgraph's result to the operation's output by exchanging buffers.
fn give_output(
    operand: &Operand,
    outer: &mut Value,
    inner: Option<&mut Value>,
    number: usize,
) -> Result<(), KernelError> {
    let Some(inner) = inner else {
        return Err(OpError::output(number, "was not written by the subgraph").into());
    };
    allowed_size(operand, inner.shape).map_err(|error| error.at_output(number))?;
    std::mem::swap(outer, inner);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{
        Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph,
    };

    use crate::{Execution, KernelSet, Program, RunOptions};

    fn tensor(ty: OperandType, extent: u32, lifetime: OperandLifeTime) -> Operand {
        Operand::new(ty, &[extent]).with_lifetime(lifetime)
    }

    fn constant(ty: OperandType, dimensions: &[u32], offset: u32) -> Operand {
        let mut operand = Operand::new(ty, dimensions).with_lifetime(OperandLifeTime::ConstantCopy);
        operand.location.offset = offset;
        operand.location.length = 4;
        operand
    }

    fn graph(operands: Vec<Operand>, operation_type: OperationType, inputs: &[u32], input: u32) -> Subgraph {
        let output = operands.len() as u32 - 1;
        let mut operands = operands;
        for at in inputs {
            operands[*at as usize].number_of_consumers += 1;
        }
        Subgraph {
            operands,
            operations: vec![Operation {
                operation_type,
                inputs: inputs.to_vec(),
                outputs: vec![output],
            }],
            input_indexes: vec![input],
            output_indexes: vec![output],
        }
    }

    /// A loop without end whose body gives its input twice, one after the other, though it declares that
    /// input with two elements.
    fn growing() -> Model {
        use OperandLifeTime::{SubgraphInput, SubgraphOutput};
        let (float, truth) = (OperandType::TENSOR_FLOAT32, OperandType::TENSOR_BOOL8);
        let condition = vec![
            tensor(float, 0, SubgraphInput),
            constant(float, &[1], 0),
            constant(float, &[1], 4),
            tensor(truth, 1, SubgraphOutput),
        ];
        let body = vec![
            tensor(float, 2, SubgraphInput),
            constant(OperandType::INT32, &[], 0),
            tensor(float, 0, SubgraphOutput),
        ];
        let subgraph = |index: u32| {
            let mut operand =
                Operand::new(OperandType::SUBGRAPH, &[]).with_lifetime(OperandLifeTime::Subgraph);
            operand.location.offset = index;
            operand
        };
        let main = vec![
            subgraph(0),
            subgraph(1),
            tensor(float, 2, SubgraphInput),
            tensor(float, 0, SubgraphOutput),
        ];
        Model {
            main: graph(main, OperationType::WHILE, &[0, 1, 2], 2),
            referenced: vec![
                graph(condition, OperationType::LESS, &[1, 2], 0),
                graph(body, OperationType::CONCATENATION, &[0, 0, 1], 0),
            ],
            operand_values: [0.0_f32, 1.0]
                .iter()
                .flat_map(|value| value.to_ne_bytes())
                .collect(),
            ..Model::default()
        }
    }

    #[test]
    fn loop_whose_values_outgrow_what_its_body_declares_is_refused() {
        let model = Arc::new(ValidModel::new(Arc::new(growing()), &NoPools, &[]).unwrap());
        for kernels in [KernelSet::Reference, KernelSet::Fast] {
            let program = Program::with_kernels(Arc::clone(&model), &NoPools, kernels).unwrap();
            let mut execution = Execution::new(Arc::new(program));
            execution.input(0, &Shape::new(&[2]).unwrap()).unwrap().fill(0);
            let error = execution.run(&RunOptions::default()).unwrap_err();
            assert_eq!(
                error.to_string(),
                "operation 0 (WHILE) of the main graph: input 2: has dimensions [4] when computed, the model \
                 declares [2]"
            );
        }
    }
}
