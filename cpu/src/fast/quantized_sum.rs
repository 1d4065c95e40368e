//! ADD and SUB of 8-bit values of the same shape, to the same bits as the reference: inputs shifted left by 20 bits,
//! rescaled to twice the larger input scale, summed, rescaled to the output.
//!
//! The input with the larger scale is rescaled by a half: it is shifted by a bit less, exactly. The others' multipliers are less
//! than that, mostly, so that one step is enough for each.

use nnhal::hal::OperandType;

use super::elementwise::effort;
use super::parting;
use super::requantize::{QuantizedOutput, Requantization, rescale_once};
use super::simd::{ByteForm, Columns, Instructions, RescaleOnce, Work, dispatch};
use super::tile::{COLUMNS, for_each_constant};
use crate::kernel::{Tensor, TensorMut};
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
}

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
    /// The sum, or difference, of two tensors of 8-bit values.
    pub(super) fn new(
        (left, right): (&Tensor<'_>, &Tensor<'_>),
        output: &TensorMut<'_>,
        subtracts: bool,
        activation: Activation,
    ) -> QuantizedSum {
        let is_signed = left.ty() == OperandType::TENSOR_QUANT8_ASYMM_SIGNED;
        let (least, most) = if is_signed { (-128, 127) } else { (0, 255) };
        let (left_scale, right_scale) = (f64::from(left.scale()), f64::from(right.scale()));
        let twice_the_larger = 2.0 * left_scale.max(right_scale);
        let (scale, zero_point) = (output.scale(), output.zero_point());
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
            zero_points: [left.zero_point(), right.zero_point()],
            inputs: [left_by, right_by].map(|by| Requantization::with_shift([by; COLUMNS], SUM_SHIFT)),
            subtracts,
            output: Requantization::new([by; COLUMNS]),
            once: once(),
            stored,
        }
    }
}

/// Computes the sums of elements.
pub(super) fn run(sum: &QuantizedSum, (left, right): (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>) {
    // An element takes about as long as eight bytes that are only moved.
    let threads = team.threads_for(effort(8 * output.len()));
    let grid = parting::elements(threads, output.len(), COLUMNS);
    let none: &mut [u8] = &mut [];
    team.for_each_block(threads, &grid, (output, none), |mut block, _| {
        let (left, right) = (&left[block.columns()], &right[block.columns()]);
        let output = block.all();
        if sum.is_signed {
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

/// Elements that are added at once where one step is enough for each.
const AT_ONCE: usize = 4 * COLUMNS;

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
        scales: [f32; 3],
        activation: i32,
        kernels: KernelSet,
    ) -> Vec<u8> {
        let left: Vec<u8> = (0..65_536 + 70).map(|at: u32| (at >> 8) as u8).collect();
        let right: Vec<u8> = (0..65_536 + 70).map(|at: u32| at as u8).collect();
        let operand = |scale: f32, zero_point: i32| {
            let mut operand = Operand::new(ty, &[left.len() as u32]);
            (operand.scale, operand.zero_point) = (scale, zero_point);
            operand
        };
        OneOperation::new(operation)
            .operand(operand(scales[0], 3), &left)
            .operand(operand(scales[1], 120), &right)
            .i32(activation)
            .output_operand(operand(scales[2], 7))
            .run_by(kernels, &RunOptions::default())
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
        ];
        for (at, scales) in scales.into_iter().enumerate() {
            for ty in [
                OperandType::TENSOR_QUANT8_ASYMM,
                OperandType::TENSOR_QUANT8_ASYMM_SIGNED,
            ] {
                for operation in [OperationType::ADD, OperationType::SUB] {
                    let by = |kernels| all_pairs(operation, ty, scales, at as i32 % 2, kernels);
                    assert!(
                        by(KernelSet::Fast) == by(KernelSet::Reference),
                        "{operation} of {ty} {scales:?}"
                    );
                }
            }
        }
    }
}
