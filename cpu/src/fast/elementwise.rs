//! Element-wise operations on two operands of 32-bit floats, and ADD and SUB of 8-bit values.

use std::ops::Range;

use nnhal::hal::{OperandType, OperationType, Shape};
use nnhal::ops::{OperandInfo, OperationContext};

use super::parting;
use super::quantized_sum::{self, QuantizedSum};
use super::simd::{Instructions, LANES, Work, dispatch};
use super::tile::COLUMNS;
use super::{PlannedStep, REFERENCE};
use crate::executor::Declared;
use crate::kernel::{Kernel, KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::broadcast::for_each_run;
use crate::threads::{Effort, Team};

/// What is computed of two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
    Prelu,
}

impl Binary {
    /// The function of an operation, if it has one.
    pub(super) fn of(operation: OperationType) -> Option<Binary> {
        Some(match operation {
            OperationType::ADD => Binary::Add,
            OperationType::SUB => Binary::Sub,
            OperationType::MUL => Binary::Mul,
            OperationType::DIV => Binary::Div,
            OperationType::MAXIMUM => Binary::Maximum,
            OperationType::MINIMUM => Binary::Minimum,
            OperationType::PRELU => Binary::Prelu,
            _ => return None,
        })
    }

    pub(super) fn has_activation(self) -> bool {
        matches!(self, Binary::Add | Binary::Sub | Binary::Mul | Binary::Div)
    }

    /// The result of two values before it is cut. Always inlined, so that a loop in which `self` is known has no choice in it.
    #[inline(always)]
    pub(super) fn combine(self, left: f32, right: f32) -> f32 {
        match self {
            Binary::Add => left + right,
            Binary::Sub => left - right,
            Binary::Mul => left * right,
            Binary::Div => left / right,
            // As the reference, also of a NaN: the largest is then the right one, the smallest the left one.
            Binary::Maximum if left > right => left,
            Binary::Maximum => right,
            Binary::Minimum if left > right => right,
            Binary::Minimum => left,
            Binary::Prelu if left >= 0.0 => left,
            Binary::Prelu => right * left,
        }
    }
}

/// An element-wise operation on two operands.
#[derive(Debug)]
pub(super) struct BinaryStep {
    binary: Binary,
    /// For the types that have no fast code.
    fallback: Kernel,
    /// What results are cut to, for floats where it is known beforehand.
    range: Option<(f32, f32)>,
    /// What adds or subtracts 8-bit values, if all of it is known beforehand.
    sum: Option<QuantizedSum>,
}

impl PlannedStep for BinaryStep {
    fn name(&self, input: OperandType) -> &'static str {
        match input {
            OperandType::TENSOR_FLOAT32 => "f32 element-wise",
            OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
                if matches!(self.binary, Binary::Add | Binary::Sub) =>
            {
                "8-bit sum, reference to broadcast"
            }
            _ => REFERENCE,
        }
    }

    fn run(&self, context: &mut KernelContext<'_>) -> Result<(), KernelError> {
        if self.run_without_walk(context) {
            return Ok(());
        }
        let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
        match left.ty() {
            OperandType::TENSOR_FLOAT32 => {}
            OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
                if matches!(self.binary, Binary::Add | Binary::Sub) && left.shape == right.shape =>
            {
                let output = context.outputs.tensor(0)?;
                let (inputs, team) = ((left.bytes, right.bytes), context.team);
                if let Some(sum) = &self.sum {
                    quantized_sum::run(sum, inputs, output.bytes, team);
                    return Ok(());
                }
                let sum = QuantizedSum::new(
                    [left, right].map(|input| (input.scale(), input.zero_point())),
                    (output.scale(), output.zero_point()),
                    left.ty() == OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
                    self.binary == Binary::Sub,
                    Activation::from_code(2, context.inputs.i32(2)?)?,
                );
                quantized_sum::run(&sum, inputs, output.bytes, team);
                return Ok(());
            }
            _ => return (self.fallback)(context),
        }
        let range = if self.binary.has_activation() {
            Activation::from_code(2, context.inputs.i32(2)?)?.range()
        } else {
            Activation::None.range()
        };
        let (left_data, right_data) = (left.data::<f32>()?, right.data::<f32>()?);
        let output = context.outputs.tensor(0)?;
        let shape = output.shape;
        let data = output.into_data::<f32>()?;
        if let (Some(left), Some(right)) = (
            Left::without_walk(left_data, data.len()),
            Right::without_walk(right_data, data.len()),
        ) {
            self.combine(context.team, (left, right), (data, COLUMNS), range);
            return Ok(());
        }
        if repeats_along_last_axis(&shape, &left.shape, &right.shape) {
            let operands = (Left::Each(left_data), Right::Repeated(right_data));
            self.combine(context.team, operands, (data, right_data.len()), range);
            return Ok(());
        }
        for_each_run(&shape, &left.shape, &right.shape, |run| {
            let left = if run.left_moves {
                Left::Each(&left_data[run.left..][..run.length])
            } else {
                Left::One(left_data[run.left])
            };
            let right = if run.right_moves {
                Right::Each(&right_data[run.right..][..run.length])
            } else {
                Right::One(right_data[run.right])
            };
            dispatch(Combine {
                binary: self.binary,
                left,
                right,
                output: &mut data[run.output..][..run.length],
                range,
            });
        })?;
        Ok(())
    }
}

