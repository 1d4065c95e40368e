//! Element-wise operations on two operands of few floats, with all looked up beforehand that can be known of them: computing
//! such an operation takes less than the executor's general way to it.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{OperandType, Shape};

use super::elementwise::{Binary, clamp, known_range};
use crate::executor::Declared;
use crate::kernel::Value;

/// More elements than these are left to the loops over vectors.
const MOST_ELEMENTS: usize = 7;

/// An operation whose result has few elements.
#[derive(Debug)]
pub(crate) struct Few {
    binary: Binary,
    /// What results are clamped to.
    range: (f32, f32),
    operands: [Source; 2],
    /// The operand that it gives, and what that is in every execution.
    output: usize,
    shape: Shape,
    elements: usize,
}

/// An operand that it reads, of one element or of as many as the result.
#[derive(Debug)]
struct Source {
    place: Place,
    length: usize,
}

#[derive(Debug)]
enum Place {
    Operand(usize),
    Constant([f32; MOST_ELEMENTS]),
}

impl Few {
    /// The operation of `declared`, if it is one whose result is known to have this shape and few elements.
    pub(crate) fn of(declared: &Declared<'_>, shape: Shape) -> Option<Few> {
        let binary = Binary::of(declared.operation.operation_type)?;
        let elements = shape.elements().ok()?;
        let &[output] = &declared.operation.outputs[..] else {
            return None;
        };
        if !(1..=MOST_ELEMENTS).contains(&elements) {
            return None;
        }
        Some(Few {
            binary,
            range: known_range(binary, declared)?,
            operands: [
                Source::of(declared, 0, elements)?,
                Source::of(declared, 1, elements)?,
            ],
            output: output as usize,
            shape,
            elements,
        })
    }

    /// Computes it among the values of its graph; says whether it did, which it does if all that it reads is there and its
    /// result has memory. `reuse` looks for some where that is too small: temporaries give theirs back after each run.
    #[inline]
    pub(crate) fn run(&self, values: &mut [Value], reuse: impl FnOnce(&mut Value, usize)) -> bool {
        let bytes = self.elements * size_of::<f32>();
        let Some(value) = values.get_mut(self.output) else {
            return false;
        };
        if !value.buffer.resize_within(bytes) {
            reuse(value, bytes);
            if !value.buffer.resize_within(bytes) {
                return false;
            }
        }
        self.compute(values)
    }

    #[inline(always)]
    fn compute(&self, values: &mut [Value]) -> bool {
        if self.elements == 1 {
            return self.compute_one(values);
        }
        let mut results = [0.0; MOST_ELEMENTS];
        let [left, right] = &self.operands;
        let (Some(left), Some(right)) = (left.data(values), right.data(values)) else {
            return false;
        };
        let results = &mut results[..self.elements];
        for (number, result) in results.iter_mut().enumerate() {
            let of = |data: &[f32]| data[if data.len() == 1 { 0 } else { number }];
            *result = clamp(
                self.binary.combine(of(left), of(right)),
                self.range.0,
                self.range.1,
            );
        }
        self.give(values, results)
    }

    /// The same of one element each, without loops and lengths.
    #[inline(always)]
    fn compute_one(&self, values: &mut [Value]) -> bool {
        let [left, right] = &self.operands;
        let (Some(left), Some(right)) = (left.first(values), right.first(values)) else {
            return false;
        };
        let result = clamp(self.binary.combine(left, right), self.range.0, self.range.1);
        self.give(values, &[result])
    }

    #[inline(always)]
    fn give(&self, values: &mut [Value], results: &[f32]) -> bool {
        let value = values.get_mut(self.output);
        let Some(value) = value.filter(|value| value.shared.is_none()) else {
            return false;
        };
        match (value.buffer.bytes_mut().as_chunks_mut().0, results) {
            // Calling what copies many takes longer than this.
            ([bytes], [result]) => *bytes = result.to_ne_bytes(),
            (bytes, results) => bytes
                .iter_mut()
                .zip(results)
                .for_each(|(bytes, result)| *bytes = result.to_ne_bytes()),
        }
        value.shape = self.shape;
        value.present = true;
        true
    }
}

impl Source {
    fn of(declared: &Declared<'_>, number: usize, results: usize) -> Option<Source> {
        let input = declared.input(number)?;
        let length = input.shape.elements().ok()?;
        let is_known = input.ty() == OperandType::TENSOR_FLOAT32 && input.shape_known;
        if !is_known || (length != 1 && length != results) {
            return None;
        }
        let place = match input.bytes {
            Some(bytes) => {
                let mut values = [0.0; MOST_ELEMENTS];
                for (value, bytes) in values.iter_mut().zip(bytes.as_chunks().0) {
                    *value = f32::from_ne_bytes(*bytes);
                }
                Place::Constant(values)
            }
            None => Place::Operand(*declared.operation.inputs.get(number)? as usize),
        };
        Some(Source { place, length })
    }

