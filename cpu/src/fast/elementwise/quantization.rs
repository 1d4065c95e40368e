//! QUANTIZE of 32-bit floats and DEQUANTIZE to them, of 8-bit values with one scale, to the same bits as the
//! reference.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{OperandType as T, OperationType};

use crate::fast::matmul::tile::COLUMNS;
use crate::fast::partition;
use crate::fast::rounding::low_bits;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::element::Quant8;
use crate::plan::Declared;
use crate::threads::{Cost, Team};

/// A change between 32-bit floats and 8-bit values.
#[derive(Debug)]
pub(in crate::fast) struct QuantizationStep {
    /// For other types.
    fallback: Kernel,
}

impl QuantizationStep {
    /// The step of an operation, if it is one of the two and gives what is computed here.
    pub(in crate::fast) fn of(declared: &Declared<'_>, fallback: Kernel) -> Option<QuantizationStep> {
        let context: &dyn OperationContext = declared;
        let is_half = context.output(0)?.ty() == T::TENSOR_FLOAT16;
        let is_one = matches!(
            context.operation(),
            OperationType::QUANTIZE | OperationType::DEQUANTIZE
        );
        (is_one && !is_half).then_some(QuantizationStep { fallback })
    }
}

impl PlannedStep for QuantizationStep {
    fn name(&self, input: T) -> &'static str {
        match input {
            T::TENSOR_FLOAT32 | T::TENSOR_QUANT8_ASYMM | T::TENSOR_QUANT8_ASYMM_SIGNED => "quantization",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let types = (context.inputs.tensor(0)?.ty(), context.outputs.tensor(0)?.ty());
        match types {
            (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM) => to_8_bits::<u8>(context),
            (T::TENSOR_FLOAT32, T::TENSOR_QUANT8_ASYMM_SIGNED) => to_8_bits::<i8>(context),
            (T::TENSOR_QUANT8_ASYMM, T::TENSOR_FLOAT32) => from_8_bits::<u8>(context),
            (T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_FLOAT32) => from_8_bits::<i8>(context),
            _ => (self.fallback)(context),
        }
    }
}

fn to_8_bits<Q: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let output = context.outputs.tensor(0)?;
    let steps = Steps::of::<Q>(output.scale(), output.zero_point());
    let (input, output) = (context.inputs.data::<f32>(0)?, output.into_data::<Q>()?);
    convert((input, output), context.team, move |value: f32| {
        Q::saturate(steps.nearest(value))
    });
    Ok(())
}

/// The largest float below a half.
const BELOW_HALF: f32 = 0.5_f32.next_down();

/// What [`quantize`](crate::kernels::fixed_point::quantize) does, in a form that takes few instructions:
/// values are clamped to the range of the type before they are rounded, so that neither rounding nor
/// conversion meets large ones.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Steps {
    scale: f32,
    zero_point: i32,
    /// How many steps the least and the largest value of the type lie from the zero point.
    range: [f32; 2],
}

impl Steps {
    /// Those of a type, to which the zero point belongs.
    pub(in crate::fast) fn of<Q: Quant8>(scale: f32, zero_point: i32) -> Steps {
        let range = [Q::LEAST, Q::MOST].map(|bound| (bound - zero_point) as f32);
        Steps {
            scale,
            zero_point,
            range,
        }
    }

    /// The step nearest to a value, ties away from zero. NaN is at the zero point.
    #[inline(always)]
    pub(in crate::fast) fn nearest(&self, value: f32) -> i32 {
        let [least, most] = self.range;
        let steps = value / self.scale;
        let steps = if steps.is_nan() { 0.0 } else { steps };
        let steps = if steps < least { least } else { steps };
        let steps = if steps > most { most } else { steps };
        // With a half, fractions just below one would be rounded up in the sum.
        let whole = (steps + BELOW_HALF.copysign(steps)).trunc();
        low_bits(whole).wrapping_add(self.zero_point)
    }
}

fn from_8_bits<Q: Quant8>(context: &mut KernelContext<'_>) -> Result<(), KernelError> {
    let input = context.inputs.tensor(0)?;
    let form = (input.scale(), input.zero_point());
    let (input, output) = (input.data::<Q>()?, context.outputs.data::<f32>(0)?);
    convert((input, output), context.team, move |value: Q| {
        real(value.to_i32(), form)
    });
    Ok(())
}

/// What a value of this scale and zero point stands for.
#[inline(always)]
pub(in crate::fast) fn real(value: i32, (scale, zero_point): (f32, i32)) -> f32 {
    (value - zero_point) as f32 * scale
}

/// Converts each value.
pub(in crate::fast) fn convert<A: Copy + Sync, B: Send>(
    (input, output): (&[A], &mut [B]),
    team: &Team<'_>,
    convert: impl Fn(A) -> B + Copy + Sync,
) {
    // Dividing takes a few times as long as moving.
    let cost = Cost::of_bytes(2 * (size_of_val(input) + size_of_val(output)));
    partition::for_each_part((team, cost), (output, COLUMNS), |elements, output| {
        dispatch(Convert {
            input: &input[elements],
            output,
            convert,
        });
    });
}

struct Convert<'a, A, B, F> {
    input: &'a [A],
    output: &'a mut [B],
    convert: F,
}

impl<A: Copy, B, F: Fn(A) -> B> Work for Convert<'_, A, B, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        for (result, value) in self.output.iter_mut().zip(self.input) {
            *result = (self.convert)(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    fn assert_same<T: bytemuck::Pod>(
        operation: OperationType,
        [from, to]: [OperandType; 2],
        values: &[T],
        scale: f32,
    ) {
        let operand = |ty| {
            let mut operand = Operand::new(ty, &[values.len() as u32]);
            if ty != OperandType::TENSOR_FLOAT32 {
                (operand.scale, operand.zero_point) = (scale, 5);
            }
            operand
        };
        let compute = |kernels| {
            OneOperation::new(operation)
                .operand(operand(from), values)
                .output_operand(operand(to))
                .run_by(kernels, &RunOptions::default())
                .unwrap()
                .remove(0)
                .bytes
        };
        assert_eq!(compute(KernelSet::Fast), compute(KernelSet::Reference));
    }

    #[test]
    fn every_value_has_the_bits_of_the_reference() {
        let mut floats: Vec<f32> = (-3000..3000).map(|at| at as f32 * 0.0185 / 8.0).collect();
        floats.extend([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e30, -1e30]);
        // Numbers of every size, and ties with the second scale.
        floats.extend((0..=u32::from(u16::MAX)).map(|high| f32::from_bits(high << 16 | 0x5a5a)));
        floats.extend((-600..600).map(|eighths| eighths as f32 / 8.0));
        let all: Vec<u8> = (0..=255).collect();
        let float = OperandType::TENSOR_FLOAT32;
        for ty in [
            OperandType::TENSOR_QUANT8_ASYMM,
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
        ] {
            for scale in [0.037, 0.25] {
                assert_same(OperationType::QUANTIZE, [float, ty], &floats, scale);
                assert_same(OperationType::DEQUANTIZE, [ty, float], &all, scale);
            }
        }
    }
}
