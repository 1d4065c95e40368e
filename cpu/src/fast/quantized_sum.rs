//! ADD and SUB of 8-bit values of the same shape, to the same bits as the reference: inputs shifted left by 20 bits,
//! rescaled to twice the larger input scale, summed, rescaled to the output.
//!
//! The input with the larger scale is rescaled by a half: it is shifted by a bit less, exactly. The others' multipliers are less
//! than that, mostly, so that one step is enough for each.
//!
//! Where everything is known when a model is prepared, floats take the place of the integers if they can: see
//! [`super::float_sum`].

use super::elementwise::effort;
use super::float_sum::{AT_ONCE, FloatSum};
use super::parting;
use super::requantize::{QuantizedOutput, Requantization, rescale_once};
use super::simd::{ByteForm, Columns, Instructions, RescaleOnce, Work, dispatch};
use super::tile::{COLUMNS, for_each_constant};
use crate::kernels::activation_range::Activation;
use crate::kernels::fixed_point::Multiplier;
use crate::threads::Team;

/// Head room for the rescaled inputs, in bits.
const SUM_SHIFT: i32 = 20;

/// The parameters of a sum.
#[derive(Debug)]
pub(super) struct QuantizedSum {
    is_signed: bool,
    zero_points: [i32; 2],
    inputs: [Requantization; 2],
    subtracts: bool,
    output: Requantization,
    stored: QuantizedOutput,
    /// The same for many values at once, if one step is enough for each of them.
    once: Option<Once>,
    /// What gives the same results by floats.
    floats: Option<FloatSum>,
}

/// A scale and a zero point.
pub(super) type Quantization = (f32, i32);

/// What scales values where one step is enough.
#[derive(Debug)]
struct Once {
    inputs: [Input; 2],
    output: RescaleOnce,
    form: ByteForm,
}

/// What scales an input: a half if nothing else.
#[derive(Debug)]
struct Input(Option<RescaleOnce>);

impl Input {
    /// What scales values that are shifted by [`SUM_SHIFT`]; `None` if one step is not enough.
    fn new(by: Multiplier) -> Option<Input> {
        if by == Multiplier::new(0.5) {
            return Some(Input(None));
        }
        rescale_once([by; COLUMNS]).map(|by| Input(Some(by)))
    }

    /// Scales values.
    #[inline(always)]
    fn scale<V: Columns>(&self, simd: V, values: V::I32) -> V::I32 {
        match &self.0 {
            None => simd.shift_left(values, SUM_SHIFT - 1),
            Some(by) => simd.rescale_once(simd.shift_left(values, SUM_SHIFT), by, 0),
        }
    }
}

impl QuantizedSum {
    /// The sum, or difference, of two tensors of 8-bit values; how these and the output are quantised, and whether signed.
    pub(super) fn new(
        [left, right]: [Quantization; 2],
        (scale, zero_point): Quantization,
        is_signed: bool,
        subtracts: bool,
        activation: Activation,
    ) -> QuantizedSum {
        let (least, most) = if is_signed { (-128, 127) } else { (0, 255) };
        let (left_scale, right_scale) = (f64::from(left.0), f64::from(right.0));
        let twice_the_larger = 2.0 * left_scale.max(right_scale);
        let (low, high) = activation.quantized_range(scale, zero_point, least, most);
        // The multiplier is at most 1/2, so that the shift is the only one to the left.
        let [left_by, right_by] =
            [left_scale, right_scale].map(|scale| Multiplier::new(scale / twice_the_larger));
        let by = Multiplier::new(twice_the_larger / (f64::from(1 << SUM_SHIFT) * f64::from(scale)));
        let stored = QuantizedOutput {
            zero_point,
            low,
            high,
        };
        let once = || {
            Some(Once {
                inputs: [Input::new(left_by)?, Input::new(right_by)?],
                output: rescale_once([by; COLUMNS])?,
                form: stored.form(is_signed),
            })
        };
        QuantizedSum {
            is_signed,
            zero_points: [left.1, right.1],
            inputs: [left_by, right_by].map(|by| Requantization::with_shift([by; COLUMNS], SUM_SHIFT)),
            subtracts,
            output: Requantization::new([by; COLUMNS]),
            once: once(),
            stored,
            floats: None,
        }
    }

