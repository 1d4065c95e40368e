//! DEQUANTIZE and QUANTIZE that follow each other and together only add a number to 8-bit values, as where a
//! network of signed values is given unsigned ones of the same scale.

use nnhal_hal::{OperandType as T, OperationType};

use crate::fast::FusedStep;
use crate::fast::candidate::Candidates;
use crate::fast::elementwise::quantization::{Steps, convert, real};
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::element::Quant8;
use crate::threads::Team;

/// Two operations that add a number.
#[derive(Debug)]
pub(super) struct Offset {
    input: u32,
    /// The types of both.
    types: [T; 2],
    /// What is added; results beyond the type's range are its ends.
    by: i32,
}

impl Offset {
    /// The first two operations, if that is what they do.
    pub(super) fn of(candidates: &Candidates<'_, '_>) -> Option<Offset> {
        let both = candidates.pair()?;
        both[0].elements.filter(|all| both[1].elements == Some(*all))?;
        let [first, second] = both.map(|candidate| &candidate.declared);
        let types = [first, second].map(|declared| declared.operation.operation_type);
        if types != [OperationType::DEQUANTIZE, OperationType::QUANTIZE] {
            return None;
        }
        let (&input, &between) = (first.operation.inputs.first()?, first.operation.outputs.first()?);
        let output = *second.operation.outputs.first()?;
        let [from, float, to] = [input, between, output].map(|operand| first.operands.get(operand as usize));
        let (from, float, to) = (from?, float?, to?);
        if float.operand_type != T::TENSOR_FLOAT32 {
            return None;
        }
        let by = to.zero_point.checked_sub(from.zero_point)?;
        let of = |operand: &nnhal_hal::Operand| (operand.scale, operand.zero_point);
        let adds = match (from.operand_type, to.operand_type) {
            (T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM) => adds::<u8, u8>(of(from), of(to), by),
            (T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED) => adds::<u8, i8>(of(from), of(to), by),
            (T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT8_ASYMM) => adds::<i8, u8>(of(from), of(to), by),
            (T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT8_ASYMM_SIGNED) => {
                adds::<i8, i8>(of(from), of(to), by)
            }
            _ => false,
        };
        adds.then_some(Offset {
            input,
            types: [from.operand_type, to.operand_type],
            by,
        })
    }

    fn add<A: Quant8, B: Quant8>(&self, (input, output): (&[u8], &mut [u8]), team: &Team<'_>) {
        let by = self.by;
        let (input, output) = (
            bytemuck::cast_slice::<_, A>(input),
            bytemuck::cast_slice_mut::<_, B>(output),
        );
        convert((input, output), team, move |value: A| {
            B::saturate(value.to_i32() + by)
        });
    }
}

impl FusedStep for Offset {
    fn name(&self) -> &'static str {
        "8-bit offset, with the next"
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<bool, KernelError> {
        let (Some(input), Some(output)) = (context.inputs.operand(self.input), context.outputs.bytes(0))
        else {
            return Ok(false);
        };
        let (both, team) = ((input, output), context.team);
        match self.types {
            [T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM] => self.add::<u8, u8>(both, team),
            [T::TENSOR_QUANT8_ASYMM, _] => self.add::<u8, i8>(both, team),
            [_, T::TENSOR_QUANT8_ASYMM] => self.add::<i8, u8>(both, team),
            _ => self.add::<i8, i8>(both, team),
        }
        Ok(true)
    }
}

