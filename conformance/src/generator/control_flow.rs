//! Draws IF and WHILE with the graphs that they run: branches and bodies that keep type and shape of one
//! tensor, and loops that end. Branches and bodies may have IF and WHILE of their own.

use nnhal_hal::{
    DataLocation, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph, tflite,
};

use super::choices::Choices;
use super::graph::{Drawn, Graph, Role};
use super::values;

/// What every type here has: operations that keep type and shape.
const TYPES: &[OperandType] = &[
    OperandType::TENSOR_FLOAT32,
    OperandType::TENSOR_FLOAT16,
    OperandType::TENSOR_INT32,
];

/// Control flow is nested to this depth, that of the main graph included.
const MOST_DEPTH: u32 = 3;

/// Adds an IF or a WHILE over one tensor of the graph, or a new one.
pub(super) fn add(graph: &mut Graph, choices: &mut Choices, operation: OperationType) {
    let tensor = some_tensor(graph, choices);
    let (operand_type, shape) = {
        let drawn = &graph.operands[tensor as usize];
        (drawn.operand.operand_type, drawn.shape.unwrap_or_default())
    };
    let open = choices.once_in(4);
    let body = Body {
        operand_type,
        dims: if open { Vec::new() } else { shape.dims().to_vec() },
    };
    if operation == OperationType::IF {
        add_if(graph, choices, tensor, &body, shape);
    } else {
        add_while(graph, choices, tensor, &body, shape);
    }
}

fn some_tensor(graph: &mut Graph, choices: &mut Choices) -> u32 {
    let fitting: Vec<u32> = (0_u32..)
        .zip(&graph.operands)
        .filter(|(_, drawn)| {
            let tensor = drawn.shape.is_some_and(|shape| shape.rank() > 0);
            tensor && drawn.operand.scale == 0.0 && TYPES.contains(&drawn.operand.operand_type)
        })
        .map(|(index, _)| index)
        .collect();
    if let Some(index) = choices.pick(&fitting) {
        return *index;
    }
    let ty = choices
        .pick(TYPES)
        .copied()
        .unwrap_or(OperandType::TENSOR_FLOAT32);
    let value = values::some(choices, ty, 2);
    add_value(graph, Operand::new(ty, &[2]), value, Role::Input)
}

fn add_value(graph: &mut Graph, operand: Operand, value: nnhal_os::buffer::AlignedBuffer, role: Role) -> u32 {
    let shape = Shape::new(&operand.dimensions).unwrap_or_default();
    graph.add(Drawn {
        operand,
        shape: Some(shape),
        value: Some(value),
        role,
    })
}

fn add_computed(graph: &mut Graph, ty: OperandType, shape: Shape) -> u32 {
    graph.add(Drawn {
        operand: Operand::new(ty, shape.dims()),
        shape: Some(shape),
        value: None,
        role: Role::Computed,
    })
}

/// The operand that refers to a new graph.
fn refer_to(graph: &mut Graph, subgraph: Subgraph) -> u32 {
    graph.referenced.push(subgraph);
    refer_again(graph)
}

/// One more operand that refers to the last graph.
fn refer_again(graph: &mut Graph) -> u32 {
    let mut operand = Operand::new(OperandType::SUBGRAPH, &[]);
    operand.location.offset = graph.referenced.len() as u32 - 1;
    graph.add(Drawn {
        operand,
        shape: None,
        value: None,
        role: Role::Subgraph,
    })
}

fn add_if(graph: &mut Graph, choices: &mut Choices, tensor: u32, body: &Body, shape: Shape) {
    let condition = values::some(choices, OperandType::TENSOR_BOOL8, 1);
    let role = if choices.once_in(2) {
        Role::ConstantCopy
    } else {
        Role::Input
    };
    let condition = add_value(
        graph,
        Operand::new(OperandType::TENSOR_BOOL8, &[1]),
        condition,
        role,
    );
    let then_graph = body.branch(graph, choices, 1);
    let then_graph = refer_to(graph, then_graph);
    let else_graph = if choices.once_in(3) {
        refer_again(graph)
    } else {
        let branch = body.branch(graph, choices, 1);
        refer_to(graph, branch)
    };
    let output = add_computed(graph, body.operand_type, shape);
    graph.operations.push(Operation {
        operation_type: OperationType::IF,
        inputs: vec![condition, then_graph, else_graph, tensor],
        outputs: vec![output],
    });
}

