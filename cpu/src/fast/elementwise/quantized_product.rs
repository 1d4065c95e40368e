//! MUL and PRELU of 8-bit values, to the same bits as the reference: products of what is left without the
//! zero points, rescaled to the output. PRELU multiplies only what is below its zero point, and rescales the
//! rest by itself.
//!
//! There is an instruction for the sum of two products of 16-bit values, none that is as fast for 32-bit
//! ones. So the left value counts from the type's least one or from 0 up, whereby the upper half of its lane
//! is 0 and only one product is left.

use super::quantized_operands::{ByColumns, Cost, Quantizations};
use crate::fast::matmul::tile::COLUMNS;
use crate::fast::requantize::{QuantizedOutput, Requantization, in_order};
use crate::fast::simd::{ByteForm, Columns};
use crate::kernels::activation_range::Activation;
use crate::kernels::fixed_point::Multiplier;

/// How far a value can be from its zero point.
const FARTHEST: i32 = 255;

/// The products of two tensors.
#[derive(Debug)]
pub(in crate::fast) struct QuantizedProduct {
    is_signed: bool,
    zero_points: [i32; 2],
    products: Requantization,
    /// What scales left values that are not negative, if only others are multiplied.
    positive: Option<Requantization>,
    stored: QuantizedOutput,
    form: ByteForm,
}

impl QuantizedProduct {
    /// MUL: the products of all values.
    pub(in crate::fast) fn of_both(forms: &Quantizations, activation: Activation) -> QuantizedProduct {
        let [left, right] = forms.inputs.map(|(scale, _)| f64::from(scale));
        QuantizedProduct::new(forms, left * right / f64::from(forms.output.0), None, activation)
    }

    /// PRELU: the products of negative left values, and the others as they are.
    pub(in crate::fast) fn of_negative(forms: &Quantizations) -> QuantizedProduct {
        let [above, slope] = forms.inputs.map(|(scale, _)| f64::from(scale));
        let above = above / f64::from(forms.output.0);
        QuantizedProduct::new(forms, above * slope, Some(above), Activation::None)
    }

    fn new(
        forms: &Quantizations,
        products: f64,
        positive: Option<f64>,
        activation: Activation,
    ) -> QuantizedProduct {
        let stored = QuantizedOutput::new(forms.output, activation, forms.ends());
        let requantization = |by: f64, farthest: i32| {
            let by = in_order([Multiplier::new(by); COLUMNS]);
            Requantization::of_lanes(by, 0, |_| Some([-farthest, farthest]))
        };
        QuantizedProduct {
            is_signed: forms.is_signed,
            zero_points: forms.inputs.map(|(_, zero_point)| zero_point),
            products: requantization(products, FARTHEST * FARTHEST),
            positive: positive.map(|by| requantization(by, FARTHEST)),
            stored,
            form: stored.form(forms.is_signed),
        }
    }

    /// The products of left values and right ones that are without their zero point.
    #[inline(always)]
    fn product<V: Columns, const SIGNED: bool>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32 {
        let least = if SIGNED { i32::from(i8::MIN) } else { 0 };
        let left = simd.sub_i32(left, simd.splat_i32(least));
        let minus_zero = (least - self.zero_points[0]) as i16;
        let minus_zero = simd.splat_i32(i32::from(minus_zero as u16));
        let product = simd.add_products(simd.splat_i32(0), left, right);
        simd.add_products(product, minus_zero, right)
    }

    /// Left values where they are not negative, else the products with right ones, in output steps: one of
    /// both is 0.
    #[inline(always)]
    fn scale_negative<V: Columns>(
        &self,
        simd: V,
        positive: &Requantization,
        (left, right): (V::I32, V::I32),
    ) -> V::I32 {
        let (zero, most) = (simd.splat_i32(0), simd.splat_i32(FARTHEST));
        let left = simd.sub_i32(left, simd.splat_i32(self.zero_points[0]));
        let above = positive.rescale(simd, simd.clamp_i32(left, zero, most));
        let below = simd.clamp_i32(simd.sub_i32(zero, left), zero, most);
        let products = simd.sub_i32(zero, simd.add_products(zero, below, right));
        simd.add_i32(above, self.products.rescale(simd, products))
    }
}

impl Cost for QuantizedProduct {
    fn bytes(&self) -> usize {
        if self.positive.is_some() { 16 } else { 8 }
    }
}

impl ByColumns for QuantizedProduct {
    fn is_signed(&self) -> bool {
        self.is_signed
    }

    #[inline(always)]
    fn form(&self) -> &ByteForm {
        &self.form
    }

    #[inline(always)]
    fn columns<V: Columns, const SIGNED: bool>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32 {
        let right = simd.sub_i32(right, simd.splat_i32(self.zero_points[1]));
        let scaled = match &self.positive {
            None => self
                .products
                .rescale(simd, self.product::<V, SIGNED>(simd, left, right)),
            Some(positive) => self.scale_negative(simd, positive, (left, right)),
        };
        let [low, high] =
            [self.stored.low, self.stored.high].map(|end| simd.splat_i32(end - self.stored.zero_point));
        simd.clamp_i32(scaled, low, high)
    }
}
