//! Operations on nothing but constants, computed when the model is made ready: as where a converter casts or transposes weights.

use nnhal::hal::{Operand, OperandLifeTime, Operation, OperationType, Shape};
use nnhal::ops::{self, ShapeRule};

use super::declared::Declared;
use super::{Interrupt, Interrupted};
use crate::buffer::Scratch;
use crate::fast;
use crate::kernel::{
    Constant, Inputs, KernelContext, KernelError, Outputs, Value, Values, allocate, allowed_size,
};
use crate::kernels;
use crate::threads::{Team, Threads};

/// What the outputs of an operation are in every execution, if they follow from constants alone and have no more than `room`
/// bytes. An operation that fails is left to the executions, which tell why.
///
/// # Errors
/// `interrupt`, which kernels ask.
pub(super) fn fold(
    declared: &Declared<'_>,
    room: usize,
    relaxed: bool,
    interrupt: &dyn Interrupt,
) -> Result<Option<Vec<Constant>>, Interrupted> {
    let Declared {
        operation,
        operands,
        constants,
    } = *declared;
    let (Some(kernel), Some(entry)) = (
        kernels::kernel(operation.operation_type),
        ops::entry(operation.operation_type),
    ) else {
        return Ok(None);
    };
    let ShapeRule::Infer(rule) = entry.shape else {
        return Ok(None);
    };
    if !is_of_constants(declared) {
        return Ok(None);
    }
    let inputs = Inputs {
        operation,
        operands,
        constants,
        values: Values::all(&[]),
    };
    let mut shapes = vec![Shape::SCALAR; operation.outputs.len()];
    if rule(&inputs, &mut shapes).is_err() {
        return Ok(None);
    }
    let Some(mut values) = sized((operation, operands), &shapes, room) else {
        return Ok(None);
    };
    let outcome = kernel(&mut KernelContext {
        inputs,
        outputs: Outputs {
            operation,
            operands,
            values: &mut values,
        },
        scratch: &mut Scratch::default(),
        relaxed,
        interrupt,
        team: &Team::new(Threads::ALONE, 0),
    });
    match outcome {
        Ok(()) => {}
        Err(KernelError::Interrupted(interrupted)) => return Err(interrupted),
        Err(_) => return Ok(None),
    }
    let folded = values.into_iter().map(|value| {
        value.present.then_some(Constant {
            shape: value.shape,
            bytes: value.buffer,
        })
    });
    Ok(folded.collect())
}

/// Whether all that an operation reads are constants, and nothing but operations reads what it computes: always the same.
fn is_of_constants(declared: &Declared<'_>) -> bool {
    let operation = declared.operation;
    let lifetime = |at: &u32| Some(declared.operands.get(*at as usize)?.lifetime);
    let constant = |at: &u32| declared.constants.get(*at as usize).is_some_and(Option::is_some);
    // Steps pack the weights of the others, in the order in which a compilation cache keeps them.
    let is_plain = !fast::packs(operation.operation_type)
        && operation.operation_type != OperationType::RANDOM_MULTINOMIAL;
    let mut inputs = operation.inputs.iter();
    let mut outputs = operation.outputs.iter();
    is_plain
        && operation.inputs.iter().any(constant)
        && inputs.all(|at| constant(at) || lifetime(at) == Some(OperandLifeTime::NoValue))
        && outputs.all(|at| lifetime(at) == Some(OperandLifeTime::TemporaryVariable))
}

