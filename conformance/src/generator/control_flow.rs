//! Draws IF and WHILE with the graphs that they run: branches and bodies that keep type and shape of one tensor, and
//! loops that end.

use nnhal::hal::{
    DataLocation, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape, Subgraph,
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

fn add_value(graph: &mut Graph, operand: Operand, value: nnhal_cpu::AlignedBuffer, role: Role) -> u32 {
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
    let then_graph = body.branch(graph, choices);
    let then_graph = refer_to(graph, then_graph);
    let else_graph = if choices.once_in(3) {
        refer_again(graph)
    } else {
        let branch = body.branch(graph, choices);
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
    let step = body.step(graph, choices);
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

/// What branches and loop bodies compute on.
struct Body {
    operand_type: OperandType,
    /// As the graphs declare them; none leaves the rank open.
    dims: Vec<u32>,
}

impl Body {
    /// From a tensor to one of the same type and shape.
    fn branch(&self, graph: &mut Graph, choices: &mut Choices) -> Subgraph {
        let mut small = Small::new(&mut graph.operand_values);
        let input = small.input(self.operand_type, &self.dims);
        self.chain(&mut small, choices, input);
        small.subgraph
    }

    /// A few operations from `input` to an output of the graph.
    fn chain(&self, small: &mut Small<'_>, choices: &mut Choices, input: u32) {
        let mut last = input;
        let more = choices.below(3);
        for left in (0..=more).rev() {
            let output = if left == 0 {
                small.output(self.operand_type, &self.dims)
            } else {
                small.operand(self.operand_type, &self.dims, OperandLifeTime::TemporaryVariable)
            };
            match choices.below(3) {
                0 => small.operation(OperationType::ABS, &[last], output),
                1 => small.operation(OperationType::NEG, &[last], output),
                _ => small.operation(OperationType::MAXIMUM, &[last, input], output),
            }
            last = output;
        }
    }

    /// Whether the counter is below `limit`.
    fn condition(&self, graph: &mut Graph, limit: i32) -> Subgraph {
        let mut small = Small::new(&mut graph.operand_values);
        let counter = small.input(OperandType::TENSOR_INT32, &[1]);
        small.input(self.operand_type, &self.dims);
        let limit = small.constant(OperandType::TENSOR_INT32, &[1], limit);
        let output = small.output(OperandType::TENSOR_BOOL8, &[1]);
        small.operation(OperationType::LESS, &[counter, limit], output);
        small.subgraph
    }

    /// Counts one up and computes on the tensor.
    fn step(&self, graph: &mut Graph, choices: &mut Choices) -> Subgraph {
        let mut small = Small::new(&mut graph.operand_values);
        let counter = small.input(OperandType::TENSOR_INT32, &[1]);
        let tensor = small.input(self.operand_type, &self.dims);
        let one = small.constant(OperandType::TENSOR_INT32, &[1], 1);
        let none = small.constant(OperandType::INT32, &[], 0);
        let counted = small.output(OperandType::TENSOR_INT32, &[1]);
        small.operation(OperationType::ADD, &[counter, one, none], counted);
        self.chain(&mut small, choices, tensor);
        small.subgraph
    }
}

/// A graph to refer to, while it is built.
struct Small<'a> {
    subgraph: Subgraph,
    operand_values: &'a mut Vec<u8>,
}

impl Small<'_> {
    fn new(operand_values: &mut Vec<u8>) -> Small<'_> {
        Small {
            subgraph: Subgraph::default(),
            operand_values,
        }
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

    fn constant(&mut self, ty: OperandType, dims: &[u32], value: i32) -> u32 {
        let index = self.operand(ty, dims, OperandLifeTime::ConstantCopy);
        let location = DataLocation {
            pool_index: 0,
            offset: self.operand_values.len() as u32,
            length: 4,
        };
        self.operand_values.extend_from_slice(&value.to_le_bytes());
        self.subgraph.operands[index as usize].location = location;
        index
    }

    fn operation(&mut self, operation_type: OperationType, inputs: &[u32], output: u32) {
        for input in inputs {
            self.subgraph.operands[*input as usize].number_of_consumers += 1;
        }
        self.subgraph.operations.push(Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        });
    }
}