    /// The same by floats if they are proven to give the same results, which is worth it for a sum that is computed often.
    pub(super) fn prepared(
        inputs: [Quantization; 2],
        output: Quantization,
        is_signed: bool,
        subtracts: bool,
        activation: Activation,
    ) -> QuantizedSum {
        let sum = QuantizedSum::new(inputs, output, is_signed, subtracts, activation);
        let [left, right] = inputs.map(|input| f64::from(input.0) / f64::from(output.0));
        let scales = [left, if subtracts { -right } else { right }];
        let exact = |inputs: (&[u8], &[u8]), output: &mut [u8]| sum.compute(inputs, output);
        let floats = FloatSum::new(scales, sum.zero_points, (sum.stored, is_signed), exact);
        QuantizedSum { floats, ..sum }
    }

    /// Computes some sums.
    fn compute(&self, (left, right): (&[u8], &[u8]), output: &mut [u8]) {
        let sum = self;
        if self.is_signed {
            dispatch(Sum::<true> {
                sum,
                left,
                right,
                output,
            });
        } else {
            dispatch(Sum::<false> {
                sum,
                left,
                right,
                output,
            });
        }
    }
}

/// Computes the sums of elements.
pub(super) fn run(sum: &QuantizedSum, (left, right): (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>) {
    // An element takes about as long as eight bytes that are only moved, or four with floats.
    let bytes = if sum.floats.is_some() { 4 } else { 8 };
    let threads = team.threads_for(effort(bytes * output.len()));
    let grid = parting::elements(threads, output.len(), COLUMNS);
    let none: &mut [u8] = &mut [];
    team.for_each_block(threads, &grid, (output, none), |mut block, _| {
        let inputs = (&left[block.columns()], &right[block.columns()]);
        sum.compute(inputs, block.all());
    });
}

struct Sum<'a, const SIGNED: bool> {
    sum: &'a QuantizedSum,
    left: &'a [u8],
    right: &'a [u8],
    output: &'a mut [u8],
}

impl<const SIGNED: bool> Work for Sum<'_, SIGNED> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let simd = simd.wide();
        let sum = self.sum;
        let (mut left, mut right, mut output) = (self.left, self.right, self.output);
        if let Some(floats) = &sum.floats {
            return floats.add::<S::Wide, SIGNED>(simd, (left, right), output);
        }
        if let Some(once) = &sum.once {
            let (lefts, rights) = (left.as_chunks::<AT_ONCE>().0, right.as_chunks::<AT_ONCE>().0);
            let (outputs, rest) = output.as_chunks_mut::<AT_ONCE>();
            for ((left, right), output) in lefts.iter().zip(rights).zip(&mut *outputs) {
                four_times::<S::Wide, SIGNED>(simd, (sum, once), (left, right), output);
            }
            let done = outputs.len() * AT_ONCE;
            (left, right, output) = (&left[done..], &right[done..], rest);
        }
        let (lefts, left_rest) = left.as_chunks::<COLUMNS>();
        let (rights, right_rest) = right.as_chunks::<COLUMNS>();
        let (outputs, output_rest) = output.as_chunks_mut::<COLUMNS>();
        for ((left, right), output) in lefts.iter().zip(rights).zip(outputs) {
            columns::<S::Wide, SIGNED>(simd, sum, left, right, output);
        }
        let pad = |rest: &[u8]| {
            let mut whole = [0; COLUMNS];
            whole[..rest.len()].copy_from_slice(rest);
            whole
        };
        if !output_rest.is_empty() {
            columns::<S::Wide, SIGNED>(simd, sum, &pad(left_rest), &pad(right_rest), output_rest);
        }
    }
}

/// Computes as many sums as are computed at once where one step is enough for each.
#[inline(always)]
fn four_times<V: Columns, const SIGNED: bool>(
    simd: V,
    (sum, once): (&QuantizedSum, &Once),
    (left, right): (&[u8; AT_ONCE], &[u8; AT_ONCE]),
    output: &mut [u8; AT_ONCE],
) {
    let (left, right) = (left.as_chunks::<COLUMNS>().0, right.as_chunks::<COLUMNS>().0);
    let zeros = sum.zero_points.map(|zero| simd.splat_i32(zero));
    let mut columns = [simd.splat_i32(0); 4];
    for_each_constant!(at in [0 1 2 3] {
        let left = simd.sub_i32(simd.load_bytes::<SIGNED>(&left[at]), zeros[0]);
        let right = simd.sub_i32(simd.load_bytes::<SIGNED>(&right[at]), zeros[1]);
        let left = once.inputs[0].scale(simd, left);
        let right = once.inputs[1].scale(simd, right);
        let total = if sum.subtracts {
            simd.sub_i32(left, right)
        } else {
            simd.add_i32(left, right)
        };
        columns[at] = simd.rescale_once(total, &once.output, 0);
    });
    let bytes = simd.bytes_of_four::<false>(columns, &once.form);
    output.copy_from_slice(bytes.as_flattened());
}

