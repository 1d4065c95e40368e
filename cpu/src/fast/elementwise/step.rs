//! Element-wise operations on two operands: of 32-bit floats here, of 8-bit values in
//! [`super::quantized_pairs`].

use std::ops::Range;

use super::binary::{Binary, known_range};
use super::broadcast::{self, Operand, Pairwise};
use super::quantized_operands::is_of_8_bits;
use super::quantized_pairs::{self, QuantizedPairs};
use super::values::clamp;
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::partition;
use crate::fast::simd::{Instructions, Work, dispatch};
use crate::fast::{PlannedStep, REFERENCE};
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::broadcast::Walk;
use crate::plan::Declared;
use crate::threads::{Cost, Team};
use nnhal_hal::OperandType;
use nnhal_hal::ops::OperationContext;

/// So many elements are computed in less time than it takes to part them: a burst of ADD of one value with
/// 16 requests in flight takes 0.8 of the time.
const FEW: usize = 16;

/// An element-wise operation on two operands.
#[derive(Debug)]
pub(in crate::fast) struct BinaryStep {
    binary: Binary,
    /// For the types that have no fast code.
    fallback: Kernel,
    /// What results are clamped to, for floats where it is known beforehand.
    range: Option<(f32, f32)>,
    /// What computes 8-bit values, if all of it is known beforehand.
    quantized: Option<Box<dyn QuantizedPairs>>,
}

impl PlannedStep for BinaryStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 element-wise",
            ty if is_of_8_bits(ty) => quantized_pairs::name(self.binary),
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        if self.run_without_walk(context) {
            return Ok(());
        }
        if context.inputs.tensor(0)?.ty() == OperandType::TENSOR_FLOAT32 {
            return self.run_floats(context);
        }
        if quantized_pairs::run(self.binary, self.quantized.as_deref(), context)? {
            return Ok(());
        }
        (self.fallback)(context)
    }
}

impl BinaryStep {
    pub(in crate::fast) fn new(binary: Binary, fallback: Kernel, declared: &Declared<'_>) -> BinaryStep {
        let is_float = |number| {
            let input = declared.input(number);
            input.is_some_and(|input| input.ty() == OperandType::TENSOR_FLOAT32)
        };
        let are_floats = is_float(0) && is_float(1);
        BinaryStep {
            binary,
            fallback,
            range: are_floats.then(|| known_range(binary, declared)).flatten(),
            quantized: quantized_pairs::known(binary, declared),
        }
    }

    /// Computes floats, whatever their shapes.
    fn run_floats(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        let range = if self.binary.has_activation() {
            Activation::from_code(2, context.inputs.i32(2)?)?.range()
        } else {
            Activation::None.range()
        };
        let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
        let inputs = (left.data()?, right.data()?);
        let output = context.outputs.tensor(0)?;
        let walk = Walk::new(&output.shape, &left.shape, &right.shape)?;
        let floats = Floats {
            binary: self.binary,
            range,
        };
        let bytes = 3 * size_of::<f32>();
        broadcast::run(&floats, &walk, inputs, output.into_data()?, (context.team, bytes));
        Ok(())
    }

    /// Computes floats of which either operand has one element, or as many as the result, hence no axis along
    /// which it is repeated; says whether it did. Small operations are about as fast as this looks up what it
    /// needs.
    #[inline]
    fn run_without_walk(&self, context: &mut KernelContext<'_>) -> bool {
        let floats = |bytes| bytemuck::try_cast_slice::<u8, f32>(bytes).ok();
        let (Some(range), Some(left), Some(right), Some(output)) = (
            self.range,
            context.inputs.bytes(0).and_then(floats),
            context.inputs.bytes(1).and_then(floats),
            context.outputs.bytes(0),
        ) else {
            return false;
        };
        let Ok(data) = bytemuck::try_cast_slice_mut(output) else {
            return false;
        };
        let (Some(left), Some(right)) = (
            Operand::without_walk(left, data.len()),
            Operand::without_walk(right, data.len()),
        ) else {
            return false;
        };
        self.combine(context.team, (left, right), data, range);
        true
    }