impl BinaryStep {
    pub(super) fn new(binary: Binary, fallback: Kernel, declared: &Declared<'_>) -> BinaryStep {
        let is_float = |number| {
            let input = declared.input(number);
            input.is_some_and(|input| input.ty() == OperandType::TENSOR_FLOAT32)
        };
        let are_floats = is_float(0) && is_float(1);
        BinaryStep {
            binary,
            fallback,
            range: are_floats.then(|| known_range(binary, declared)).flatten(),
            sum: known_sum(binary, declared),
        }
    }

    /// Computes floats of which either operand has one element, or as many as the result, hence no axis along which it is
    /// repeated; says whether it did. Small operations are about as fast as this looks up what it needs.
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
        if data.len() < LANES {
            return self.combine_few((left, right), data, range);
        }
        let (Some(left), Some(right)) = (
            Left::without_walk(left, data.len()),
            Right::without_walk(right, data.len()),
        ) else {
            return false;
        };
        self.combine(context.team, (left, right), (data, COLUMNS), range);
        true
    }

    /// The same for few elements, one by one: calling what is compiled for vectors takes longer than these do.
    #[inline]
    fn combine_few(
        &self,
        (left, right): (&[f32], &[f32]),
        results: &mut [f32],
        (low, high): (f32, f32),
    ) -> bool {
        let serves = |data: &[f32]| data.len() == results.len() || data.len() == 1;
        if !serves(left) || !serves(right) {
            return false;
        }
        for (number, result) in results.iter_mut().enumerate() {
            let of = |data: &[f32]| data[if data.len() == 1 { 0 } else { number }];
            *result = cut(self.binary.combine(of(left), of(right)), low, high);
        }
        true
    }

    /// Combines elements of the same place, in blocks of a multiple of `unit` elements.
    // Always inlined for the reason that `dispatch` is.
    #[inline(always)]
    fn combine(
        &self,
        team: &Team<'_>,
        (left, right): (Left<'_>, Right<'_>),
        (output, unit): (&mut [f32], usize),
        range: (f32, f32),
    ) {
        let threads = team.threads_for(effort(3 * size_of_val(output)));
        if threads == 1 {
            let binary = self.binary;
            return dispatch(Combine {
                binary,
                left,
                right,
                output,
                range,
            });
        }
        let grid = parting::elements(threads, output.len(), unit);
        let none: &mut [u8] = &mut [];
        team.for_each_block(threads, &grid, (output, none), |mut block, _| {
            dispatch(Combine {
                binary: self.binary,
                left: left.part(block.columns()),
                right: right.part(block.columns()),
                output: block.all(),
                range,
            });
        });
    }
}

/// What an operation on floats cuts its results to, if that is known beforehand.
pub(super) fn known_range(binary: Binary, declared: &Declared<'_>) -> Option<(f32, f32)> {
    if !binary.has_activation() {
        return Some(Activation::None.range());
    }
    Some(known_activation(declared)?.range())
}

/// The activation of an operation that has one, if it is known beforehand.
fn known_activation(declared: &Declared<'_>) -> Option<Activation> {
    let code = declared.input(2)?.bytes?.try_into().ok()?;
    Activation::from_code(2, i32::from_ne_bytes(code)).ok()
}

/// What adds or subtracts 8-bit values, if it is known beforehand and they are not known to have different shapes.
fn known_sum(binary: Binary, declared: &Declared<'_>) -> Option<QuantizedSum> {
    let subtracts = match binary {
        Binary::Add => false,
        Binary::Sub => true,
        _ => return None,
    };
    let (left, right) = (declared.input(0)?, declared.input(1)?);
    let is_signed = match left.ty() {
        OperandType::TENSOR_QUANT8_ASYMM => false,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => true,
        _ => return None,
    };
    if left.shape_known && right.shape_known && left.shape != right.shape {
        return None;
    }
    let output = declared.output(0)?;
    let of = |info: &OperandInfo<'_>| (info.operand.scale, info.operand.zero_point);
    let inputs = [of(&left), of(&right)];
    let activation = known_activation(declared)?;
    let elements = left.shape_known.then(|| left.shape.elements().unwrap_or(0));
    let make = if elements.is_some_and(|elements| elements >= WORTH_A_PROOF) {
        QuantizedSum::prepared
    } else {
        QuantizedSum::new
    };
    Some(make(inputs, of(&output), is_signed, subtracts, activation))
}

/// Fewer elements than these gain less from floats than proving them takes, however often they are computed: trying all pairs takes
/// as long as 65,536 elements and more, and a model may have many small sums.
const WORTH_A_PROOF: usize = 2048;

/// What an operation takes that does little more than to read and write so many bytes.
pub(super) fn effort(bytes: usize) -> Effort {
    Effort {
        multiply_adds: 0,
        bytes: bytes as u64,
    }
}

