//! M01, M09, M14 and M23: the order of execution, and who writes what.

use std::sync::Arc;

use nnhal_hal::{
    DataLocation, Model, Operand, OperandLifeTime, OperandType, Operation, OperationType, Subgraph,
};

use super::mutant::{Mutant, Place};

/// M01: an operation that reads a written operand goes first; one whose output is read goes last.
pub(super) fn execution_order(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    let operations = &model.main.operations;
    let reads = |reader: &Operation, writer: &Operation| {
        writer.outputs.iter().any(|output| reader.inputs.contains(output))
    };
    for (at, operation) in operations.iter().enumerate() {
        let reads_written = operations.iter().any(|writer| reads(operation, writer));
        let is_read = operations.iter().any(|reader| reads(reader, operation));
        for (wanted, to) in [(reads_written, 0), (is_read, operations.len() - 1)] {
            if !wanted {
                continue;
            }
            let mut model = model.clone();
            let moved = model.main.operations.remove(at);
            model.main.operations.insert(to, moved);
            emit(Mutant {
                change: format!("operation {at} goes to place {to}"),
                places: (0..model.main.operations.len()).map(Place::Operation).collect(),
                model,
            });
        }
    }
}

/// M09: a copy of an operation, behind all others, writes one of the same outputs.
pub(super) fn second_writer(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for kept in 0..operation.outputs.len() {
            let mut model = model.clone();
            let main = &mut model.main;
            let mut copy = operation.clone();
            for input in &copy.inputs {
                main.operands[*input as usize].number_of_consumers += 1;
            }
            for (number, output) in copy.outputs.iter_mut().enumerate() {
                if number != kept {
                    let fresh = fresh_temporary(&main.operands[*output as usize]);
                    *output = main.operands.len() as u32;
                    main.operands.push(fresh);
                }
            }
            main.operations.push(copy);
            emit(Mutant {
                change: format!("a copy of operation {at} writes its output {kept} again"),
                places: vec![Place::Operation(main.operations.len() - 1)],
                model,
            });
        }
    }
}

/// M14: an output goes to a fresh temporary although the old operand is read, or given back.
pub(super) fn write_removed(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operation) in model.main.operations.iter().enumerate() {
        for (number, output) in operation.outputs.iter().enumerate() {
            let old = &model.main.operands[*output as usize];
            if old.number_of_consumers == 0 && old.lifetime != OperandLifeTime::SubgraphOutput {
                continue;
            }
            let fresh = fresh_temporary(old);
            let mut model = model.clone();
            model.main.operations[at].outputs[number] = model.main.operands.len() as u32;
            model.main.operands.push(fresh);
            emit(Mutant {
                change: format!("output {number} of operation {at} goes elsewhere"),
                places: vec![Place::Operand(*output as usize)],
                model,
            });
        }
    }
}

/// An operand like this one that nobody reads.
fn fresh_temporary(operand: &Operand) -> Operand {
    let mut fresh = operand.clone().with_lifetime(OperandLifeTime::TemporaryVariable);
    fresh.number_of_consumers = 0;
    fresh
}

/// M23: three additions, the second and third feeding each other.
#[must_use]
pub fn cycle() -> Arc<Model> {
    let tensor = |lifetime, consumers| {
        let mut operand = Operand::new(OperandType::TENSOR_FLOAT32, &[1]).with_lifetime(lifetime);
        operand.number_of_consumers = consumers;
        operand
    };
    let mut activation = Operand::new(OperandType::INT32, &[]).with_lifetime(OperandLifeTime::ConstantCopy);
    activation.number_of_consumers = 3;
    activation.location = DataLocation {
        pool_index: 0,
        offset: 0,
        length: 4,
    };
    let add = |first, second, sum| Operation {
        operation_type: OperationType::ADD,
        inputs: vec![first, second, 4],
        outputs: vec![sum],
    };
    Arc::new(Model {
        main: Subgraph {
            operands: vec![
                tensor(OperandLifeTime::SubgraphInput, 2),
                tensor(OperandLifeTime::TemporaryVariable, 1),
                tensor(OperandLifeTime::TemporaryVariable, 2),
                tensor(OperandLifeTime::SubgraphOutput, 0),
                activation,
                tensor(OperandLifeTime::SubgraphInput, 1),
            ],
            operations: vec![add(0, 2, 1), add(1, 0, 2), add(2, 5, 3)],
            input_indexes: vec![0, 5],
            output_indexes: vec![3],
        },
        operand_values: vec![0; 4],
        ..Model::default()
    })
}