    /// Combines elements of the same place.
    fn combine(
        &self,
        team: &Team<'_>,
        (left, right): (Operand<'_, f32>, Operand<'_, f32>),
        output: &mut [f32],
        range: (f32, f32),
    ) {
        if output.len() <= FEW {
            return compute_few(Combine {
                binary: self.binary,
                left,
                right,
                output,
                range,
            });
        }
        let cost = Cost::of_bytes(3 * size_of_val(output));
        partition::for_each_part((team, cost), (output, COLUMNS), |elements, output| {
            dispatch(Combine {
                binary: self.binary,
                left: left.part(elements.clone()),
                right: right.part(elements),
                output,
                range,
            });
        });
    }
}

/// What is computed of two floats, and what results are clamped to.
struct Floats {
    binary: Binary,
    range: (f32, f32),
}

impl Pairwise<f32> for Floats {
    #[inline(always)]
    fn compute<S: Instructions>(
        &self,
        simd: S,
        (left, right): (Operand<'_, f32>, Operand<'_, f32>),
        output: &mut [f32],
    ) {
        let combine = Combine {
            binary: self.binary,
            left,
            right,
            output,
            range: self.range,
        };
        combine.run(simd);
    }
}

impl<'a> Operand<'a, f32> {
    /// What serves these elements of the output.
    fn part(self, elements: Range<usize>) -> Operand<'a, f32> {
        match self {
            Operand::Each(data) => Operand::Each(&data[elements]),
            Operand::One(_) => self,
        }
    }

    /// For an operand that has all elements of the output, hence no axis along which it is repeated, or one
    /// for all.
    #[inline]
    fn without_walk(data: &'a [f32], elements: usize) -> Option<Operand<'a, f32>> {
        match data {
            each if each.len() == elements => Some(Operand::Each(each)),
            [one] => Some(Operand::One(*one)),
            _ => None,
        }
    }
}

/// A binary operation on some elements.
pub(in crate::fast) struct Combine<'a> {
    pub(in crate::fast) binary: Binary,
    pub(in crate::fast) left: Operand<'a, f32>,
    pub(in crate::fast) right: Operand<'a, f32>,
    pub(in crate::fast) output: &'a mut [f32],
    pub(in crate::fast) range: (f32, f32),
}

/// Computes elements without parting them and without a choice of instructions.
#[inline(never)]
fn compute_few(combine: Combine<'_>) {
    combine.compute();
}

impl Work for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, _: S) {
        self.compute();
    }
}

