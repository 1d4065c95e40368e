//! M11 to M13 and M15 to M20: operations and their argument lists.

use nnhal_hal::{Model, Operand, OperandLifeTime, OperandType, OperationType};

use super::legal;
use super::mutant::{Mutant, Place};

/// Emits the model with a change to operation `at`, whose consumers are then counted anew.
fn emit_changed(
    model: &Model,
    emit: &mut dyn FnMut(Mutant),
    (at, change): (usize, String),
    mutate: impl FnOnce(&mut Model),
) {
    let mut model = model.clone();
    mutate(&mut model);
    count_consumers(&mut model);
    emit(Mutant {
        change: format!("operation {at} {change}"),
        model,
        places: vec![Place::Operation(at)],
    });
}

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

/// M11: the last fundamental operation and one, around the OEM operation, and one of an extension that the
/// model does not name.
pub(super) fn unknown_operation(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for at in 0..model.main.operations.len() {
        let unnamed = OperationType::extension(1, 0);
        for code in [106, 9999, 10001, unnamed.0] {
            emit_changed(model, emit, (at, format!("becomes {code}")), |model| {
                model.main.operations[at].operation_type = OperationType(code);
            });
        }
    }
}

/// M12: an input that is one past the operands.
pub(super) fn input_index(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for number in 0..operation.inputs.len() {
            emit_changed(
                model,
                emit,
                (at, format!("reads past the operands as input {number}")),
                |model| {
                    model.main.operations[at].inputs[number] = model.main.operands.len() as u32;
                },
            );
        }
    }
}

/// M13: an output that is one past the operands.
pub(super) fn output_index(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for number in 0..operation.outputs.len() {
            emit_changed(
                model,
                emit,
                (at, format!("writes past the operands as output {number}")),
                |model| {
                    model.main.operations[at].outputs[number] = model.main.operands.len() as u32;
                },
            );
        }
    }
}

/// M15: an operand goes from the table and from every list; the indexes above it come down.
pub(super) fn operand_removed(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for at in 0..model.main.operands.len() {
        let uses = legal::uses(model, at);
        let still_legal = uses.iter().all(|argument| {
            if argument.is_output {
                legal::fewer_outputs(argument.operation)
            } else {
                legal::shorter_list(argument)
            }
        });
        if still_legal {
            continue;
        }
        let operations = model.main.operations.iter().enumerate();
        let users = operations.filter(|(_, operation)| {
            operation.inputs.contains(&(at as u32)) || operation.outputs.contains(&(at as u32))
        });
        let places = users.map(|(index, _)| Place::Operation(index)).collect();
        let mut model = model.clone();
        remove_operand(&mut model, at as u32);
        emit(Mutant {
            change: format!("operand {at} goes"),
            model,
            places,
        });
    }
}

fn remove_operand(model: &mut Model, removed: u32) {
    let main = &mut model.main;
    main.operands.remove(removed as usize);
    let lists = main
        .operations
        .iter_mut()
        .flat_map(|operation| [&mut operation.inputs, &mut operation.outputs])
        .chain([&mut main.input_indexes, &mut main.output_indexes]);
    for list in lists {
        list.retain(|index| *index != removed);
        for index in list.iter_mut().filter(|index| **index > removed) {
            *index -= 1;
        }
    }
}

/// M16: an operation goes.
pub(super) fn operation_removed(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for at in 0..model.main.operations.len() {
        let mut model = model.clone();
        let removed = model.main.operations.remove(at);
        count_consumers(&mut model);
        let unwritten = removed
            .outputs
            .iter()
            .map(|output| Place::Operand(*output as usize));
        let places = match model.main.operations.len() {
            0 => vec![Place::Graph],
            _ => unwritten.collect(),
        };
        emit(Mutant {
            change: format!("operation {at} goes"),
            model,
            places,
        });
    }
}

/// M17: an input goes, those behind it move up.
pub(super) fn input_removed(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for number in 0..operation.inputs.len() {
            let argument = legal::Argument {
                operation: operation.operation_type,
                is_output: false,
                number,
                inputs: operation.inputs.len(),
            };
            if !legal::shorter_list(&argument) {
                emit_changed(model, emit, (at, format!("loses input {number}")), |model| {
                    model.main.operations[at].inputs.remove(number);
                });
            }
        }
    }
}

/// M18: an output goes, those behind it move up.
pub(super) fn output_removed(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for (number, output) in operation.outputs.iter().enumerate() {
            let mut model = model.clone();
            model.main.operations[at].outputs.remove(number);
            emit(Mutant {
                change: format!("operation {at} loses output {number}"),
                model,
                places: vec![Place::Operation(at), Place::Operand(*output as usize)],
            });
        }
    }
}

/// M19: a 32-bit integer from the request as one more input.
pub(super) fn input_added(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        if legal::longer_list(operation.operation_type, operation.inputs.len()) {
            continue;
        }
        emit_changed(model, emit, (at, "gets one more input".into()), |model| {
            let main = &mut model.main;
            let index = main.operands.len() as u32;
            let added = Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::SubgraphInput);
            main.operands.push(added);
            main.input_indexes.push(index);
            main.operations[at].inputs.push(index);
        });
    }
}

/// M20: a 32-bit integer that the model gives back as one more output.
pub(super) fn output_added(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for at in 0..model.main.operations.len() {
        emit_changed(model, emit, (at, "gets one more output".into()), |model| {
            let main = &mut model.main;
            let index = main.operands.len() as u32;
            let added = Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::SubgraphOutput);
            main.operands.push(added);
            main.output_indexes.push(index);
            main.operations[at].outputs.push(index);
        });
    }
}