fn add_while(graph: &mut Graph, choices: &mut Choices, tensor: u32, body: &Body, shape: Shape) {
    let limit = choices.below(5) as i32;
    let condition = body.condition(graph, limit);
    let condition = refer_to(graph, condition);
    let step = body.step(graph, choices, 1);
    let step = refer_to(graph, step);
    let counter = add_value(
        graph,
        Operand::new(OperandType::TENSOR_INT32, &[1]),
        values::integers(&[0]),
        Role::Input,
    );
    let counted = add_computed(
        graph,
        OperandType::TENSOR_INT32,
        Shape::new(&[1]).unwrap_or_default(),
    );
    let output = add_computed(graph, body.operand_type, shape);
    graph.operations.push(Operation {
        operation_type: OperationType::WHILE,
        inputs: vec![condition, step, counter, tensor],
        outputs: vec![counted, output],
    });
}

/// What branches and loop bodies compute on. Their depth is how many operations of control flow they are
/// inside of.
struct Body {
    operand_type: OperandType,
    /// As the graphs declare them; none leaves the rank open.
    dims: Vec<u32>,
}

impl Body {
    /// From a tensor to one of the same type and shape.
    fn branch(&self, graph: &mut Graph, choices: &mut Choices, depth: u32) -> Subgraph {
        let mut small = Small::new(graph);
        let input = small.input(self.operand_type, &self.dims);
        self.chain(&mut small, choices, input, depth);
        small.subgraph
    }

    /// A few operations from `input` to an output of the graph.
    fn chain(&self, small: &mut Small<'_>, choices: &mut Choices, input: u32, depth: u32) {
        let mut last = input;
        let more = choices.below(3);
        for left in (0..=more).rev() {
            let output = if left == 0 {
                small.output(self.operand_type, &self.dims)
            } else {
                small.operand(self.operand_type, &self.dims, OperandLifeTime::TemporaryVariable)
            };
            let kinds = if depth < MOST_DEPTH { 5 } else { 3 };
            match choices.below(kinds) {
                0 => small.operation(OperationType::ABS, &[last], &[output]),
                1 => small.operation(OperationType::NEG, &[last], &[output]),
                2 => {
                    let is_wider = small.graph.has_extension && choices.once_in(2);
                    let maximum = if is_wider {
                        tflite::MAXIMUM
                    } else {
                        OperationType::MAXIMUM
                    };
                    small.operation(maximum, &[last, input], &[output]);
                }
                3 => self.inner_if(small, choices, (last, output), depth + 1),
                _ => self.inner_while(small, choices, (last, output), depth + 1),
            }
            last = output;
        }
    }

    /// An IF inside a branch or body, from one of its tensors to another.
    fn inner_if(&self, small: &mut Small<'_>, choices: &mut Choices, (from, to): (u32, u32), depth: u32) {
        let taken = choices.below(2) as u8;
        let condition = small.constant(OperandType::TENSOR_BOOL8, &[1], &[taken]);
        let branches = [(); 2].map(|()| {
            let branch = self.branch(small.graph, choices, depth);
            small.refer_to(branch)
        });
        small.operation(
            OperationType::IF,
            &[condition, branches[0], branches[1], from],
            &[to],
        );
    }

    /// A WHILE inside a branch or body, from one of its tensors to another.
    fn inner_while(&self, small: &mut Small<'_>, choices: &mut Choices, (from, to): (u32, u32), depth: u32) {
        let limit = choices.below(3) as i32;
        let condition = self.condition(small.graph, limit);
        let condition = small.refer_to(condition);
        let step = self.step(small.graph, choices, depth);
        let step = small.refer_to(step);
        let counter = small.constant(OperandType::TENSOR_INT32, &[1], &0_i32.to_le_bytes());
        let counted = small.operand(
            OperandType::TENSOR_INT32,
            &[1],
            OperandLifeTime::TemporaryVariable,
        );
        small.operation(
            OperationType::WHILE,
            &[condition, step, counter, from],
            &[counted, to],
        );
    }

