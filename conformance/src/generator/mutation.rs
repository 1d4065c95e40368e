//! Models made invalid, or just different, from valid ones.

use std::sync::Arc;

use nnhal::hal::{Model, Operand, OperandLifeTime, OperandType, OperationType};

use super::Generated;
use super::choices::Choices;

/// A way to break a rule: what it does, and whether it could.
type Breakage = (&'static str, fn(&mut Model, &mut Choices) -> bool);

/// Ways to break a rule that the HAL has for every model, whatever its operations.
const BREAKAGES: &[Breakage] = &[
    ("number_of_consumers is wrong", |model, choices| {
        let operands = &mut model.main.operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].number_of_consumers += 1;
        true
    }),
    (
        "an operation reads an operand that is not there",
        |model, choices| {
            let count = model.main.operands.len() as u32;
            let beyond = [count, u32::MAX, count + 7];
            let operations = &mut model.main.operations;
            let at = choices.below(operations.len() as u32) as usize;
            let input = choices.below(operations[at].inputs.len() as u32) as usize;
            operations[at].inputs[input] = beyond[choices.below(3) as usize];
            true
        },
    ),
    (
        "an operation writes an operand that is not there",
        |model, choices| {
            let count = model.main.operands.len() as u32;
            let operations = &mut model.main.operations;
            let at = choices.below(operations.len() as u32) as usize;
            operations[at].outputs[0] = count;
            true
        },
    ),
    ("an operand is written twice", |model, _| {
        let Some(last) = model.main.operations.last().cloned() else {
            return false;
        };
        for input in &last.inputs {
            model.main.operands[*input as usize].number_of_consumers += 1;
        }
        model.main.operations.push(last);
        true
    }),
    ("operations are out of order", |model, choices| {
        let operations = &mut model.main.operations;
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
        let operands = &mut model.main.operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].operand_type = OperandType(16 + choices.below(1000));
        true
    }),
    ("an operation does not exist", |model, choices| {
        let operations = &mut model.main.operations;
        let at = choices.below(operations.len() as u32) as usize;
        operations[at].operation_type = OperationType(102 + choices.below(1000));
        true
    }),
    ("a scalar has dimensions", |model, _| {
        let scalar = model
            .main
            .operands
            .iter_mut()
            .find(|operand| operand.operand_type.is_scalar());
        scalar.is_some_and(|operand| {
            operand.dimensions = vec![1];
            true
        })
    }),
    ("a scale is illegal", |model, choices| {
        let operands = &mut model.main.operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].scale = [-1.0, f32::NAN, f32::INFINITY][choices.below(3) as usize];
        true
    }),
    ("a zero point is illegal", |model, choices| {
        let operands = &mut model.main.operands;
        let at = choices.below(operands.len() as u32) as usize;
        operands[at].zero_point = [-129, 65536, i32::MIN][choices.below(3) as usize];
        true
    }),
    ("a constant lies outside of its store", |model, choices| {
        let offset = [u32::MAX, 1 << 30][choices.below(2) as usize];
        let constant = model.main.operands.iter_mut().find(|operand| {
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
    ("a constant has the wrong length", |model, _| {
        let constant = model
            .main
            .operands
            .iter_mut()
            .find(|operand| operand.lifetime == OperandLifeTime::ConstantCopy);
        constant.is_some_and(|operand| {
            operand.location.length -= 1;
            true
        })
    }),
    ("an output is missing from output_indexes", |model, _| {
        model.main.output_indexes.pop().is_some()
    }),
    ("input_indexes has an operand twice", |model, _| {
        let first = model.main.input_indexes.first().copied();
        model.main.input_indexes.extend(first);
        first.is_some()
    }),
    ("a temporary is never written", |model, _| {
        let operand = Operand::new(OperandType::TENSOR_FLOAT32, &[1]);
        model.main.operands.push(operand);
        true
    }),
    ("there is no operation", |model, _| {
        model.main.operations.clear();
        true
    }),
];

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
    let main = &mut model.main;
    let operand_count = main.operands.len() as u32;
    let at = choices.below(operand_count) as usize;
    let Some(operand) = main.operands.get_mut(at) else {
        return;
    };
    let value = choices.pick(&NOTABLE).copied().unwrap_or_default();
    match choices.below(9) {
        0 => {
            // A parameter or some data.
            let bytes = value.to_le_bytes();
            let store = if choices.once_in(2) {
                inputs
            } else {
                &mut model.operand_values[..]
            };
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
            let operation = choices.below(main.operations.len() as u32) as usize;
            let inputs = main.operations.get_mut(operation).map(|one| &mut one.inputs);
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
            let operation = choices.below(main.operations.len() as u32) as usize;
            if let Some(operation) = main.operations.get_mut(operation) {
                operation.operation_type = OperationType(choices.below(102));
            }
        }
    }
}

/// Corrects what would be refused before anything of interest is looked at.
fn count_consumers(model: &mut Model) {
    let main = &mut model.main;
    for operand in &mut main.operands {
        operand.number_of_consumers = 0;
    }
    for input in main.operations.iter().flat_map(|operation| &operation.inputs) {
        if let Some(operand) = main.operands.get_mut(*input as usize) {
            operand.number_of_consumers += 1;
        }
    }
}
