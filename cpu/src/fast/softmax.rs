//! SOFTMAX of 32-bit floats along the last axis.

use nnhal::hal::{OperandType, OperationType};
use nnhal::ops::{OperationContext, ShapeIssue, shapes};

use super::exponential::exp;
use super::serves::Serves;
use super::simd::{Instructions, LANES, Work, dispatch};
use super::{PlannedStep, REFERENCE};
use crate::executor::Declared;
use crate::kernel::{Kernel, KernelContext, KernelError};

/// SOFTMAX with exponentials that are computed side by side; its error beside the reference is within 1e-6.
#[derive(Debug)]
pub(super) struct SoftmaxStep {
    serves: Serves,
    /// For other types and axes.
    fallback: Kernel,
}

impl SoftmaxStep {
    /// The step of an operation, if it is a softmax and may be executed as one that it takes.
    pub(super) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<SoftmaxStep> {
        let serves = Serves::if_so(is_along_last(declared));
        let is_softmax = declared.operation.operation_type == OperationType::SOFTMAX;
        (is_softmax && serves != Serves::Never).then_some(SoftmaxStep { serves, fallback })
    }
}

/// Whether values that are neighbours share: those along the last axis.
fn is_along_last(context: &dyn OperationContext) -> Result<bool, ShapeIssue> {
    let axis = context.i32_or(2, -1)?;
    if axis == -1 {
        return Ok(true);
    }
    let input = context.required(0)?;
    if !input.rank_known {
        return Err(ShapeIssue::Unknown);
    }
    let rank = input.shape.rank();
    Ok(shapes::resolve_axis(2, axis, rank)? + 1 == rank)
}

impl PlannedStep for SoftmaxStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => self
                .serves
                .name("f32 softmax", "f32 softmax, reference on other axes"),
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        let is_float = input.ty() == OperandType::TENSOR_FLOAT32 && !input.bytes.is_empty();
        let length = match input.shape.dims().last() {
            Some(length) if is_float && is_along_last(context.inputs.rules())? => *length as usize,
            _ => return (self.fallback)(context),
        };
        dispatch(Softmax {
            beta: context.inputs.f32(1)?,
            length,
            input: input.data()?,
            output: context.outputs.data(0)?,
        });
        Ok(())
    }
}

struct Softmax<'a> {
    beta: f32,
    length: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Work for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let lanes = self.output.chunks_exact_mut(self.length);
        for (input, output) in self.input.chunks_exact(self.length).zip(lanes) {
            let largest = fold(
                input,
                f32::NEG_INFINITY,
                |most, value| {
                    if value > most { value } else { most }
                },
            );
            for (result, value) in output.iter_mut().zip(input) {
                *result = exp::<S>((*value - largest) * self.beta);
            }
            let share = 1.0 / fold(output, 0.0, |sum, value| sum + value);
            output.iter_mut().for_each(|result| *result *= share);
        }
    }
}

/// Combines all values, as many side by side as a vector has lanes.
#[inline(always)]
fn fold(values: &[f32], start: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let (whole, rest) = values.as_chunks::<LANES>();
    let mut lanes = [start; LANES];
    for values in whole {
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = combine(*lane, *value);
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(start, |total, value| combine(total, *value))
}

#[cfg(test)]
mod tests {
    use nnhal::hal::{OperandType, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    #[test]
    fn shares_are_those_of_the_reference() {
        let values: Vec<f32> = (0..3 * 21).map(|at| (at * 29 % 41) as f32 - 20.0).collect();
        for (axis, beta) in [(-1, 1.0_f32), (1, 0.3), (0, 1.0)] {
            let compute = |kernels| {
                OneOperation::new(OperationType::SOFTMAX)
                    .tensor(OperandType::TENSOR_FLOAT32, &[3, 21], &values)
                    .f32(beta)
                    .i32(axis)
                    .output(OperandType::TENSOR_FLOAT32, &[3, 21])
                    .run_by(kernels, &RunOptions::default())
                    .unwrap()
                    .remove(0)
                    .data::<f32>()
            };
            let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
            let close = |(found, exact): (&f32, &f32)| (found - exact).abs() < 1e-6;
            assert!(found.iter().zip(&exact).all(close), "{axis}");
        }
    }
}
