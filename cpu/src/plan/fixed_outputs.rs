//! Output shapes that are the same in every execution, so that they need not be computed anew each time.

use nnhal_hal::ops::{OperationContext, ShapeRule};
use nnhal_hal::{OperandLifeTime, OperandType, Shape};
use nnhal_os::buffer::OutOfMemory;

use super::declared::Declared;
use crate::kernel::{Value, Values, allowed_size};

/// The outputs of an operation whose shapes follow from declared shapes and constants alone.
#[derive(Clone, Debug)]
pub(crate) struct FixedOutputs {
    /// By output: its shape, and how many bytes it takes.
    outputs: Vec<(Shape, usize)>,
    /// Operands that must have a value for this to hold: a request may leave inputs of the model out.
    needed: Vec<u32>,
}

impl FixedOutputs {
    /// Those of `operation`, if its rule gives them without knowing more than the model.
    pub(crate) fn of(declared: &Declared<'_>, shape: ShapeRule) -> Option<FixedOutputs> {
        let ShapeRule::Infer(rule) = shape else {
            return None;
        };
        let Declared {
            operation, operands, ..
        } = *declared;
        let mut needed = Vec::new();
        for (number, &at) in operation.inputs.iter().enumerate() {
            match declared.input(number) {
                // Every execution has this very shape, since no other is let in.
                Some(input) if input.shape_known && input.bytes.is_none() && is_data(input.ty()) => {
                    needed.push(at);
                }
                Some(input) if input.bytes.is_some() => {}
                None if operands.get(at as usize)?.lifetime == OperandLifeTime::NoValue => {}
                _ => return None,
            }
        }
        let mut shapes = vec![Shape::SCALAR; operation.outputs.len()];
        rule(declared, &mut shapes).ok()?;
        let sized = shapes.into_iter().zip(&operation.outputs).map(|(shape, at)| {
            let operand = operands.get(*at as usize)?;
            // What is not allowed is told when it is executed.
            Some((shape, allowed_size(operand, shape).ok()?))
        });
        Some(FixedOutputs {
            outputs: sized.collect::<Option<_>>()?,
            needed,
        })
    }

    /// The shape of each output.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = Shape> {
        self.outputs.iter().map(|(shape, _)| *shape)
    }

    /// The shape of the output, if there is one only.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match &self.outputs[..] {
            [(shape, _)] => Some(*shape),
            _ => None,
        }
    }

    /// How many elements the output has, if there is one only.
    pub(crate) fn elements(&self) -> Option<usize> {
        self.shape()?.elements().ok()
    }

    /// How many bytes each output takes.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.outputs.iter().map(|(_, bytes)| *bytes)
    }

    /// Those of the last of some nodes, with all that these need from outside.
    pub(crate) fn of_all(all: &[&FixedOutputs], outputs: &[u32]) -> FixedOutputs {
        let mut needed = Vec::new();
        for &operand in all.iter().flat_map(|fixed| &fixed.needed) {
            if !outputs.contains(&operand) && !needed.contains(&operand) {
                needed.push(operand);
            }
        }
        FixedOutputs {
            outputs: all.last().map(|last| last.outputs.clone()).unwrap_or_default(),
            needed,
        }
    }

    /// Whether this execution is as declared.
    #[inline]
    pub(crate) fn apply_to(&self, values: Values<'_>) -> bool {
        self.needed
            .iter()
            .all(|at| values.get(*at as usize).is_some_and(|value| value.present))
    }

    /// Gives the outputs their shapes and memory; `reuse` finds memory for a buffer that is too small.
    #[inline]
    pub(crate) fn give(
        &self,
        outputs: &mut [Value],
        mut reuse: impl FnMut(&mut Value, usize),
    ) -> Result<(), OutOfMemory> {
        for (value, (shape, bytes)) in outputs.iter_mut().zip(&self.outputs) {
            if !value.buffer.resize_within(*bytes) {
                reuse(value, *bytes);
                value.buffer.resize(*bytes)?;
            }
            if value.shared.is_some() {
                value.shared = None;
            }
            value.shape = *shape;
            value.present = true;
        }
        Ok(())
    }
}

/// Whether rules look at no values of such operands: scalars and integers are parameters, which a rule may
/// refuse when they become known.
fn is_data(ty: OperandType) -> bool {
    ty.is_tensor() && ty != OperandType::TENSOR_INT32
}