impl Combine<'_> {
    #[inline(always)]
    fn compute(mut self) {
        let (low, high) = self.range;
        match self.binary {
            Binary::Maximum => self.each(|left, right| Binary::Maximum.combine(left, right)),
            Binary::Minimum => self.each(|left, right| Binary::Minimum.combine(left, right)),
            Binary::Prelu => self.each(|value, slope| Binary::Prelu.combine(value, slope)),
            _ if self.range == Activation::None.range() => self.arithmetic(|value| value),
            _ => self.arithmetic(|value| clamp(value, low, high)),
        }
    }

    /// Sums, differences, products and quotients, then clamped.
    #[inline(always)]
    fn arithmetic(&mut self, clamp: impl Fn(f32) -> f32) {
        match self.binary {
            Binary::Sub => self.each(|left, right| clamp(Binary::Sub.combine(left, right))),
            Binary::Mul => self.each(|left, right| clamp(Binary::Mul.combine(left, right))),
            Binary::Div => self.each(|left, right| clamp(Binary::Div.combine(left, right))),
            _ => self.each(|left, right| clamp(Binary::Add.combine(left, right))),
        }
    }

    #[inline(always)]
    fn each(&mut self, combine: impl Fn(f32, f32) -> f32) {
        let results = self.output.iter_mut();
        match (self.left, self.right) {
            (Operand::Each(lefts), Operand::Each(rights)) => {
                for ((result, left), right) in results.zip(lefts).zip(rights) {
                    *result = combine(*left, *right);
                }
            }
            (Operand::Each(lefts), Operand::One(right)) => {
                for (result, left) in results.zip(lefts) {
                    *result = combine(*left, right);
                }
            }
            (Operand::One(left), Operand::Each(rights)) => {
                for (result, right) in results.zip(rights) {
                    *result = combine(left, *right);
                }
            }
            (Operand::One(left), Operand::One(right)) => {
                let value = combine(left, right);
                results.for_each(|result| *result = value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, OperationType, Shape};

    use super::Binary;
    use crate::fast::elementwise::binary::repeats_along_last_axis;
    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    const BINARY: [OperationType; 7] = [
        OperationType::ADD,
        OperationType::SUB,
        OperationType::MUL,
        OperationType::DIV,
        OperationType::MAXIMUM,
        OperationType::MINIMUM,
        OperationType::PRELU,
    ];

    /// So many values, with NaN and both zeros among them.
    fn values(count: usize, seed: usize) -> Vec<f32> {
        let special = [f32::NAN, 1.0, -3.5, 0.0, f32::INFINITY, -0.0, 2.0];
        (0..count)
            .map(|number| special[(number * 3 + number / 7 + seed) % special.len()])
            .collect()
    }

    fn assert_like_reference(operation: OperationType, left: &[f32], right: &[f32], activation: i32) {
        for is_constant in [false, true] {
            assert_results(operation, (left, right), activation, is_constant);
        }
    }

    fn assert_results(
        operation: OperationType,
        (left, right): (&[f32], &[f32]),
        activation: i32,
        is_constant: bool,
    ) {
        let has_activation = Binary::of(operation).unwrap().has_activation();
        let results = |kernels| -> Vec<f32> {
            let mut one = OneOperation::new(operation)
                .tensor(OperandType::TENSOR_FLOAT32, &[left.len() as u32], left)
                .tensor(OperandType::TENSOR_FLOAT32, &[right.len() as u32], right);
            if has_activation {
                one = one.i32(activation);
            }
            let one = one.output(OperandType::TENSOR_FLOAT32, &[left.len().max(right.len()) as u32]);
            let one = if is_constant { one.with_constants() } else { one };
            let outputs = one.run_by(kernels, &RunOptions::default()).unwrap();
            outputs[0].data()
        };
        // Which NaN a sum is depends on the order in which the processor is given the operands.
        let bits = |value: &f32| {
            if has_activation && value.is_nan() {
                f32::NAN.to_bits()
            } else {
                value.to_bits()
            }
        };
        let found: Vec<u32> = results(KernelSet::Fast).iter().map(bits).collect();
        let expected: Vec<u32> = results(KernelSet::Reference).iter().map(bits).collect();
        assert_eq!(
            found, expected,
            "{operation} of {left:?} and {right:?}, activation {activation}"
        );
    }

    #[test]
    fn few_and_many_elements_are_those_of_the_reference() {
        for operation in BINARY {
            for count in [1, 2, 7, 8, 9, 20] {
                for seed in 0..7 {
                    for activation in [0, 3] {
                        let (left, right) = (values(count, seed), values(count, 2 * seed + 1));
                        assert_like_reference(operation, &left, &right, activation);
                        assert_like_reference(operation, &left, &right[..1], activation);
                        if operation != OperationType::PRELU {
                            assert_like_reference(operation, &left[..1], &right, activation);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn only_a_row_as_long_as_the_last_axis_repeats() {
        let shape = |dims: &[u32]| Shape::new(dims).unwrap();
        let output = shape(&[4, 4]);
        let repeats =
            |left: &[u32], right: &[u32]| repeats_along_last_axis(&output, &shape(left), &shape(right));
        assert!(repeats(&[4, 4], &[4]));
        assert!(repeats(&[4, 4], &[1, 4]));
        assert!(!repeats(&[4, 4], &[4, 1]));
        assert!(!repeats(&[4, 4], &[4, 4]));
        assert!(!repeats(&[1, 4], &[4]));
        assert!(!repeats(&[4, 4], &[]));
    }
}
