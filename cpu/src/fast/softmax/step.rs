//! SOFTMAX along the last axis: of 32-bit floats here, of 8-bit values in [`super::quantized`].

use nnhal_hal::ops::{OperationContext, ShapeIssue, shapes};
use nnhal_hal::{OperandType, OperationType};

use super::quantized::{QuantizedLanes, QuantizedSoftmax};
use crate::fast::elementwise::quantized_operands::is_of_8_bits;
use crate::fast::exponential::exp;
use crate::fast::serves::Serves;
use crate::fast::simd::{Instructions, LANES, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE, partition};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::element::is_signed_8_bit;
use crate::plan::Declared;
use crate::threads::Cost;

/// SOFTMAX with exponentials that are computed side by side, whose error beside the reference is within 1e-6,
/// or that are taken from a table.
#[derive(Debug)]
pub(in crate::fast) struct SoftmaxStep {
    serves: Serves,
    /// The table for 8-bit values, if beta is known beforehand.
    quantized: Option<Box<QuantizedSoftmax>>,
    /// For other types and axes.
    fallback: Kernel,
}

impl SoftmaxStep {
    /// The step of an operation, if it is a softmax and may be executed as one that it takes.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<SoftmaxStep> {
        let serves = Serves::if_so(is_along_last(declared));
        let is_softmax = declared.operation.operation_type == OperationType::SOFTMAX;
        (is_softmax && serves != Serves::Never).then(|| SoftmaxStep {
            serves,
            quantized: known_table(declared).map(Box::new),
            fallback,
        })
    }
}

/// The table of an operation on 8-bit values whose beta is known beforehand.
fn known_table(declared: &Declared<'_>) -> Option<QuantizedSoftmax> {
    let context: &dyn OperationContext = declared;
    let input = declared.input(0).filter(|input| is_of_8_bits(input.ty()))?;
    let beta = context.f32(1).ok()?;
    let is_signed = is_signed_8_bit(input.ty());
    Some(QuantizedSoftmax::new(beta, input.operand.scale, is_signed))
}

/// Whether values that are neighbours share: those along the last axis.
pub(in crate::fast) fn is_along_last(context: &dyn OperationContext) -> Result<bool, ShapeIssue> {
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

/// About how many operations a share takes.
const OPERATIONS: usize = 16;

impl PlannedStep for SoftmaxStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => self
                .serves
                .name("f32 softmax", "f32 softmax, reference on other axes"),
            ty if is_of_8_bits(ty) => self
                .serves
                .name("8-bit softmax", "8-bit softmax, reference on other axes"),
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        let is_float = input.ty() == OperandType::TENSOR_FLOAT32;
        let is_served = (is_float || is_of_8_bits(input.ty())) && !input.bytes.is_empty();
        let length = match input.shape.dims().last() {
            Some(length) if is_served && is_along_last(context.inputs.rules())? => *length as usize,
            _ => return (self.fallback)(context),
        };
        if is_float {
            return run_floats(context, length);
        }
        match &self.quantized {
            Some(softmax) => run_bytes(context, length, softmax),
            None => {
                let is_signed = is_signed_8_bit(input.ty());
                let softmax = QuantizedSoftmax::new(context.inputs.f32(1)?, input.scale(), is_signed);
                run_bytes(context, length, &softmax)
            }
        }
    }
}

/// Shares of lanes of so many floats.
fn run_floats(context: &mut KernelContext<'_>, length: usize) -> Result<(), KernelError> {
    let (beta, input) = (context.inputs.f32(1)?, context.inputs.data::<f32>(0)?);
    for_each_part(context, length, |first, output| {
        dispatch(Softmax {
            beta,
            length,
            input: &input[first..],
            output,
        });
    })
}

/// Shares of lanes of so many bytes.
fn run_bytes(
    context: &mut KernelContext<'_>,
    length: usize,
    softmax: &QuantizedSoftmax,
) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?.bytes;
    for_each_part(context, length, |first, output| {
        dispatch(QuantizedLanes {
            softmax,
            length,
            input: &input[first..],
            output,
        });
    })
}

