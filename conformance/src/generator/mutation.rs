//! Models made invalid, or just different, from valid ones.

use std::sync::Arc;

use nnhal_hal::{Model, Operand, OperandLifeTime, OperandType, OperationType, Subgraph, tflite};

use super::choices::Choices;
use super::generated::Generated;

/// A way to break a rule: what it does, and whether it could.
type Breakage = (&'static str, fn(&mut Model, &mut Choices) -> bool);

/// Ways to break a rule that the HAL has for every model, whatever its operations.
const BREAKAGES: &[Breakage] = &[
    ("number_of_consumers is wrong", |model, choices| {
        let operands = &mut any_graph(model, choices).operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].number_of_consumers += 1;
        true
    }),
    (
        "an operation reads an operand that is not there",
        |model, choices| {
            let graph = any_graph(model, choices);
            let count = graph.operands.len() as u32;
            let beyond = [count, u32::MAX, count + 7];
            let operations = &mut graph.operations;
            let at = choices.below(operations.len() as u32) as usize;
            let input = choices.below(operations[at].inputs.len() as u32) as usize;
            operations[at].inputs[input] = beyond[choices.below(3) as usize];
            true
        },
    ),
    (
        "an operation writes an operand that is not there",
        |model, choices| {
            let graph = any_graph(model, choices);
            let count = graph.operands.len() as u32;
            let operations = &mut graph.operations;
            let at = choices.below(operations.len() as u32) as usize;
            operations[at].outputs[0] = count;
            true
        },
    ),
    ("an operand is written twice", |model, choices| {
        let graph = any_graph(model, choices);
        let Some(last) = graph.operations.last().cloned() else {
            return false;
        };
        for input in &last.inputs {
            graph.operands[*input as usize].number_of_consumers += 1;
        }
        graph.operations.push(last);
        true
    }),
    ("operations are out of order", |model, choices| {
        let operations = &mut any_graph(model, choices).operations;
        let at = choices.below(operations.len() as u32) as usize;
        let Some(reader) = (at + 1..operations.len()).find(|later| {
            operations[*later]
                .inputs
                .iter()
                .any(|input| operations[at].outputs.contains(input))
        }) else {
            return false;
        };
        operations.swap(at, reader);
        true
    }),
    ("an operand type does not exist", |model, choices| {
        let operands = &mut any_graph(model, choices).operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].operand_type = OperandType(16 + choices.below(1000));
        true
    }),
    ("an operation does not exist", |model, choices| {
        let operations = &mut any_graph(model, choices).operations;
        let at = choices.below(operations.len() as u32) as usize;
        operations[at].operation_type = OperationType(106 + choices.below(1000));
        true
    }),
    ("a scalar has dimensions", |model, choices| {
        let scalar = any_graph(model, choices)
            .operands
            .iter_mut()
            .find(|operand| operand.operand_type.is_scalar());
        scalar.is_some_and(|operand| {
            operand.dimensions = vec![1];
            true
        })
    }),
    ("a scale is illegal", |model, choices| {
        let operands = &mut any_graph(model, choices).operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].scale = [-1.0, f32::NAN, f32::INFINITY][choices.below(3) as usize];
        true
    }),
    ("a zero point is illegal", |model, choices| {
        let operands = &mut any_graph(model, choices).operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].zero_point = [-129, 65536, i32::MIN][choices.below(3) as usize];
        true
    }),
    ("a constant lies outside of its store", |model, choices| {
        let offset = [u32::MAX, 1 << 30][choices.below(2) as usize];
        let constant = any_graph(model, choices).operands.iter_mut().find(|operand| {
            matches!(
                operand.lifetime,
                OperandLifeTime::ConstantCopy | OperandLifeTime::ConstantReference
            )
        });
        constant.is_some_and(|operand| {
            operand.location.offset = offset;
            true
        })
    }),
    ("a constant has the wrong length", |model, choices| {
        let constant = any_graph(model, choices)
            .operands
            .iter_mut()
            .find(|operand| operand.lifetime == OperandLifeTime::ConstantCopy);
        constant.is_some_and(|operand| {
            operand.location.length -= 1;
            true
        })
    }),
    ("an output is missing from output_indexes", |model, choices| {
        any_graph(model, choices).output_indexes.pop().is_some()
    }),
    ("input_indexes has an operand twice", |model, choices| {
        let indexes = &mut any_graph(model, choices).input_indexes;
        let first = indexes.first().copied();
        indexes.extend(first);
        first.is_some()
    }),
    ("a temporary is never written", |model, choices| {
        let operand = Operand::new(OperandType::TENSOR_FLOAT32, &[1]);
        any_graph(model, choices).operands.push(operand);
        true
    }),
    ("there is no operation", |model, choices| {
        any_graph(model, choices).operations.clear();
        true
    }),
];

