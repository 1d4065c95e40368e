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