#[cfg(test)]
mod tests {
    use nnhal_hal::ops;
    use nnhal_hal::{Operand, Operation, OperationType};
    use nnhal_os::buffer::AlignedBuffer;

    use super::*;
    use crate::kernel::Constant;

    fn tensor(dimensions: &[u32]) -> Operand {
        Operand::new(OperandType::TENSOR_FLOAT32, dimensions)
    }

    /// ADD of operands 0 and 1 into 3; operand 2 is the activation, a constant.
    fn add(operands: [Operand; 3]) -> Option<FixedOutputs> {
        let [left, right, output] = operands;
        let activation = Operand::new(OperandType::INT32, &[]);
        let operands = [left, right, activation, output];
        let operation = Operation {
            operation_type: OperationType::ADD,
            inputs: vec![0, 1, 2],
            outputs: vec![3],
        };
        let constant = Constant {
            shape: Shape::SCALAR,
            bytes: AlignedBuffer::copy_of(&[0; 4]).unwrap(),
        };
        let rule = ops::entry(OperationType::ADD).unwrap().shape;
        let declared = Declared {
            operation: &operation,
            operands: &operands,
            constants: &[None, None, Some(constant), None],
        };
        FixedOutputs::of(&declared, rule)
    }

    #[test]
    fn shapes_that_the_model_declares_are_fixed() {
        let fixed = add([tensor(&[2, 3]), tensor(&[3]), tensor(&[2, 3])]).unwrap();
        assert_eq!(fixed.outputs, [(Shape::new(&[2, 3]).unwrap(), 24)]);
        assert_eq!(fixed.needed, [0, 1]);
        let mut values = [Value::default(), Value::default()];
        assert!(!fixed.apply_to(Values::all(&values)));
        values.iter_mut().for_each(|value| value.present = true);
        assert!(fixed.apply_to(Values::all(&values)));
        let mut outputs = [Value::default()];
        let mut asked = 0;
        fixed.give(&mut outputs, |_, bytes| asked = bytes).unwrap();
        assert_eq!((asked, outputs[0].bytes().len()), (24, 24));
        assert!(outputs[0].present);
    }

    #[test]
    fn optional_inputs_are_held_to_the_rule_as_if_they_were_given() {
        let svdf = |bias: &[u32]| {
            let scalar = Operand::new(OperandType::INT32, &[]);
            let mut operands = vec![
                tensor(&[1, 3]),
                tensor(&[4, 3]),
                tensor(&[4, 2]),
                tensor(bias),
                tensor(&[1, 8]),
                scalar.clone(),
                scalar,
                tensor(&[1, 8]),
                tensor(&[1, 2]),
            ];
            for at in [0, 1, 2, 3, 4] {
                operands[at].lifetime = OperandLifeTime::SubgraphInput;
            }
            let operation = Operation {
                operation_type: OperationType::SVDF,
                inputs: (0..7).collect(),
                outputs: vec![7, 8],
            };
            let mut constants: Vec<Option<Constant>> = (0..9).map(|_| None).collect();
            for (at, value) in [(5, 2_u8), (6, 0)] {
                constants[at] = Some(Constant {
                    shape: Shape::SCALAR,
                    bytes: AlignedBuffer::copy_of(&[value, 0, 0, 0]).unwrap(),
                });
            }
            let rule = ops::entry(OperationType::SVDF).unwrap().shape;
            FixedOutputs::of(
                &Declared {
                    operation: &operation,
                    operands: &operands,
                    constants: &constants,
                },
                rule,
            )
        };
        assert!(svdf(&[2]).is_some());
        // For executions the rule tells what is wrong with it, and nothing is computed.
        assert!(svdf(&[1]).is_none());
    }

    #[test]
    fn shapes_that_the_model_leaves_open_are_not() {
        assert!(add([tensor(&[0, 3]), tensor(&[3]), tensor(&[2, 3])]).is_none());
        assert!(add([tensor(&[]), tensor(&[3]), tensor(&[2, 3])]).is_none());
        let mut indexes = tensor(&[2, 3]);
        indexes.operand_type = OperandType::TENSOR_INT32;
        assert!(add([indexes, tensor(&[3]), tensor(&[2, 3])]).is_none());
        // The output may be open: it follows.
        assert!(add([tensor(&[2, 3]), tensor(&[3]), tensor(&[0, 0])]).is_some());
        // What contradicts the model is left for the execution to refuse.
        assert!(add([tensor(&[2, 3]), tensor(&[3]), tensor(&[4, 3])]).is_none());
    }
}
