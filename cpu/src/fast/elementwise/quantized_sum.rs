//! ADD and SUB of 8-bit values, to the same bits as the reference: inputs shifted left by 20 bits,
//! rescaled to twice the larger input scale, summed, rescaled to the output.
//!
//! The input with the larger scale is rescaled by a half: it is shifted by a bit less, exactly. The others'
//! multipliers are less than that, mostly, so that one step is enough for each.
//!
//! Where everything is known when a model is prepared, floats take the place of the integers if they can: see
//! [`super::float_sum`].

use super::broadcast::{Operand, Pairwise};
use super::float_sum::FloatSum;
use super::quantized_operands::{AT_ONCE, AtOnce, ByColumns, Cost, Quantizations};
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::requantize::{QuantizedOutput, Requantization, rescale_once};
use crate::fast::simd::{ByteForm, Columns, Instructions, RescaleOnce, Work, dispatch};
use crate::kernels::activation_range::Activation;
use crate::kernels::fixed_point::Multiplier;

/// Head room for the rescaled inputs, in bits.
const SUM_SHIFT: i32 = 20;

/// The parameters of a sum.
#[derive(Debug)]
pub(in crate::fast) struct QuantizedSum {
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
    /// The sum of two tensors of 8-bit values, or their difference.
    pub(in crate::fast) fn new(
        forms: &Quantizations,
        subtracts: bool,
        activation: Activation,
    ) -> QuantizedSum {
        let [left, right] = forms.inputs;
        let (left_scale, right_scale) = (f64::from(left.0), f64::from(right.0));
        let twice_the_larger = 2.0 * left_scale.max(right_scale);
        // The multiplier is at most 1/2, so that the shift is the only one to the left.
        let [left_by, right_by] =
            [left_scale, right_scale].map(|scale| Multiplier::new(scale / twice_the_larger));
        let by = Multiplier::new(twice_the_larger / (f64::from(1 << SUM_SHIFT) * f64::from(forms.output.0)));
        let stored = QuantizedOutput::new(forms.output, activation, forms.ends());
        let once = || {
            Some(Once {
                inputs: [Input::new(left_by)?, Input::new(right_by)?],
                output: rescale_once([by; COLUMNS])?,
                form: stored.form(forms.is_signed),
            })
        };
        QuantizedSum {
            is_signed: forms.is_signed,
            zero_points: [left.1, right.1],
            inputs: [left_by, right_by].map(|by| Requantization::with_shift([by; COLUMNS], SUM_SHIFT)),
            subtracts,
            output: Requantization::new([by; COLUMNS]),
            once: once(),
            stored,
            floats: None,
        }
    }

    /// The same by floats if they are proven to give the same results, which is worth it for a sum that is
    /// computed often.
    pub(in crate::fast) fn by_floats(self, forms: &Quantizations) -> QuantizedSum {
        let [left, right] = forms
            .inputs
            .map(|input| f64::from(input.0) / f64::from(forms.output.0));
        let scales = [left, if self.subtracts { -right } else { right }];
        let exact = |(left, right): (&[u8], &[u8]), output: &mut [u8]| {
            dispatch(Sum {
                sum: &self,
                left,
                right,
                output,
            });
        };
        let floats = FloatSum::new(scales, self.zero_points, (self.stored, self.is_signed), exact);
        QuantizedSum { floats, ..self }
    }

    /// The sum of inputs that are scaled, or their difference.
    #[inline(always)]
    fn total<V: Columns>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32 {
        if self.subtracts {
            simd.sub_i32(left, right)
        } else {
            simd.add_i32(left, right)
        }
    }
}

impl Cost for QuantizedSum {
    fn bytes(&self) -> usize {
        if self.floats.is_some() { 4 } else { 8 }
    }
}

impl Pairwise<u8> for QuantizedSum {
    #[inline(always)]
    fn compute<S: Instructions>(
        &self,
        simd: S,
        operands: (Operand<'_, u8>, Operand<'_, u8>),
        output: &mut [u8],
    ) {
        match (&self.floats, &self.once) {
            (Some(floats), _) => floats.compute(simd, operands, output),
            (None, Some(once)) => InOneStep { sum: self, once }.compute(simd, operands, output),
            (None, None) => InSteps(self).compute(simd, operands, output),
        }
    }
}

/// The sums of some elements.
struct Sum<'a> {
    sum: &'a QuantizedSum,
    left: &'a [u8],
    right: &'a [u8],
    output: &'a mut [u8],
}

impl Work for Sum<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) {
        let operands = (Operand::Each(self.left), Operand::Each(self.right));
        self.sum.compute(simd, operands, self.output);
    }
}

/// Sums where one step is enough to scale each value.
struct InOneStep<'a> {
    sum: &'a QuantizedSum,
    once: &'a Once,
}

impl ByColumns for InOneStep<'_> {
    fn is_signed(&self) -> bool {
        self.sum.is_signed
    }

    #[inline(always)]
    fn form(&self) -> &ByteForm {
        &self.once.form
    }

    #[inline(always)]
    fn columns<V: Columns, const SIGNED: bool>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32 {
        let InOneStep { sum, once } = self;
        let left = simd.sub_i32(left, simd.splat_i32(sum.zero_points[0]));
        let right = simd.sub_i32(right, simd.splat_i32(sum.zero_points[1]));
        let total = sum.total(
            simd,
            once.inputs[0].scale(simd, left),
            once.inputs[1].scale(simd, right),
        );
        simd.rescale_once(total, &once.output, 0)
    }
}

/// Sums where it may take several.
struct InSteps<'a>(&'a QuantizedSum);

impl AtOnce for InSteps<'_> {
    fn is_signed(&self) -> bool {
        self.0.is_signed
    }

    #[inline(always)]
    fn at_once<V: Columns, const SIGNED: bool>(
        &self,
        simd: V,
        (left, right): (&[u8; AT_ONCE], &[u8; AT_ONCE]),
        output: &mut [u8; AT_ONCE],
    ) {
        let (lefts, rights) = (left.as_chunks::<COLUMNS>().0, right.as_chunks::<COLUMNS>().0);
        let outputs = output.as_chunks_mut::<COLUMNS>().0;
        for ((left, right), output) in lefts.iter().zip(rights).zip(outputs) {
            columns::<V, SIGNED>(simd, self.0, left, right, output);
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
    let left = sum.inputs[0].rescale(simd, left);
    let right = sum.inputs[1].rescale(simd, right);
    let total = sum.total(simd, left, right);
    sum.output.store::<V, SIGNED>(simd, total, &sum.stored, output);
}