/// Memory for outputs of these shapes, if it is no more than `room` bytes.
fn sized(
    (operation, operands): (&Operation, &[Operand]),
    shapes: &[Shape],
    room: usize,
) -> Option<Vec<Value>> {
    let outputs = || operation.outputs.iter().zip(shapes);
    let operand = |at: &u32| operands.get(*at as usize);
    let bytes: Option<Vec<usize>> = outputs()
        .map(|(at, shape)| allowed_size(operand(at)?, *shape).ok())
        .collect();
    let total = bytes?.into_iter().fold(0, usize::saturating_add);
    if total > room {
        return None;
    }
    let value = |(at, shape): (&u32, &Shape)| {
        let mut value = Value::default();
        allocate(&mut value, operand(at)?, *shape).ok()?;
        Some(value)
    };
    outputs().map(value).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use half::f16;
    use nnhal::hal::{
        DataLocation, Model, NoPools, Operand, OperandLifeTime, OperandType, Operation, OperationType, Shape,
        Subgraph, SubgraphIndex,
    };
    use nnhal::validate::ValidModel;

    use crate::{Execution, KernelSet, Program, RunOptions};

    const EXTENT: u32 = 40;

    /// FULLY_CONNECTED with weights that are cast from 16-bit floats, doubled, and, if they are `read` otherwise too, added to
    /// the result of a second one.
    fn model(is_read: bool) -> Model {
        use OperandLifeTime::{ConstantCopy, SubgraphInput, SubgraphOutput, TemporaryVariable};
        let mut model = Model::default();
        let mut operands = Vec::new();
        let mut push = |ty, dims: &[u32], lifetime, bytes: &[u8], consumers| {
            let mut operand = Operand::new(ty, dims).with_lifetime(lifetime);
            operand.number_of_consumers = consumers;
            if lifetime == ConstantCopy {
                operand.location = DataLocation {
                    pool_index: 0,
                    offset: model.operand_values.len() as u32,
                    length: bytes.len() as u32,
                };
                model.operand_values.extend(bytes);
            }
            operands.push(operand);
            operands.len() as u32 - 1
        };
        let float = OperandType::TENSOR_FLOAT32;
        let square = [EXTENT, EXTENT];
        let halves: Vec<f16> = (0..EXTENT * EXTENT)
            .map(|at| f16::from_f32((at * 31 % 23) as f32 - 11.0))
            .collect();
        let input = push(float, &square, SubgraphInput, &[], 1);
        let half = push(
            OperandType::TENSOR_FLOAT16,
            &square,
            ConstantCopy,
            bytemuck::cast_slice(&halves),
            1,
        );
        let cast = push(float, &square, TemporaryVariable, &[], 2);
        let none = push(
            OperandType::INT32,
            &[],
            ConstantCopy,
            &[0; 4],
            if is_read { 3 } else { 2 },
        );
        let doubled = push(
            float,
            &square,
            TemporaryVariable,
            &[],
            if is_read { 2 } else { 1 },
        );
        let bias = push(float, &[EXTENT], ConstantCopy, &[0; 4 * EXTENT as usize], 1);
        let lifetime = if is_read {
            TemporaryVariable
        } else {
            SubgraphOutput
        };
        let product = push(float, &square, lifetime, &[], u32::from(is_read));
        let operation = |operation_type, inputs: &[u32], output| Operation {
            operation_type,
            inputs: inputs.to_vec(),
            outputs: vec![output],
        };
        let mut operations = vec![
            operation(OperationType::CAST, &[half], cast),
            operation(OperationType::ADD, &[cast, cast, none], doubled),
            operation(
                OperationType::FULLY_CONNECTED,
                &[input, doubled, bias, none],
                product,
            ),
        ];
        let mut last = product;
        if is_read {
            last = push(float, &square, SubgraphOutput, &[], 0);
            operations.push(operation(OperationType::ADD, &[product, doubled, none], last));
        }
        model.main = Subgraph {
            operands,
            operations,
            input_indexes: vec![input],
            output_indexes: vec![last],
        };
        model
    }

    fn run(model: &Arc<ValidModel>, kernels: KernelSet) -> (Vec<u8>, Program) {
        let program = Program::with_kernels(Arc::clone(model), &NoPools, kernels).unwrap();
        let mut execution = Execution::new(Arc::new(program));
        let shape = Shape::new(&[EXTENT, EXTENT]).unwrap();
        let input = execution.input(0, shape).unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&((at * 7 % 19) as f32).to_ne_bytes());
        }
        execution.run(&RunOptions::default()).unwrap();
        let output = execution.output(0).unwrap().1.to_vec();
        let program = Arc::clone(execution.program());
        drop(execution);
        (output, Arc::into_inner(program).unwrap())
    }

    #[test]
    fn operations_on_constants_are_computed_beforehand() {
        for is_read in [false, true] {
            let model = Arc::new(ValidModel::new(Arc::new(model(is_read)), &NoPools, &[]).unwrap());
            let (expected, reference) = run(&model, KernelSet::Reference);
            let (found, program) = run(&model, KernelSet::Fast);
            assert_eq!(found, expected);
            let name = |program: &Program, at| program.kernel_name(SubgraphIndex::Main, at);
            let beforehand = "constant, computed beforehand";
            assert_eq!([0, 1].map(|at| name(&program, at)), [beforehand; 2]);
            assert_eq!(name(&program, 2), "f32 matrix product");
            assert_eq!(name(&reference, 0), "reference");
            // What nothing reads any more is gone: the halves, what they are cast to, and weights that are packed.
            let bytes = |at: usize| {
                let constant = program.graphs[0].constants[at].as_ref().unwrap();
                constant.bytes.bytes().len()
            };
            let whole = 4 * (EXTENT * EXTENT) as usize;
            assert_eq!((bytes(1), bytes(2)), (0, 0));
            assert_eq!(bytes(4), if is_read { whole } else { 0 });
            assert_eq!(bytes(3), 4);
        }
    }

    /// An operation on a constant of these dimensions, whose result has none that are declared, and the one behind it that
    /// `then` gives.
    fn two_operations(
        (operation, dims, paddings): (OperationType, &[u32], &[i32]),
        then: impl FnOnce(&mut Vec<Operand>, &mut Model, u32) -> Operation,
    ) -> Arc<ValidModel> {
        let mut model = Model::default();
        let mut operands = Vec::new();
        let count = dims.iter().product::<u32>();
        let values: Vec<f32> = (0..count).map(|at| at as f32 + 1.0).collect();
        let float = OperandType::TENSOR_FLOAT32;
        let shape = Operand::new(float, dims);
        let mut inputs = vec![constant(
            (&mut operands, &mut model),
            shape,
            bytemuck::cast_slice(&values),
        )];
        if !paddings.is_empty() {
            let shape = Operand::new(OperandType::TENSOR_INT32, &[dims.len() as u32, 2]);
            let paddings = bytemuck::cast_slice(paddings);
            inputs.push(constant((&mut operands, &mut model), shape, paddings));
        }
        let undeclared = vec![0; dims.len()];
        let mut result = Operand::new(float, &undeclared).with_lifetime(OperandLifeTime::TemporaryVariable);
        result.number_of_consumers = 1;
        operands.push(result);
        let result = operands.len() as u32 - 1;
        let second = then(&mut operands, &mut model, result);
        let is_input = |at: &u32| operands[*at as usize].lifetime == OperandLifeTime::SubgraphInput;
        model.main = Subgraph {
            input_indexes: (0..operands.len() as u32).filter(is_input).collect(),
            output_indexes: second.outputs.clone(),
            operations: vec![
                Operation {
                    operation_type: operation,
                    inputs,
                    outputs: vec![result],
                },
                second,
            ],
            operands,
        };
        Arc::new(ValidModel::new(Arc::new(model), &NoPools, &[]).unwrap())
    }

    fn constant(
        (operands, model): (&mut Vec<Operand>, &mut Model),
        mut operand: Operand,
        bytes: &[u8],
    ) -> u32 {
        operand.lifetime = OperandLifeTime::ConstantCopy;
        operand.number_of_consumers = 1;
        operand.location = DataLocation {
            pool_index: 0,
            offset: model.operand_values.len() as u32,
            length: bytes.len() as u32,
        };
        model.operand_values.extend(bytes);
        operands.push(operand);
        operands.len() as u32 - 1
    }

    /// The output of a model, given its only input if it has one.
    fn output(model: &Arc<ValidModel>, kernels: KernelSet, input: &[f32]) -> Vec<f32> {
        let program = Program::with_kernels(Arc::clone(model), &NoPools, kernels).unwrap();
        let mut execution = Execution::new(Arc::new(program));
        let main = &model.model().main;
        if let Some(at) = main.input_indexes.first() {
            let shape = Shape::new(&main.operands[*at as usize].dimensions).unwrap();
            let bytes = execution.input(0, shape).unwrap();
            bytes.copy_from_slice(bytemuck::cast_slice(input));
        }
        execution.run(&RunOptions::default()).unwrap();
        bytemuck::cast_slice(execution.output(0).unwrap().1).to_vec()
    }

    #[test]
    fn shapes_of_what_is_computed_beforehand_are_its_own() {
        let negation = (OperationType::NEG, &[4, 3][..], &[][..]);
        let model = two_operations(negation, |operands, model, result| {
            let float = OperandType::TENSOR_FLOAT32;
            let mut input = Operand::new(float, &[2, 3]).with_lifetime(OperandLifeTime::SubgraphInput);
            input.number_of_consumers = 1;
            operands.push(input);
            let input = operands.len() as u32 - 1;
            let axis = Operand::new(OperandType::INT32, &[]);
            let axis = constant((operands, model), axis, &0_i32.to_ne_bytes());
            operands.push(Operand::new(float, &[0, 3]).with_lifetime(OperandLifeTime::SubgraphOutput));
            Operation {
                operation_type: OperationType::CONCATENATION,
                inputs: vec![input, result, axis],
                outputs: vec![operands.len() as u32 - 1],
            }
        });
        let exact = output(&model, KernelSet::Reference, &[0.5; 6]);
        assert_eq!(output(&model, KernelSet::Fast, &[0.5; 6]), exact);
        assert_eq!(exact.len(), 18);
    }

    #[test]
    fn convolution_behind_a_pad_that_is_computed_beforehand_reads_its_result() {
        let pad = (
            OperationType::PAD,
            &[1, 4, 4, 2][..],
            &[0, 0, 1, 1, 1, 1, 0, 0][..],
        );
        let model = two_operations(pad, |operands, model, result| {
            let float = OperandType::TENSOR_FLOAT32;
            let values: Vec<f32> = (0..3 * 3 * 3 * 2).map(|at| at as f32 * 0.25).collect();
            let filter = Operand::new(float, &[3, 3, 3, 2]);
            let mut inputs = vec![
                result,
                constant((operands, model), filter, bytemuck::cast_slice(&values)),
                constant((operands, model), Operand::new(float, &[3]), &[0; 12]),
            ];
            for value in [2_i32, 1, 1, 0] {
                let scalar = Operand::new(OperandType::INT32, &[]);
                inputs.push(constant((operands, model), scalar, &value.to_ne_bytes()));
            }
            let result = Operand::new(float, &[1, 4, 4, 3]);
            operands.push(result.with_lifetime(OperandLifeTime::SubgraphOutput));
            Operation {
                operation_type: OperationType::CONV_2D,
                inputs,
                outputs: vec![operands.len() as u32 - 1],
            }
        });
        let exact = output(&model, KernelSet::Reference, &[]);
        assert_eq!(output(&model, KernelSet::Fast, &[]), exact);
        assert!(exact.iter().any(|value| *value != 0.0));
    }

    #[test]
    fn what_is_beyond_the_room_is_computed_in_each_execution() {
        let mut network = model(false);
        let mut operands = std::mem::take(&mut network.main.operands);
        // What is doubled is given another shape, for which there is no room left.
        let doubled = 4;
        let whole = EXTENT * EXTENT;
        let shape = Operand::new(OperandType::TENSOR_INT32, &[1]);
        let shape = constant((&mut operands, &mut network), shape, &whole.to_ne_bytes());
        operands[doubled as usize].number_of_consumers += 1;
        let flat = Operand::new(OperandType::TENSOR_FLOAT32, &[whole]);
        let mut temporary = flat.clone().with_lifetime(OperandLifeTime::TemporaryVariable);
        temporary.number_of_consumers = 1;
        operands.push(temporary);
        operands.push(flat.with_lifetime(OperandLifeTime::SubgraphOutput));
        let main = &mut network.main;
        main.operands = operands;
        for (operation_type, inputs, output) in [
            (OperationType::RESHAPE, vec![doubled, shape], shape + 1),
            (OperationType::NEG, vec![shape + 1], shape + 2),
        ] {
            main.operations.push(Operation {
                operation_type,
                inputs,
                outputs: vec![output],
            });
        }
        main.output_indexes.insert(0, shape + 2);
        let model = Arc::new(ValidModel::new(Arc::new(network), &NoPools, &[]).unwrap());
        let (expected, _) = run(&model, KernelSet::Reference);
        let (found, program) = run(&model, KernelSet::Fast);
        assert_eq!(found, expected);
        let names = [1, 3].map(|at| program.kernel_name(SubgraphIndex::Main, at));
        assert_eq!(names, ["constant, computed beforehand", "reference"]);
    }

    #[test]
    fn programs_are_restored_with_what_is_computed_beforehand() {
        let model = Arc::new(ValidModel::new(Arc::new(model(false)), &NoPools, &[]).unwrap());
        let (expected, program) = run(&model, KernelSet::Fast);
        let kept = program.compiled().unwrap();
        assert!(kept.replaced.is_empty(), "no constant of the model is a filter");
        let compiled = kept.parts.concat();
        let restored = Program::restore(
            Arc::clone(&model),
            &NoPools,
            crate::AlignedBuffer::copy_of(&compiled).unwrap().into(),
            &crate::executor::NeverInterrupted,
        );
        let mut execution = Execution::new(Arc::new(restored.unwrap()));
        let input = execution
            .input(0, Shape::new(&[EXTENT, EXTENT]).unwrap())
            .unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&((at * 7 % 19) as f32).to_ne_bytes());
        }
        execution.run(&RunOptions::default()).unwrap();
        assert_eq!(execution.output(0).unwrap().1, expected);
    }
}