/// Has threads compute whole lanes of the output, each from an element on.
fn for_each_part<T: bytemuck::Pod + Send>(
    context: &mut KernelContext<'_>,
    length: usize,
    compute: impl Fn(usize, &mut [T]) + Sync,
) -> Result<(), KernelError> {
    let output = context.outputs.data::<T>(0)?;
    let cost = Cost {
        multiply_adds: (OPERATIONS * output.len()) as u64,
        bytes: 2 * size_of_val(output) as u64,
    };
    partition::for_each_part((context.team, cost), (output, length), |elements, output| {
        compute(elements.start, output);
    });
    Ok(())
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
            let largest = largest(input);
            for (result, value) in output.iter_mut().zip(input) {
                *result = exp::<S>((*value - largest) * self.beta);
            }
            let share = 1.0 / fold::<LANES>(output, 0.0, |sum, value| sum + value);
            output.iter_mut().for_each(|result| *result *= share);
        }
    }
}

/// Puts in place of values exponentials that are in proportion to their shares; returns what they are to be
/// multiplied with to be these.
#[inline(always)]
pub(in crate::fast) fn exponentials<S: Instructions>(beta: f32, values: &mut [f32]) -> f32 {
    let largest = largest(values);
    for value in &mut *values {
        *value = exp::<S>((*value - largest) * beta);
    }
    1.0 / sum(values)
}

/// Values that are combined side by side: those of several vectors, so that none waits for the one before.
const SIDE_BY_SIDE: usize = 4 * LANES;

/// The sum of all values.
#[inline(always)]
pub(in crate::fast) fn sum(values: &[f32]) -> f32 {
    fold::<SIDE_BY_SIDE>(values, 0.0, |sum, value| sum + value)
}

#[inline(always)]
fn largest(values: &[f32]) -> f32 {
    fold::<SIDE_BY_SIDE>(
        values,
        f32::NEG_INFINITY,
        |most, value| if value > most { value } else { most },
    )
}

/// Combines all values, so many side by side.
#[inline(always)]
fn fold<const N: usize>(values: &[f32], start: f32, combine: impl Fn(f32, f32) -> f32) -> f32 {
    let (whole, rest) = values.as_chunks::<N>();
    let mut lanes = [start; N];
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
    use nnhal_hal::{Operand, OperandType, OperationType};

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

    #[test]
    fn shares_of_bytes_are_the_bits_of_the_reference() {
        // Few values, more than wait at a time, and so many that their shares are looked up, with a sum that
        // needs more bits.
        for (lanes, length) in [(5, 3), (3, 129), (2, 300), (2, 1001), (1, 70_000)] {
            for ((scale, beta), most) in [
                ((0.1, 1.0), 256),
                ((0.004, 0.5), 256),
                ((3.0, 2.0), 9),
                ((1e9, 1e9), 256),
            ] {
                for ty in [
                    OperandType::TENSOR_QUANT8_ASYMM,
                    OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                ] {
                    let values: Vec<u8> = (0..lanes * length)
                        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 20) % most)
                        .map(|value| value as u8)
                        .collect();
                    let least = if ty == OperandType::TENSOR_QUANT8_ASYMM {
                        0
                    } else {
                        -128
                    };
                    let operand =
                        |scale, zero| Operand::new(ty, &[lanes, length]).with_quantization(scale, zero);
                    let compute = |kernels, is_known| {
                        let one = OneOperation::new(OperationType::SOFTMAX)
                            .operand(operand(scale, 7), &values)
                            .f32(beta)
                            .output_operand(operand(1.0 / 256.0, least));
                        let one = if is_known { one.with_constants() } else { one };
                        let name = one.kernel_name();
                        let outputs = one.run_by(kernels, &RunOptions::default());
                        (outputs.unwrap().remove(0).bytes, name)
                    };
                    let (exact, _) = compute(KernelSet::Reference, false);
                    for is_known in [false, true] {
                        let (found, name) = compute(KernelSet::Fast, is_known);
                        assert!(found == exact, "{ty} {lanes} x {length}, scale {scale}");
                        assert_eq!(name, "8-bit softmax");
                    }
                }
            }
        }
    }
}
