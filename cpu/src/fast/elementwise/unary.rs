//! Element-wise operations on one operand of 32-bit floats.

use nnhal_hal::ops::OperationContext;
use nnhal_hal::{OperandType, OperationType, tflite};

use super::values::clamp;
use crate::fast::exponential::{exp_minus_one, exp_of_any, gelu, gelu_by_tanh, logistic, tanh};
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::partition;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::plan::Declared;
use crate::threads::Cost;

/// What is computed of one element. The bounds of errors of those that are not exact stand in
/// [`crate::fast::exponential`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::fast) enum Unary {
    /// Clamped to a range.
    Clamp(Activation),
    Floor,
    Negate,
    Absolute,
    SquareRoot,
    /// One by the square root.
    InverseRoot,
    Exponential,
    Logistic,
    Tanh,
    HardSwish,
    /// Of negative elements the exponential less one, times this.
    Elu(f32),
    Gelu,
    /// GELU by the formula with the hyperbolic tangent.
    GeluByTanh,
}

impl Unary {
    /// The function of an operation, if it has one.
    pub(in crate::fast) fn of(declared: &Declared<'_>) -> Option<Unary> {
        let context: &dyn OperationContext = declared;
        Some(match declared.operation.operation_type {
            OperationType::RELU => Unary::Clamp(Activation::Relu),
            OperationType::RELU1 => Unary::Clamp(Activation::Relu1),
            OperationType::RELU6 => Unary::Clamp(Activation::Relu6),
            OperationType::FLOOR => Unary::Floor,
            OperationType::NEG => Unary::Negate,
            OperationType::ABS => Unary::Absolute,
            OperationType::SQRT => Unary::SquareRoot,
            OperationType::RSQRT => Unary::InverseRoot,
            OperationType::EXP => Unary::Exponential,
            OperationType::LOGISTIC => Unary::Logistic,
            OperationType::TANH => Unary::Tanh,
            OperationType::HARD_SWISH => Unary::HardSwish,
            OperationType::ELU => {
                let factor = declared.input(1)?.bytes?.try_into().ok()?;
                Unary::Elu(f32::from_ne_bytes(factor))
            }
            tflite::GELU => match context.bool_or(1, false).ok()? {
                false => Unary::Gelu,
                true => Unary::GeluByTanh,
            },
            _ => return None,
        })
    }

    /// About how many operations an element takes, if these are more than to read and write it.
    fn operations(self) -> u64 {
        match self {
            Unary::Exponential | Unary::Logistic => 16,
            Unary::Tanh | Unary::Elu(_) | Unary::Gelu | Unary::GeluByTanh => 32,
            _ => 0,
        }
    }
}

/// An element-wise operation on one operand.
#[derive(Debug)]
pub(in crate::fast) struct UnaryStep {
    pub(in crate::fast) unary: Unary,
    /// For the types that have no fast code.
    pub(in crate::fast) fallback: Kernel,
}

impl PlannedStep for UnaryStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 element-wise",
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let input = context.inputs.tensor(0)?;
        if input.ty() != OperandType::TENSOR_FLOAT32 {
            return (self.fallback)(context);
        }
        let (input, output) = (input.data()?, context.outputs.data(0)?);
        let cost = Cost {
            multiply_adds: self.unary.operations() * output.len() as u64,
            bytes: 2 * size_of_val(output) as u64,
        };
        partition::for_each_part((context.team, cost), (output, COLUMNS), |elements, output| {
            dispatch(Apply {
                unary: self.unary,
                input: &input[elements],
                output,
            });
        });
        Ok(())
    }
}

/// A unary operation on some elements.
pub(in crate::fast) struct Apply<'a> {
    pub(in crate::fast) unary: Unary,
    pub(in crate::fast) input: &'a [f32],
    pub(in crate::fast) output: &'a mut [f32],
}

