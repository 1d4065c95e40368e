//! Element-wise operations on two operands of few floats, with all looked up beforehand that can be known of them: computing
//! such an operation takes less than the executor's general way to it.

use nnhal::hal::{OperandType, Shape};
use nnhal::ops::OperationContext;

use super::elementwise::{Binary, cut, known_range};
use crate::executor::Declared;
use crate::kernel::Value;

/// More elements than these are left to the loops over vectors.
const MOST_ELEMENTS: usize = 7;

/// An operation whose result has few elements.
#[derive(Debug)]
pub(crate) struct Few {
    binary: Binary,
    /// What results are cut to.
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

    /// Computes it among the values of its graph; says whether it did, which it does once the result has memory, if all that it
    /// reads is there.
    #[inline]
    pub(crate) fn run(&self, values: &mut [Value]) -> bool {
        let mut results = [0.0; MOST_ELEMENTS];
        let [left, right] = &self.operands;
        let (Some(left), Some(right)) = (left.data(values), right.data(values)) else {
            return false;
        };
        let results = &mut results[..self.elements];
        for (number, result) in results.iter_mut().enumerate() {
            let of = |data: &[f32]| data[if data.len() == 1 { 0 } else { number }];
            *result = cut(
                self.binary.combine(of(left), of(right)),
                self.range.0,
                self.range.1,
            );
        }
        self.give(values, results)
    }

    #[inline(always)]
    fn give(&self, values: &mut [Value], results: &[f32]) -> bool {
        let value = values.get_mut(self.output);
        let Some(value) = value.filter(|value| value.shared.is_none()) else {
            return false;
        };
        if !value.buffer.resize_within(size_of_val(results)) {
            return false;
        }
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
    use nnhal::hal::{Operand, OperandType, OperationType, Shape};

    use super::MOST_ELEMENTS;
    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    const BINARY: [OperationType; 7] = [
        OperationType::ADD,
        OperationType::SUB,
        OperationType::MUL,
        OperationType::DIV,
        OperationType::MAXIMUM,
        OperationType::MINIMUM,
        OperationType::PRELU,
    ];

    /// The sizes of two operands, and which of them is constant, if one is.
    type Case = ([u32; 2], Option<usize>);

    fn operand(length: u32) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, &[length])
    }

    fn values(length: u32, seed: u32) -> Vec<f32> {
        (0..length)
            .map(|at| ((at * 7 + seed * 5) % 11) as f32 - 4.5)
            .collect()
    }

    /// An execution of `operation` and which of its operands are inputs.
    fn execution(
        operation: OperationType,
        (lengths, constant): Case,
        kernels: KernelSet,
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
        if ![
            OperationType::MAXIMUM,
            OperationType::MINIMUM,
            OperationType::PRELU,
        ]
        .contains(&operation)
        {
            // RELU6, which cuts at both ends.
            operands.push(graph.scalar(3));
        }
        let most = lengths[0].max(lengths[1]);
        let output = graph.operation(operation, &operands, operand(most));
        let program = Program::with_kernels(graph.valid(&[output]), &nnhal::hal::NoPools, kernels).unwrap();
        (Execution::new(program.into()), inputs)
    }

    /// Runs three times, so that results have memory, with other values each time.
    fn results(operation: OperationType, case: Case, kernels: KernelSet) -> Vec<Vec<f32>> {
        let (mut execution, inputs) = execution(operation, case, kernels);
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
                bytemuck::cast_slice(execution.output(0).unwrap().1).to_vec()
            })
            .collect()
    }

    #[test]
    fn results_are_the_references() {
        let lengths = [[1, 1], [1, 4], [4, 1], [3, 3], [7, 7], [7, 1], [8, 8], [1, 9]];
        for operation in BINARY {
            for lengths in lengths {
                for constant in [None, Some(0), Some(1)] {
                    let of = |kernels| results(operation, (lengths, constant), kernels);
                    let (found, expected) = (of(KernelSet::Fast), of(KernelSet::Reference));
                    assert_eq!(found, expected, "{operation} {lengths:?} {constant:?}");
                }
            }
        }
    }

    #[test]
    fn it_serves_few_elements_that_are_not_repeated_along_an_axis() {
        let is_few = |lengths, constant| {
            let (execution, _) = execution(OperationType::ADD, (lengths, constant), KernelSet::Fast);
            execution.program().has_few(0)
        };
        assert!(is_few([1, 1], None) && is_few([1, 7], Some(0)) && is_few([7, 7], Some(1)));
        let more = MOST_ELEMENTS as u32 + 1;
        assert!(!is_few([more, 1], None) && !is_few([more, more], None));
    }

    #[test]
    fn an_input_that_is_left_out_is_told() {
        let (mut execution, _) = execution(OperationType::ADD, ([2, 2], None), KernelSet::Fast);
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
