//! Sums of 8-bit values by single-precision floats, to the same bits as the integers of
//! [`super::quantized_sum`]: two fused products, rounded to the nearest integer, where integers rescale both
//! inputs and the sum.
//!
//! A result in output steps is about `left * a + right * b + c`, where `a` and `b` are the inputs' scales in
//! such steps and `c` has their zero points. But for a few of the 65,536 pairs of inputs it can be so close
//! to the middle between two integers that the errors of the floats matter, or those of the integers, which
//! are the reference's. So all pairs are tried when a model is prepared, by the very instructions that are
//! used afterwards. If any of them differs, `a`, `b` and `c` that are a little larger or smaller are tried:
//! of scales that models have, the first ones are right of nine in ten, and some of nearly all. They do not
//! help where ties are exact, as with equal scales and one twice as large for the output: the reference
//! rounds those away from 0. There integers remain.

use super::quantized_operands::{AtOnce, ByColumns};
use crate::fast::requantize::QuantizedOutput;
use crate::fast::simd::{ByteForm, Columns, Instructions, Work, dispatch};

/// Values of a byte.
const BYTES: usize = 1 << u8::BITS;

/// How far apart values of `c` are that are tried: the distance between floats next to large results.
const STEP: f64 = 1.0 / (1 << 17) as f64;

/// What adds two values, proven for each pair of them.
#[derive(Clone, Debug)]
pub(in crate::fast) struct FloatSum {
    /// What the inputs are multiplied by.
    by: [f32; 2],
    /// What is added to that.
    more: f32,
    is_signed: bool,
    form: ByteForm,
}

/// Results of each pair of bytes, by the left one.
type OfPairs = [[u8; BYTES]];

impl FloatSum {
    /// Of inputs with these scales in output steps, negative if they are subtracted, and zero points. `exact`
    /// computes what some sums are to be. `None` if no floats that were tried give the same for each pair.
    pub(in crate::fast) fn new(
        scales: [f64; 2],
        zero_points: [i32; 2],
        (stored, is_signed): (QuantizedOutput, bool),
        exact: impl Fn((&[u8], &[u8]), &mut [u8]),
    ) -> Option<FloatSum> {
        let mut expected = vec![[0; BYTES]; BYTES];
        let all: [u8; BYTES] = std::array::from_fn(|byte| byte as u8);
        for (left, expected) in expected.iter_mut().enumerate() {
            exact((&[left as u8; BYTES], &all), expected);
        }
        let form = stored.form(is_signed);
        let mut wrong = 0;
        for step in [0.0, STEP, -STEP] {
            for right in neighbours(scales[1]) {
                for left in neighbours(scales[0]) {
                    let zeros = f64::from(left) * f64::from(zero_points[0])
                        + f64::from(right) * f64::from(zero_points[1]);
                    let sum = FloatSum {
                        by: [left, right],
                        more: (step - zeros) as f32,
                        is_signed,
                        form: form.clone(),
                    };
                    // Most likely wrong where others were.
                    match sum.first_wrong(&expected, wrong) {
                        None => return Some(sum),
                        Some(left) => wrong = left,
                    }
                }
            }
        }
        None
    }

    /// A left input that has results other than expected, looked for from one of them on.
    fn first_wrong(&self, expected: &OfPairs, from: usize) -> Option<usize> {
        if self.is_signed {
            dispatch(Check::<true>(self, expected, from))
        } else {
            dispatch(Check::<false>(self, expected, from))
        }
    }
}

impl ByColumns for FloatSum {
    fn is_signed(&self) -> bool {
        self.is_signed
    }

    #[inline(always)]
    fn form(&self) -> &ByteForm {
        &self.form
    }

    #[inline(always)]
    fn columns<V: Columns, const SIGNED: bool>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32 {
        let (by, more) = (self.by.map(|by| simd.splat(by)), simd.splat(self.more));
        let right = simd.mul_add(simd.floats(right), by[1], more);
        simd.nearest(simd.mul_add(simd.floats(left), by[0], right))
    }
}

/// The float nearest to a number, and two on each side of it.
fn neighbours(number: f64) -> [f32; 5] {
    let nearest = number as f32;
    let (above, below) = (nearest.next_up(), nearest.next_down());
    [nearest, above, below, above.next_up(), below.next_down()]
}

/// Looks for a left input that has results other than expected, from one of them on.
struct Check<'a, const SIGNED: bool>(&'a FloatSum, &'a OfPairs, usize);

impl<const SIGNED: bool> Work for Check<'_, SIGNED> {
    type Output = Option<usize>;

    #[inline(always)]
    fn run<S: Instructions>(self, simd: S) -> Option<usize> {
        let Check(sum, expected, from) = self;
        let all: [u8; BYTES] = std::array::from_fn(|byte| byte as u8);
        (from..BYTES).chain(0..from).find(|left| {
            let mut found = [0; BYTES];
            sum.each::<S::Wide, SIGNED>(simd.wide(), (&[*left as u8; BYTES], &all), &mut found);
            found != expected[*left]
        })
    }
}

#[cfg(test)]
#[path = "float_sum_tests.rs"]
mod tests;
