//! Operations on nothing but constants, computed when the model is made ready: as where a converter casts or
//! transposes weights.

use nnhal_hal::ops::{self, ShapeRule};
use nnhal_hal::{Operand, OperandLifeTime, Operation, OperationType, Shape, tflite};

use super::declared::Declared;
use crate::fast;
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::{
    Constant, Inputs, KernelContext, KernelError, Outputs, Value, Values, allocate, allowed_size,
};
use crate::kernels;
use crate::scratch::Scratch;
use crate::threads::{Team, Threads};

/// Operations whose results differ from one execution to the next, if they are to.
const RANDOM: &[OperationType] = &[
    OperationType::RANDOM_MULTINOMIAL,
    tflite::RANDOM_UNIFORM,
    tflite::RANDOM_STANDARD_NORMAL,
    tflite::MULTINOMIAL,
];

/// What the outputs of an operation are in every execution, if they follow from constants alone and have no
/// more than `room` bytes. An operation that fails is left to the executions, which tell why.
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
    let team = Team::new(Threads::ALONE, 0, interrupt);
    let outcome = kernel(&mut KernelContext {
        inputs,
        outputs: Outputs {
            operation,
            operands,
            values: &mut values,
        },
        scratch: &mut Scratch::default(),
        relaxed,
        team: &team,
    });
    team.outcome()?;
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