/// The main graph or, in a model with control flow, one of those that it refers to.
fn any_graph<'a>(model: &'a mut Model, choices: &mut Choices) -> &'a mut Subgraph {
    let drawn = choices.below(1 + model.referenced.len() as u32) as usize;
    match drawn.checked_sub(1) {
        Some(index) => &mut model.referenced[index],
        None => &mut model.main,
    }
}

/// The model with one rule broken, and which one.
#[must_use]
pub fn break_rule(generated: &Generated, choices: &mut Choices) -> (Generated, &'static str) {
    let first = choices.below(BREAKAGES.len() as u32) as usize;
    // From the one that was drawn on, the first that this model allows; the very first always is.
    let order = BREAKAGES[first..].iter().chain(BREAKAGES);
    for (name, breakage) in order {
        let mut model = Model::clone(&generated.model.model);
        if breakage(&mut model, choices) {
            return (with_model(generated, model), name);
        }
    }
    (generated.clone(), "nothing")
}

/// The model with a few things changed, whatever that makes of it.
#[must_use]
pub fn change(generated: &Generated, choices: &mut Choices) -> Generated {
    let mut model = Model::clone(&generated.model.model);
    let mut changed = generated.clone();
    for _ in 0..=choices.below(3) {
        change_once(&mut model, &mut changed.inputs, choices);
    }
    count_consumers(&mut model);
    changed.model.model = Arc::new(model);
    changed
}

fn with_model(generated: &Generated, model: Model) -> Generated {
    let mut broken = generated.clone();
    broken.model.model = Arc::new(model);
    broken
}

/// Values that overflow something, or just miss it.
const NOTABLE: [i32; 12] = [
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    i32::MAX,
    i32::MIN,
    i32::MIN + 1,
    1 << 30,
    -(1 << 16),
];

fn change_once(model: &mut Model, inputs: &mut [u8], choices: &mut Choices) {
    // Set aside, so that a graph can be changed beside it.
    let mut stored = std::mem::take(&mut model.operand_values);
    change_graph(any_graph(model, choices), (inputs, &mut stored), choices);
    model.operand_values = stored;
}

fn change_graph(graph: &mut Subgraph, (inputs, stored): (&mut [u8], &mut [u8]), choices: &mut Choices) {
    let operand_count = graph.operands.len() as u32;
    let at = choices.below(operand_count) as usize;
    let Some(operand) = graph.operands.get_mut(at) else {
        return;
    };
    let value = choices.pick(&NOTABLE).copied().unwrap_or_default();
    match choices.below(9) {
        0 => {
            // A parameter or some data.
            let bytes = value.to_le_bytes();
            let store = if choices.once_in(2) { inputs } else { stored };
            let words = (store.len() / 4) as u32;
            let word = choices.below(words) as usize * 4;
            if let Some(target) = store.get_mut(word..word + 4) {
                target.copy_from_slice(&bytes);
            }
        }
        1 => {
            let types = OperandType::ALL;
            operand.operand_type = choices
                .pick(types)
                .copied()
                .unwrap_or(OperandType::TENSOR_FLOAT32);
        }
        2 if !operand.dimensions.is_empty() => {
            let axis = choices.below(operand.dimensions.len() as u32) as usize;
            operand.dimensions[axis] = [0, 1, 2, 3, 16, u32::MAX][choices.below(6) as usize];
        }
        3 => operand.dimensions.push(choices.below(3)),
        4 => {
            operand.dimensions.pop();
        }
        5 => operand.scale = [0.0, 1.0, 1e-38, 1e38, 0.5][choices.below(5) as usize],
        6 => operand.zero_point = value,
        7 => {
            let operation = choices.below(graph.operations.len() as u32) as usize;
            let inputs = graph.operations.get_mut(operation).map(|one| &mut one.inputs);
            if let Some(inputs) = inputs.filter(|inputs| !inputs.is_empty()) {
                let input = choices.below(inputs.len() as u32) as usize;
                match choices.below(3) {
                    0 => inputs[input] = choices.below(operand_count),
                    1 => inputs.push(choices.below(operand_count)),
                    _ => {
                        inputs.pop();
                    }
                }
            }
        }
        _ => {
            let operation = choices.below(graph.operations.len() as u32) as usize;
            if let Some(operation) = graph.operations.get_mut(operation) {
                let kinds = if operation.operation_type.is_extension() {
                    tflite::OPERATIONS
                } else {
                    OperationType::ALL
                };
                let kind = choices.pick(kinds).copied();
                operation.operation_type = kind.unwrap_or(OperationType::ADD);
            }
        }
    }
}

/// Corrects what would be refused before anything of interest is looked at.
fn count_consumers(model: &mut Model) {
    for graph in std::iter::once(&mut model.main).chain(&mut model.referenced) {
        for operand in &mut graph.operands {
            operand.number_of_consumers = 0;
        }
        for input in graph.operations.iter().flat_map(|operation| &operation.inputs) {
            if let Some(operand) = graph.operands.get_mut(*input as usize) {
                operand.number_of_consumers += 1;
            }
        }
    }
}
