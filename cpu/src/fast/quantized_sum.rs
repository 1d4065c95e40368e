//! ADD and SUB of 8-bit values of the same shape, to the same bits as the reference: inputs shifted left by 20 bits,
//! rescaled to twice the larger input scale, summed, rescaled to the output.

use nnhal::hal::OperandType;

use super::elementwise::effort;
use super::parting;
use super::requantize::{QuantizedOutput, Requantization};
use super::simd::{Columns, Instructions, Work, dispatch};
use super::tile::COLUMNS;
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
        let input = |scale: f64| {
            Requantization::with_shift([Multiplier::new(scale / twice_the_larger); COLUMNS], SUM_SHIFT)
        };
        let by = twice_the_larger / (f64::from(1 << SUM_SHIFT) * f64::from(scale));
        QuantizedSum {
            is_signed,
            zero_points: [left.zero_point(), right.zero_point()],
            inputs: [input(left_scale), input(right_scale)],
            subtracts,
            output: Requantization::new([Multiplier::new(by); COLUMNS]),
            stored: QuantizedOutput {
                zero_point,
                low,
                high,
            },
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
        let (lefts, left_rest) = self.left.as_chunks::<COLUMNS>();
        let (rights, right_rest) = self.right.as_chunks::<COLUMNS>();
        let (outputs, output_rest) = self.output.as_chunks_mut::<COLUMNS>();
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
    let left = sum.inputs[0].rescale::<V, COLUMNS>(simd, left);
    let right = sum.inputs[1].rescale::<V, COLUMNS>(simd, right);
    let total = if sum.subtracts {
        simd.sub_i32(left, right)
    } else {
        simd.add_i32(left, right)
    };
    sum.output.store::<V, SIGNED>(simd, total, &sum.stored, output);
}