    /// Whether the counter is below `limit`.
    fn condition(&self, graph: &mut Graph, limit: i32) -> Subgraph {
        let mut small = Small::new(graph);
        let counter = small.input(OperandType::TENSOR_INT32, &[1]);
        small.input(self.operand_type, &self.dims);
        let limit = small.constant(OperandType::TENSOR_INT32, &[1], &limit.to_le_bytes());
        let output = small.output(OperandType::TENSOR_BOOL8, &[1]);
        small.operation(OperationType::LESS, &[counter, limit], &[output]);
        small.subgraph
    }

    /// Counts one up and computes on the tensor.
    fn step(&self, graph: &mut Graph, choices: &mut Choices, depth: u32) -> Subgraph {
        let mut small = Small::new(graph);
        let counter = small.input(OperandType::TENSOR_INT32, &[1]);
        let tensor = small.input(self.operand_type, &self.dims);
        let one = small.constant(OperandType::TENSOR_INT32, &[1], &1_i32.to_le_bytes());
        let none = small.constant(OperandType::INT32, &[], &0_i32.to_le_bytes());
        let counted = small.output(OperandType::TENSOR_INT32, &[1]);
        small.operation(OperationType::ADD, &[counter, one, none], &[counted]);
        self.chain(&mut small, choices, tensor, depth);
        small.subgraph
    }
}

/// A graph to refer to, while it is built.
struct Small<'a> {
    subgraph: Subgraph,
    /// Keeps its constants and the graphs that it refers to.
    graph: &'a mut Graph,
}

impl Small<'_> {
    fn new(graph: &mut Graph) -> Small<'_> {
        Small {
            subgraph: Subgraph::default(),
            graph,
        }
    }

    /// An operand that refers to another graph.
    fn refer_to(&mut self, subgraph: Subgraph) -> u32 {
        self.graph.referenced.push(subgraph);
        let index = self.operand(OperandType::SUBGRAPH, &[], OperandLifeTime::Subgraph);
        self.subgraph.operands[index as usize].location.offset = self.graph.referenced.len() as u32 - 1;
        index
    }

    fn operand(&mut self, ty: OperandType, dims: &[u32], lifetime: OperandLifeTime) -> u32 {
        let operands = &mut self.subgraph.operands;
        operands.push(Operand::new(ty, dims).with_lifetime(lifetime));
        operands.len() as u32 - 1
    }

    fn input(&mut self, ty: OperandType, dims: &[u32]) -> u32 {
        let index = self.operand(ty, dims, OperandLifeTime::SubgraphInput);
        self.subgraph.input_indexes.push(index);
        index
    }

    fn output(&mut self, ty: OperandType, dims: &[u32]) -> u32 {
        let index = self.operand(ty, dims, OperandLifeTime::SubgraphOutput);
        self.subgraph.output_indexes.push(index);
        index
    }

    fn constant(&mut self, ty: OperandType, dims: &[u32], value: &[u8]) -> u32 {
        let index = self.operand(ty, dims, OperandLifeTime::ConstantCopy);
        let store = &mut self.graph.operand_values;
        let location = DataLocation {
            pool_index: 0,
            offset: store.len() as u32,
            length: value.len() as u32,
        };
        store.extend_from_slice(value);
        store.resize(store.len().next_multiple_of(4), 0);
        self.subgraph.operands[index as usize].location = location;
        index
    }

    fn operation(&mut self, operation_type: OperationType, inputs: &[u32], outputs: &[u32]) {
        for input in inputs {
            self.subgraph.operands[*input as usize].number_of_consumers += 1;
        }
        self.subgraph.operations.push(Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        });
    }
}