/// Whether the right operand is one row that serves every row of the output, and the left one has them all.
pub(super) fn repeats_along_last_axis(output: &Shape, left: &Shape, right: &Shape) -> bool {
    let (Some(row), Some(columns)) = (right.dims().last(), output.dims().last()) else {
        return false;
    };
    row == columns && *row > 1 && left == output && right.elements().is_ok_and(|count| count == *row as usize)
}

/// The left operand of a run of elements.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    Each(&'a [f32]),
    One(f32),
}

/// The right operand of a run of elements.
#[derive(Clone, Copy)]
pub(super) enum Right<'a> {
    Each(&'a [f32]),
    One(f32),
    /// From the start again, as often as it takes.
    Repeated(&'a [f32]),
}

impl<'a> Left<'a> {
    /// What serves these elements of the output.
    fn part(self, elements: Range<usize>) -> Left<'a> {
        match self {
            Left::Each(data) => Left::Each(&data[elements]),
            Left::One(_) => self,
        }
    }

    /// For an operand that has all elements of the output, hence no axis along which it is repeated, or one for all.
    #[inline]
    fn without_walk(data: &'a [f32], elements: usize) -> Option<Left<'a>> {
        match data {
            each if each.len() == elements => Some(Left::Each(each)),
            [one] => Some(Left::One(*one)),
            _ => None,
        }
    }
}

impl<'a> Right<'a> {
    /// What serves these elements of the output, which begin with a row if rows are repeated.
    fn part(self, elements: Range<usize>) -> Right<'a> {
        match self {
            Right::Each(data) => Right::Each(&data[elements]),
            Right::One(_) | Right::Repeated(_) => self,
        }
    }

    /// As [`Left::without_walk`].
    #[inline]
    fn without_walk(data: &'a [f32], elements: usize) -> Option<Right<'a>> {
        match data {
            each if each.len() == elements => Some(Right::Each(each)),
            [one] => Some(Right::One(*one)),
            _ => None,
        }
    }
}

/// A binary operation on some elements.
pub(super) struct Combine<'a> {
    pub(super) binary: Binary,
    pub(super) left: Left<'a>,
    pub(super) right: Right<'a>,
    pub(super) output: &'a mut [f32],
    pub(super) range: (f32, f32),
}

impl Work for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(mut self, _: S) {
        let (low, high) = self.range;
        match self.binary {
            Binary::Maximum => self.each(|left, right| Binary::Maximum.combine(left, right)),
            Binary::Minimum => self.each(|left, right| Binary::Minimum.combine(left, right)),
            Binary::Prelu => self.each(|value, slope| Binary::Prelu.combine(value, slope)),
            _ if self.range == Activation::None.range() => self.arithmetic(|value| value),
            _ => self.arithmetic(|value| cut(value, low, high)),
        }
    }
}

impl Combine<'_> {
    /// Sums, differences, products and quotients, then cut.
    #[inline(always)]
    fn arithmetic(&mut self, cut: impl Fn(f32) -> f32) {
        match self.binary {
            Binary::Sub => self.each(|left, right| cut(Binary::Sub.combine(left, right))),
            Binary::Mul => self.each(|left, right| cut(Binary::Mul.combine(left, right))),
            Binary::Div => self.each(|left, right| cut(Binary::Div.combine(left, right))),
            _ => self.each(|left, right| cut(Binary::Add.combine(left, right))),
        }
    }

    #[inline(always)]
    fn each(&mut self, combine: impl Fn(f32, f32) -> f32) {
        let results = self.output.iter_mut();
        match (self.left, self.right) {
            (Left::Each(lefts), Right::Each(rights)) => {
                for ((result, left), right) in results.zip(lefts).zip(rights) {
                    *result = combine(*left, *right);
                }
            }
            (Left::Each(lefts), Right::One(right)) => {
                for (result, left) in results.zip(lefts) {
                    *result = combine(*left, right);
                }
            }
            (Left::One(left), Right::Each(rights)) => {
                for (result, right) in results.zip(rights) {
                    *result = combine(left, *right);
                }
            }
            (Left::Each(lefts), Right::Repeated(rights)) => {
                let rows = self.output.chunks_exact_mut(rights.len());
                for (results, lefts) in rows.zip(lefts.chunks_exact(rights.len())) {
                    for ((result, left), right) in results.iter_mut().zip(lefts).zip(rights) {
                        *result = combine(*left, *right);
                    }
                }
            }
            (Left::One(left), Right::Repeated(rights)) => {
                for (result, right) in results.zip(rights.iter().cycle()) {
                    *result = combine(left, *right);
                }
            }
            (Left::One(left), Right::One(right)) => {
                let value = combine(left, right);
                results.for_each(|result| *result = value);
            }
        }
    }
}

/// `value` cut to a range; a NaN stays one.
#[inline(always)]
pub(super) fn cut(value: f32, low: f32, high: f32) -> f32 {
    // One after the other, so that each is one instruction of a vector.
    let value = if value < low { low } else { value };
    if value > high { high } else { value }
}

#[cfg(test)]
mod tests {
    use nnhal::hal::{OperandType, OperationType, Shape};

    use super::{Binary, repeats_along_last_axis};
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