/// Whether every value with one scale and zero point, in the type with the other ones, is the value and this
/// number.
fn adds<A: Quant8, B: Quant8>(from: (f32, i32), to: (f32, i32), by: i32) -> bool {
    let steps = Steps::of::<B>(to.0, to.1);
    (A::LEAST..=A::MOST).all(|value| {
        let exact = B::saturate(steps.nearest(real(value, from)));
        B::saturate(value + by).to_i32() == exact.to_i32()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nnhal_hal::{NoPools, Operand, OperandType as T, OperationType as O, Shape, SubgraphIndex};

    use crate::test_graph::TestGraph;
    use crate::{Execution, KernelSet, Program, RunOptions};

    const OFFSET: &str = "8-bit offset, with the next";

    fn operand(ty: T, (scale, zero_point): (f32, i32)) -> Operand {
        let mut operand = Operand::new(ty, &[256]);
        (operand.scale, operand.zero_point) = (scale, zero_point);
        operand
    }

    /// DEQUANTIZE and QUANTIZE of every byte, beside the reference; returns what computes the first. With
    /// `is_read` what is between them is a result, too.
    fn computed_by(types: [T; 2], from: (f32, i32), to: (f32, i32), is_read: bool) -> &'static str {
        let mut graph = TestGraph::default();
        let input = graph.input(operand(types[0], from));
        let between = graph.operation(O::DEQUANTIZE, &[input], Operand::new(T::TENSOR_FLOAT32, &[256]));
        let output = graph.operation(O::QUANTIZE, &[between], operand(types[1], to));
        let outputs = if is_read {
            vec![output, between]
        } else {
            vec![output]
        };
        let [found, exact] = [KernelSet::Fast, KernelSet::Reference].map(|set| {
            let program = Program::with_kernels(graph.valid(&outputs), &NoPools, set).unwrap();
            let program = Arc::new(program);
            let mut execution = Execution::new(Arc::clone(&program));
            let values = execution.input(0, &Shape::new(&[256]).unwrap()).unwrap();
            for (value, to) in (0..=255).zip(values) {
                *to = value;
            }
            execution.run(&RunOptions::default()).unwrap();
            let bytes = execution.output(0).unwrap().1.to_vec();
            (bytes, program.kernel_name(SubgraphIndex::Main, 0, 1))
        });
        assert!(found.0 == exact.0, "{types:?} {from:?} {to:?}");
        found.1
    }

    #[test]
    fn equal_scales_are_an_offset_in_every_pair_of_types() {
        let [unsigned, signed] = [T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED];
        for scale in [0.007_812_5, 0.037, 1e-6, 300.0] {
            for (types, zeros) in [
                ([unsigned, signed], [128, 0]),
                ([unsigned, signed], [127, 40]),
                ([signed, unsigned], [-128, 0]),
                ([unsigned, unsigned], [3, 250]),
                ([signed, signed], [100, -128]),
            ] {
                let [from, to] = zeros.map(|zero| (scale, zero));
                assert_eq!(computed_by(types, from, to, false), OFFSET);
            }
        }
    }

    #[test]
    fn an_input_of_open_shape_is_refused_as_by_the_reference() {
        for kernels in [KernelSet::Fast, KernelSet::Reference] {
            let mut graph = TestGraph::default();
            let mut input = operand(T::TENSOR_QUANT8_ASYMM, (0.5, 128));
            input.dimensions = vec![0, 0];
            let input = graph.input(input);
            let dims = vec![1, 256];
            let between = graph.operation(O::DEQUANTIZE, &[input], Operand::new(T::TENSOR_FLOAT32, &dims));
            let mut output = operand(T::TENSOR_QUANT8_ASYMM_SIGNED, (0.5, 0));
            output.dimensions = dims;
            let output = graph.operation(O::QUANTIZE, &[between], output);
            let program = Program::with_kernels(graph.valid(&[output]), &NoPools, kernels).unwrap();
            let mut execution = Execution::new(Arc::new(program));
            execution.input(0, &Shape::new(&[16, 16]).unwrap()).unwrap();
            assert!(execution.run(&RunOptions::default()).is_err(), "{kernels:?}");
            execution.input(0, &Shape::new(&[1, 256]).unwrap()).unwrap();
            execution.run(&RunOptions::default()).unwrap();
        }
    }

    #[test]
    fn other_scales_and_results_between_are_not() {
        let types = [T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED];
        assert_ne!(computed_by(types, (0.5, 128), (0.25, 0), false), OFFSET);
        assert_ne!(computed_by(types, (0.5, 128), (0.51, 0), false), OFFSET);
        assert_ne!(computed_by(types, (0.5, 128), (0.5, 0), true), OFFSET);
    }
}