    /// The first element; `None` if the operand has no value.
    #[inline(always)]
    fn first(&self, values: &[Value]) -> Option<f32> {
        match &self.place {
            Place::Constant([first, ..]) => Some(*first),
            Place::Operand(at) => {
                let value = values.get(*at).filter(|value| value.present)?;
                value
                    .bytes()
                    .first_chunk()
                    .map(|bytes| f32::from_ne_bytes(*bytes))
            }
        }
    }

    /// The elements; `None` if the operand has no value.
    #[inline(always)]
    fn data<'a>(&'a self, values: &'a [Value]) -> Option<&'a [f32]> {
        let data = match &self.place {
            Place::Constant(values) => &values[..],
            Place::Operand(at) => {
                let value = values.get(*at).filter(|value| value.present)?;
                bytemuck::try_cast_slice(value.bytes()).ok()?
            }
        };
        data.get(..self.length)
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{NoPools, Operand, OperandType, OperationType, Shape};

    use super::MOST_ELEMENTS;
    use crate::kernel::Value;
    use crate::test_graph::TestGraph;
    use crate::{AlignedBuffer, Execution, KernelSet, Program, RunOptions};

    const BINARY: [OperationType; 7] = [
        OperationType::ADD,
        OperationType::SUB,
        OperationType::MUL,
        OperationType::DIV,
        OperationType::MAXIMUM,
        OperationType::MINIMUM,
        OperationType::PRELU,
    ];

    const VALUES: [f32; 13] = [
        1.5,
        -2.0,
        0.0,
        -0.0,
        7.25,
        f32::NAN,
        f32::INFINITY,
        -3.0,
        f32::NEG_INFINITY,
        0.5,
        1e-40,
        100.0,
        -1.0,
    ];

    /// The sizes of two operands, and which of them is constant, if one is.
    type Case = ([u32; 2], Option<usize>);

    fn operand(length: u32) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, &[length])
    }

    fn values(length: u32, seed: u32) -> Vec<f32> {
        let values = (0..length).map(|at| VALUES[((at * 7 + seed * 5) % 13) as usize]);
        values.collect()
    }

    /// Bits, with one for all NaNs.
    fn bits(values: &[f32]) -> Vec<u32> {
        let bits = |value: &f32| {
            if value.is_nan() {
                f32::NAN.to_bits()
            } else {
                value.to_bits()
            }
        };
        values.iter().map(bits).collect()
    }

    /// An execution of `operation` and which of its operands are inputs. Its result is a temporary that something reads, if that is
    /// wanted.
    fn execution(
        operation: OperationType,
        (lengths, constant): Case,
        (kernels, is_temporary): (KernelSet, bool),
    ) -> (Execution, Vec<usize>) {
        let mut graph = TestGraph::default();
        let mut inputs = Vec::new();
        let mut operands: Vec<u32> = (0..2)
            .map(|number| {
                let length = lengths[number];
                if constant == Some(number) {
                    let data = values(length, number as u32);
                    return graph.constant(operand(length), bytemuck::cast_slice(&data));
                }
                inputs.push(number);
                graph.input(operand(length))
            })
            .collect();
        let has_activation = ![
            OperationType::MAXIMUM,
            OperationType::MINIMUM,
            OperationType::PRELU,
        ]
        .contains(&operation);
        if has_activation {
            // RELU1, which clamps at both ends.
            operands.push(graph.scalar(2));
        }
        let most = lengths[0].max(lengths[1]);
        let mut output = graph.operation(operation, &operands, operand(most));
        if is_temporary {
            let sizes = graph.constant(
                Operand::new(OperandType::TENSOR_INT32, &[1]),
                &2_i32.to_ne_bytes(),
            );
            output = graph.operation(OperationType::TILE, &[output, sizes], operand(2 * most));
        }
        let program = Program::with_kernels(graph.valid(&[output]), &NoPools, kernels).unwrap();
        (Execution::new(program.into()), inputs)
    }

    /// Runs three times, so that results have memory, with other values each time.
    fn results(operation: OperationType, case: Case, how: (KernelSet, bool)) -> Vec<Vec<u32>> {
        let (mut execution, inputs) = execution(operation, case, how);
        (0..3)
            .map(|round| {
                for (index, &number) in inputs.iter().enumerate() {
                    let length = case.0[number];
                    let shape = Shape::new(&[length]).unwrap();
                    let data = values(length, number as u32 + 3 * round);
                    let input = execution.input(index, &shape).unwrap();
                    input.copy_from_slice(bytemuck::cast_slice(&data));
                }
                execution.run(&RunOptions::default()).unwrap();
                bits(bytemuck::cast_slice(execution.output(0).unwrap().1))
            })
            .collect()
    }

    #[test]
    fn results_are_the_references() {
        let lengths = [[1, 1], [1, 4], [4, 1], [3, 3], [7, 7], [7, 1], [8, 8], [1, 9]];
        for operation in BINARY {
            for lengths in lengths {
                for constant in [None, Some(0), Some(1)] {
                    for is_temporary in [false, true] {
                        let case = (lengths, constant);
                        let of = |kernels| results(operation, case, (kernels, is_temporary));
                        let (found, expected) = (of(KernelSet::Fast), of(KernelSet::Reference));
                        assert_eq!(found, expected, "{operation} {case:?} {is_temporary}");
                    }
                }
            }
        }
    }

    #[test]
    fn it_serves_few_elements_that_are_not_repeated_along_an_axis() {
        let is_few = |lengths, constant| {
            let how = (KernelSet::Fast, false);
            let (execution, _) = execution(OperationType::ADD, (lengths, constant), how);
            execution.program().few(0).is_some()
        };
        assert!(is_few([1, 1], None) && is_few([1, 7], Some(0)) && is_few([7, 7], Some(1)));
        let more = MOST_ELEMENTS as u32 + 1;
        assert!(!is_few([more, 1], None) && !is_few([more, more], None));
    }

    #[test]
    fn it_computes_what_has_memory_or_gets_some() {
        let how = (KernelSet::Fast, false);
        let (execution, _) = execution(OperationType::MAXIMUM, ([2, 1], Some(0)), how);
        let few = execution.program().few(0).unwrap();
        let main = &execution.program().model().model().main;
        let mut values: Vec<Value> = main.operands.iter().map(|_| Value::default()).collect();
        let grow = |value: &mut Value, bytes| value.buffer.resize(bytes).unwrap();
        assert!(!few.run(&mut values, grow), "without its input");
        let input = &mut values[main.input_indexes[0] as usize];
        grow(input, 4);
        input.buffer.bytes_mut().copy_from_slice(&0.25_f32.to_ne_bytes());
        input.present = true;
        let output = main.output_indexes[0] as usize;
        values[output] = Value::default();
        assert!(!few.run(&mut values, |_, _| {}) && !values[output].present);
        assert!(few.run(&mut values, grow) && values[output].present);
        assert_eq!(values[output].shape.dims(), [2]);
        // The constant is 1.5 and -3.
        let results: &[f32] = bytemuck::cast_slice(values[output].bytes());
        assert_eq!(results, [1.5, 0.25]);
    }

    /// `(x + x) * x` and so on: so many operations on two floats, one after the other.
    fn chain(operations: u32) -> Execution {
        let mut graph = TestGraph::default();
        let (input, activation) = (graph.input(operand(2)), graph.scalar(0));
        let mut last = input;
        for number in 0..operations {
            let operation = [OperationType::ADD, OperationType::MUL][number as usize % 2];
            last = graph.operation(operation, &[last, input, activation], operand(2));
        }
        let program = Program::with_kernels(graph.valid(&[last]), &NoPools, KernelSet::Fast).unwrap();
        Execution::new(program.into())
    }

    #[test]
    fn small_models_are_run_without_questions() {
        let shape = Shape::new(&[2]).unwrap();
        let mut execution = chain(3);
        assert!(execution.is_small());
        assert!(!execution.run_small(), "without its input");
        for values in [[2.0_f32, -0.5], [3.0, 1.0], [0.0, 7.0]] {
            let input = execution.input(0, &shape).unwrap();
            input.copy_from_slice(bytemuck::cast_slice(&values));
            let expected = values.map(|x| (x + x) * x + x);
            let is_expected = |execution: &Execution| {
                let (found, bytes) = execution.output(0).unwrap();
                assert_eq!((found, bytes), (&shape, bytemuck::cast_slice(&expected)));
            };
            assert!(execution.run_small());
            is_expected(&execution);
            // In the general way, which takes the memory of temporaries, in between.
            execution.run(&RunOptions::default()).unwrap();
            is_expected(&execution);
        }
        execution.release_memory();
        assert!(!execution.run_small());
    }

    #[test]
    fn models_are_small_that_have_few_operations_on_few_elements_in_their_own_memory() {
        assert!(chain(1).is_small() && chain(16).is_small() && !chain(17).is_small());
        let how = (KernelSet::Fast, true);
        let (execution, _) = execution(OperationType::ADD, ([2, 2], None), how);
        assert!(!execution.is_small(), "TILE is none of them");
        let mut borrowing = chain(1);
        let mut memory = AlignedBuffer::new();
        memory.resize(8).unwrap();
        let shape = Shape::new(&[2]).unwrap();
        borrowing.bind_input(0, shape, memory.into()).unwrap();
        assert!(!borrowing.is_small());
        borrowing.run(&RunOptions::default()).unwrap();
        assert!(borrowing.is_small());
    }

    #[test]
    fn an_input_that_is_left_out_is_told() {
        let how = (KernelSet::Fast, false);
        let (mut execution, _) = execution(OperationType::ADD, ([2, 2], None), how);
        let shape = Shape::new(&[2]).unwrap();
        for _ in 0..2 {
            execution.input(0, &shape).unwrap().fill(0);
            execution.input(1, &shape).unwrap().fill(0);
            execution.run(&RunOptions::default()).unwrap();
        }
        execution.omit_input(1).unwrap();
        let error = execution.run(&RunOptions::default()).unwrap_err();
        assert!(error.to_string().contains("omitted"), "{error}");
    }
}