impl Work for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        let elements = self.output.iter_mut().zip(self.input);
        match self.unary {
            Unary::Clamp(activation) => {
                let (low, high) = activation.range();
                elements.for_each(|(result, value)| *result = clamp(*value, low, high));
            }
            Unary::Floor => elements.for_each(|(result, value)| *result = value.floor()),
            Unary::Negate => elements.for_each(|(result, value)| *result = -value),
            Unary::Absolute => elements.for_each(|(result, value)| *result = value.abs()),
            Unary::SquareRoot => elements.for_each(|(result, value)| *result = value.sqrt()),
            Unary::InverseRoot => elements.for_each(|(result, value)| *result = 1.0 / value.sqrt()),
            Unary::Exponential => elements.for_each(|(result, value)| *result = exp_of_any::<S>(*value)),
            Unary::Logistic => elements.for_each(|(result, value)| *result = logistic::<S>(*value)),
            Unary::Tanh => elements.for_each(|(result, value)| *result = tanh::<S>(*value)),
            Unary::HardSwish => elements.for_each(|(result, value)| *result = hard_swish(*value)),
            Unary::Elu(factor) => elements.for_each(|(result, value)| {
                let negative = factor * exp_minus_one::<S>(clamp(*value, f32::NEG_INFINITY, 0.0));
                *result = if *value < 0.0 { negative } else { *value };
            }),
            Unary::Gelu => elements.for_each(|(result, value)| *result = gelu::<S>(*value)),
            Unary::GeluByTanh => elements.for_each(|(result, value)| *result = gelu_by_tanh::<S>(*value)),
        }
    }
}

/// In the order of operations of the reference, whose results are the same bits.
#[inline(always)]
fn hard_swish(value: f32) -> f32 {
    value * clamp(value + 3.0, 0.0, 6.0) / 6.0
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType, tflite};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// Of every magnitude, of both signs, and what is no number.
    fn values() -> Vec<f32> {
        let magnitudes = (-40..40).map(|exponent| 1.37_f32 * 2.0_f32.powi(exponent));
        let both = magnitudes.flat_map(|magnitude| [magnitude, -magnitude]);
        let ends = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
        both.chain(ends).collect()
    }

    fn results(operation: OperationType, kernels: KernelSet) -> (Vec<f32>, &'static str) {
        let values = values();
        let mut one =
            OneOperation::new(operation).tensor(OperandType::TENSOR_FLOAT32, &[values.len() as u32], &values);
        if operation == OperationType::ELU {
            one = one.f32(1.5).with_constants();
        }
        let one = one.output(OperandType::TENSOR_FLOAT32, &[values.len() as u32]);
        let name = one.kernel_name();
        let outputs = one.run_by(kernels, &RunOptions::default()).unwrap();
        (outputs[0].data(), name)
    }

    #[test]
    fn results_are_those_of_the_reference() {
        let exact = [
            OperationType::RELU,
            OperationType::RELU1,
            OperationType::RELU6,
            OperationType::FLOOR,
            OperationType::NEG,
            OperationType::ABS,
            OperationType::SQRT,
            OperationType::RSQRT,
            OperationType::HARD_SWISH,
        ];
        let close = [
            OperationType::EXP,
            OperationType::LOGISTIC,
            OperationType::TANH,
            OperationType::ELU,
        ];
        for operation in exact.into_iter().chain(close) {
            let bound = if close.contains(&operation) { 7e-7 } else { 0.0 };
            let (found, name) = results(operation, KernelSet::Fast);
            assert_eq!(name, "f32 element-wise", "{operation}");
            let (expected, _) = results(operation, KernelSet::Reference);
            for ((found, expected), value) in found.into_iter().zip(expected).zip(values()) {
                let is_same = found == expected || (found.is_nan() && expected.is_nan());
                let error = (found - expected).abs();
                assert!(
                    is_same || error <= bound * expected.abs().max(1e-30),
                    "{operation} of {value}: {found}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn both_forms_of_gelu_are_near_the_reference() {
        for is_by_tanh in [false, true] {
            let compute = |kernels| {
                let values = values();
                let extents = [values.len() as u32];
                let one = OneOperation::new(tflite::GELU)
                    .tensor(OperandType::TENSOR_FLOAT32, &extents, &values)
                    .tensor(OperandType::BOOL, &[], &[u8::from(is_by_tanh)])
                    .with_constants()
                    .output(OperandType::TENSOR_FLOAT32, &extents);
                let name = one.kernel_name();
                assert_eq!(name, "f32 element-wise");
                one.run_by(kernels, &RunOptions::default()).unwrap()[0].data::<f32>()
            };
            let (found, exact) = (compute(KernelSet::Fast), compute(KernelSet::Reference));
            for ((found, exact), value) in found.into_iter().zip(exact).zip(values()) {
                let is_near = (found - exact).abs() <= 6e-7 * exact.abs().max(1.0);
                let is_same = found == exact || (found.is_nan() && exact.is_nan());
                assert!(is_near || is_same, "GELU of {value}: {found}, not {exact}");
            }
        }
    }
}