#[inline(always)]
fn columns<V: Columns, const SIGNED: bool>(
    simd: V,
    sum: &QuantizedSum,
    left: &[u8; COLUMNS],
    right: &[u8; COLUMNS],
    output: &mut [u8],
) {
    let left = simd.load_bytes::<SIGNED>(left);
    let right = simd.load_bytes::<SIGNED>(right);
    let left = simd.sub_i32(left, simd.splat_i32(sum.zero_points[0]));
    let right = simd.sub_i32(right, simd.splat_i32(sum.zero_points[1]));
    let left = sum.inputs[0].rescale(simd, left);
    let right = sum.inputs[1].rescale(simd, right);
    let total = if sum.subtracts {
        simd.sub_i32(left, right)
    } else {
        simd.add_i32(left, right)
    };
    sum.output.store::<V, SIGNED>(simd, total, &sum.stored, output);
}

#[cfg(test)]
mod tests {
    use nnhal::hal::{Operand, OperandType, OperationType};

    use crate::kernels::testing::OneOperation;
    use crate::{KernelSet, RunOptions};

    /// The sums, or differences, of all pairs of bytes, and of some more that do not fill a vector.
    fn all_pairs(
        operation: OperationType,
        ty: OperandType,
        (scales, zero_points): ([f32; 3], [i32; 3]),
        activation: i32,
        (kernels, is_known): (KernelSet, bool),
    ) -> Vec<u8> {
        let left: Vec<u8> = (0..65_536 + 70).map(|at: u32| (at >> 8) as u8).collect();
        let right: Vec<u8> = (0..65_536 + 70).map(|at: u32| at as u8).collect();
        let operand = |scale: f32, zero_point: i32| {
            let mut operand = Operand::new(ty, &[left.len() as u32]);
            (operand.scale, operand.zero_point) = (scale, zero_point);
            operand
        };
        let one = OneOperation::new(operation)
            .operand(operand(scales[0], zero_points[0]), &left)
            .operand(operand(scales[1], zero_points[1]), &right)
            .i32(activation)
            .output_operand(operand(scales[2], zero_points[2]));
        // By floats only where the activation is known when the model is prepared.
        let one = if is_known { one.with_constants() } else { one };
        one.run_by(kernels, &RunOptions::default())
            .unwrap()
            .remove(0)
            .bytes
    }

    #[test]
    fn all_pairs_have_the_sums_and_differences_of_the_reference() {
        // Equal ones, a power of two and any number between them, and one step that is not enough for the output or for an input.
        let scales = [
            [0.5, 0.5, 1.0],
            [0.25, 0.5, 0.7],
            [0.037, 0.029, 0.05],
            [1.3, 0.000_3, 1.1],
            [0.1, 0.09, 1e-8],
            [1.0, 1e-11, 1.1],
            [1.0, 0.999_999_9, 2.0],
            // Ties, on both sides of real 0, and very different scales.
            [0.5, 0.5, 0.5],
            [0.5, 0.125, 1.0],
            [0.3, 0.6, 2.4],
            [100.0, 0.001, 90.0],
            [0.01, 0.02, 1e6],
            // Such as models have.
            [0.023_529, 0.117_3, 0.101_7],
            [0.184_3, 0.172_2, 0.211_9],
            [0.071_4, 0.052_8, 0.089_1],
            [0.310_7, 0.299_1, 0.420_3],
        ];
        for (at, scales) in scales.into_iter().enumerate() {
            let zero_points = [[3, 120, 7], [1, 4, 100], [90, 0, 0]][at % 3];
            for ty in [
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                for operation in [OperationType::ADD, OperationType::SUB] {
                    let by =
                        |kernels| all_pairs(operation, ty, (scales, zero_points), at as i32 % 4, kernels);
                    let exact = by((KernelSet::Reference, false));
                    for is_known in [false, true] {
                        let found = by((KernelSet::Fast, is_known));
                        assert!(
                            found == exact,
                            "{operation} of {ty} {scales:?}, known: {is_known}"
                        );
                    }
                }
            }
        }
    }
}