/// Whether all that an operation reads are constants, and nothing but operations reads what it computes:
/// always the same.
fn is_of_constants(declared: &Declared<'_>) -> bool {
    let operation = declared.operation;
    let lifetime = |at: &u32| Some(declared.operands.get(*at as usize)?.lifetime);
    let constant = |at: &u32| declared.constants.get(*at as usize).is_some_and(Option::is_some);
    // Steps pack the weights of the others, in the order in which a compilation cache keeps them.
    let is_plain = !fast::packs(operation.operation_type) && !RANDOM.contains(&operation.operation_type);
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
    use nnhal_hal::validate::ValidModel;
    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape, SubgraphIndex};

    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    const EXTENT: u32 = 40;

    fn float(dims: &[u32]) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, dims)
    }

    /// FULLY_CONNECTED with weights that are cast from 16-bit floats, and doubled; with those and the result.
    fn doubled_weights() -> (TestGraph, [u32; 2]) {
        let square = [EXTENT, EXTENT];
        let halves: Vec<f16> = (0..EXTENT * EXTENT)
            .map(|at| f16::from_f32((at * 31 % 23) as f32 - 11.0))
            .collect();
        let mut graph = TestGraph::default();
        let input = graph.input(float(&square));
        let half = Operand::new(OperandType::TENSOR_FLOAT16, &square);
        let half = graph.constant(half, bytemuck::cast_slice(&halves));
        let cast = graph.operation(OperationType::CAST, &[half], float(&square));
        let none = graph.scalar(0);
        let doubled = graph.operation(OperationType::ADD, &[cast, cast, none], float(&square));
        let bias = graph.constant(float(&[EXTENT]), &[0; 4 * EXTENT as usize]);
        let inputs = [input, doubled, bias, none];
        let product = graph.operation(OperationType::FULLY_CONNECTED, &inputs, float(&square));
        (graph, [doubled, product])
    }

    /// The same; if the weights are `read` otherwise too, they are added to the result.
    fn model(is_read: bool) -> Arc<ValidModel> {
        let (mut graph, [doubled, product]) = doubled_weights();
        if !is_read {
            return graph.valid(&[product]);
        }
        let none = graph.scalar(0);
        let sum = graph.operation(
            OperationType::ADD,
            &[product, doubled, none],
            float(&[EXTENT, EXTENT]),
        );
        graph.valid(&[sum])
    }

    fn run(model: &Arc<ValidModel>, kernels: KernelSet) -> (Vec<u8>, Program) {
        let program = Program::with_kernels(Arc::clone(model), &NoPools, kernels).unwrap();
        let mut execution = Execution::new(Arc::new(program));
        let shape = Shape::new(&[EXTENT, EXTENT]).unwrap();
        let input = execution.input(0, &shape).unwrap();
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
            let model = model(is_read);
            let (expected, reference) = run(&model, KernelSet::Reference);
            let (found, program) = run(&model, KernelSet::Fast);
            assert_eq!(found, expected);
            let name = |program: &Program, at| program.kernel_name(SubgraphIndex::Main, at, 1);
            let beforehand = "constant, computed beforehand";
            assert_eq!([0, 1].map(|at| name(&program, at)), [beforehand; 2]);
            assert_eq!(name(&program, 2), "f32 matrix product");
            assert_eq!(name(&reference, 0), "reference");
            // What nothing reads any more is gone: the halves, what they are cast to, and weights that are
            // packed.
            let bytes = |at: usize| {
                let constant = program.plans[0].constants[at].as_ref().unwrap();
                constant.bytes.bytes().len()
            };
            let whole = 4 * (EXTENT * EXTENT) as usize;
            assert_eq!((bytes(1), bytes(2)), (0, 0));
            assert_eq!(bytes(4), if is_read { whole } else { 0 });
            assert_eq!(bytes(3), 4);
        }
    }

    /// An operation on a constant of these dimensions, whose result has none that are declared.
    fn on_constant(graph: &mut TestGraph, operation: OperationType, dims: &[u32], paddings: &[i32]) -> u32 {
        let values: Vec<f32> = (0..dims.iter().product())
            .map(|at: u32| at as f32 + 1.0)
            .collect();
        let mut inputs = vec![graph.constant(float(dims), bytemuck::cast_slice(&values))];
        if !paddings.is_empty() {
            let shape = Operand::new(OperandType::TENSOR_INT32, &[dims.len() as u32, 2]);
            inputs.push(graph.constant(shape, bytemuck::cast_slice(paddings)));
        }
        graph.operation(operation, &inputs, float(&vec![0; dims.len()]))
    }

    /// The output of a model, given its only input if it has one.
    fn output(model: &Arc<ValidModel>, kernels: KernelSet, input: &[f32]) -> Vec<f32> {
        let program = Program::with_kernels(Arc::clone(model), &NoPools, kernels).unwrap();
        let mut execution = Execution::new(Arc::new(program));
        let main = &model.model().main;
        if let Some(at) = main.input_indexes.first() {
            let shape = Shape::new(&main.operands[*at as usize].dimensions).unwrap();
            let bytes = execution.input(0, &shape).unwrap();
            bytes.copy_from_slice(bytemuck::cast_slice(input));
        }
        execution.run(&RunOptions::default()).unwrap();
        bytemuck::cast_slice(execution.output(0).unwrap().1).to_vec()
    }

    #[test]
    fn shapes_of_what_is_computed_beforehand_are_its_own() {
        let mut graph = TestGraph::default();
        let input = graph.input(float(&[2, 3]));
        let negated = on_constant(&mut graph, OperationType::NEG, &[4, 3], &[]);
        let axis = graph.scalar(0);
        let all = graph.operation(
            OperationType::CONCATENATION,
            &[input, negated, axis],
            float(&[0, 3]),
        );
        let model = graph.valid(&[all]);
        let exact = output(&model, KernelSet::Reference, &[0.5; 6]);
        assert_eq!(output(&model, KernelSet::Fast, &[0.5; 6]), exact);
        assert_eq!(exact.len(), 18);
    }

    #[test]
    fn convolution_behind_a_pad_that_is_computed_beforehand_reads_its_result() {
        let mut graph = TestGraph::default();
        let paddings = [0, 0, 1, 1, 1, 1, 0, 0];
        let padded = on_constant(&mut graph, OperationType::PAD, &[1, 4, 4, 2], &paddings);
        let values: Vec<f32> = (0..3 * 3 * 3 * 2).map(|at| at as f32 * 0.25).collect();
        let filter = graph.constant(float(&[3, 3, 3, 2]), bytemuck::cast_slice(&values));
        let bias = graph.constant(float(&[3]), &[0; 12]);
        let scalars = [2, 1, 1, 0].map(|value| graph.scalar(value));
        let inputs = [&[padded, filter, bias][..], &scalars].concat();
        let result = graph.operation(OperationType::CONV_2D, &inputs, float(&[1, 4, 4, 3]));
        let model = graph.valid(&[result]);
        let exact = output(&model, KernelSet::Reference, &[]);
        assert_eq!(output(&model, KernelSet::Fast, &[]), exact);
        assert!(exact.iter().any(|value| *value != 0.0));
    }

    #[test]
    fn what_is_beyond_the_room_is_computed_in_each_execution() {
        let (mut graph, [doubled, product]) = doubled_weights();
        // What is doubled is given another shape, for which there is no room left.
        let whole = EXTENT * EXTENT;
        let shape = Operand::new(OperandType::TENSOR_INT32, &[1]);
        let shape = graph.constant(shape, &whole.to_ne_bytes());
        let flat = graph.operation(OperationType::RESHAPE, &[doubled, shape], float(&[whole]));
        let negated = graph.operation(OperationType::NEG, &[flat], float(&[whole]));
        let model = graph.valid(&[negated, product]);
        let (expected, _) = run(&model, KernelSet::Reference);
        let (found, program) = run(&model, KernelSet::Fast);
        assert_eq!(found, expected);
        let names = [1, 3].map(|at| program.kernel_name(SubgraphIndex::Main, at, 1));
        assert_eq!(names, ["constant, computed beforehand", "reference"]);
    }

    /// CAST of constant 16-bit floats, as DEQUANTIZE of files becomes.
    fn widened(graph: &mut TestGraph, halves: &[f16], dims: &[u32]) -> u32 {
        let half = Operand::new(OperandType::TENSOR_FLOAT16, dims);
        let half = graph.constant(half, bytemuck::cast_slice(halves));
        graph.operation(OperationType::CAST, &[half], float(dims))
    }

    /// All outputs of a model, given its inputs with their dimensions.
    fn outputs(
        model: &Arc<ValidModel>,
        kernels: KernelSet,
        inputs: &[(&[u32], &[f32])],
    ) -> (Vec<Vec<f32>>, Arc<Program>) {
        let program = Arc::new(Program::with_kernels(Arc::clone(model), &NoPools, kernels).unwrap());
        let mut execution = Execution::new(Arc::clone(&program));
        for (index, (dims, values)) in inputs.iter().enumerate() {
            let bytes = execution.input(index, &Shape::new(dims).unwrap()).unwrap();
            bytes.copy_from_slice(bytemuck::cast_slice(values));
        }
        execution.run(&RunOptions::default()).unwrap();
        let count = model.model().main.output_indexes.len();
        let output = |index| bytemuck::cast_slice(execution.output(index).unwrap().1).to_vec();
        ((0..count).map(output).collect(), program)
    }

    fn assert_same_bits(found: &[f32], expected: impl Iterator<Item = f32>, what: &str) {
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let are_alike = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(
                are_alike,
                "{what} of half {at:#06x}: {found:e}, expected {expected:e}"
            );
        }
    }

    /// Subnormal ones, infinities, both zeros and NaNs are among them, and two operations read what becomes
    /// of them.
    #[test]
    fn every_16_bit_float_is_widened_beforehand_to_its_value() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let dims = [all.len() as u32];
        // Whether the wide values are an output, too, so that they cannot be constants.
        for is_output in [false, true] {
            let mut graph = TestGraph::default();
            let (x, y) = (graph.input(float(&[1])), graph.input(float(&[1])));
            let values = widened(&mut graph, &all, &dims);
            let none = graph.scalar(0);
            let sum = graph.operation(OperationType::ADD, &[x, values, none], float(&dims));
            let product = graph.operation(OperationType::MUL, &[values, y, none], float(&dims));
            let model = match is_output {
                false => graph.valid(&[sum, product]),
                true => graph.valid(&[sum, product, values]),
            };
            for kernels in [KernelSet::Reference, KernelSet::Fast] {
                let (found, program) = outputs(&model, kernels, &[(&[1], &[1.0]), (&[1], &[-2.0])]);
                let exact = || all.iter().map(|half| half.to_f32());
                assert_same_bits(&found[0], exact().map(|value| 1.0 + value), "the sum");
                assert_same_bits(&found[1], exact().map(|value| value * -2.0), "the product");
                if is_output {
                    assert_same_bits(&found[2], exact(), "the value");
                }
                let is_beforehand = kernels == KernelSet::Fast && !is_output;
                let name = if is_beforehand {
                    "constant, computed beforehand"
                } else {
                    "reference"
                };
                assert_eq!(program.kernel_name(SubgraphIndex::Main, 0, 1), name);
            }
        }
    }

    #[test]
    fn two_layers_share_weights_of_16_bit_floats() {
        // A row that picks each weight by a product with 1: what sums begin with and go on with are zeros.
        let rows: Vec<f32> = (0..EXTENT * EXTENT)
            .map(|at| f32::from(u8::from(at % (EXTENT + 1) == 0)))
            .collect();
        let finite = (0..=u16::MAX).map(f16::from_bits).filter(|half| half.is_finite());
        let halves: Vec<f16> = finite.step_by(39).take((EXTENT * EXTENT) as usize).collect();
        let subnormal = halves
            .iter()
            .filter(|half| **half != f16::ZERO && !half.is_normal());
        assert!(subnormal.count() > 40);
        for is_output in [false, true] {
            let mut graph = TestGraph::default();
            let dims = [EXTENT, EXTENT];
            let x = graph.input(float(&dims));
            let weights = widened(&mut graph, &halves, &dims);
            let bias = graph.constant(float(&[EXTENT]), &[0; 4 * EXTENT as usize]);
            let [none, relu] = [0, 1].map(|code| graph.scalar(code));
            let mut layer = |activation| {
                let inputs = [x, weights, bias, activation];
                graph.operation(OperationType::FULLY_CONNECTED, &inputs, float(&dims))
            };
            let mut results = vec![layer(none), layer(relu)];
            if is_output {
                results.push(weights);
            }
            let model = graph.valid(&results);
            let (found, _) = outputs(&model, KernelSet::Fast, &[(&dims, &rows)]);
            for (number, found) in found.iter().enumerate() {
                let value = |row: u32, column: u32| match number {
                    0 => halves[(column * EXTENT + row) as usize].to_f32() + 0.0,
                    1 => halves[(column * EXTENT + row) as usize].to_f32().max(0.0) + 0.0,
                    _ => halves[(row * EXTENT + column) as usize].to_f32(),
                };
                let expected = (0..EXTENT).flat_map(|row| (0..EXTENT).map(move |column| value(row, column)));
                assert_same_bits(found, expected, &format!("output {number}"));
            }
        }
    }

    #[test]
    fn programs_are_restored_with_what_is_computed_beforehand() {
        let model = model(false);
        let (expected, program) = run(&model, KernelSet::Fast);
        let kept = program.compiled().unwrap();
        assert!(kept.replaced.is_empty(), "no constant of the model is a filter");
        let compiled = kept.joined();
        let restored = Program::restore(
            Arc::clone(&model),
            &NoPools,
            nnhal_os::buffer::AlignedBuffer::copy_of(&compiled)
                .unwrap()
                .into(),
            &crate::NeverInterrupted,
        );
        let mut execution = Execution::new(Arc::new(restored.unwrap()));
        let input = execution
            .input(0, &Shape::new(&[EXTENT, EXTENT]).unwrap())
            .unwrap();
        for (at, value) in input.chunks_exact_mut(4).enumerate() {
            value.copy_from_slice(&((at * 7 % 19) as f32).to_ne_bytes());
        }
        execution.run(&RunOptions::default()).unwrap();
        assert_eq!(execution.output(0).unwrap().1, expected);
    }
}
