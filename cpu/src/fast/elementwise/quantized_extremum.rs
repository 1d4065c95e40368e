//! MAXIMUM and MINIMUM of 8-bit values, to the same bits as the reference: of bytes, once each input is in
//! the output's steps.

use super::broadcast::{Operand, Pairwise};
use super::quantized_operands::{Cost, Parts, Quantization, Quantizations};
use crate::fast::simd::Instructions;
use crate::kernels::fixed_point::requantize;

/// Values of a byte.
const BYTES: usize = 1 << u8::BITS;

/// The larger or the smaller ones of two tensors.
#[derive(Debug)]
pub(in crate::fast) struct QuantizedExtremum {
    is_largest: bool,
    /// What makes bytes compare as the values that they stand for.
    flip: u8,
    /// Each input's bytes in the output's steps, already compared so, if these are other ones.
    tables: [Option<[u8; BYTES]>; 2],
}

impl QuantizedExtremum {
    pub(in crate::fast) fn new(forms: &Quantizations, is_largest: bool) -> QuantizedExtremum {
        let flip = if forms.is_signed { 0x80 } else { 0 };
        QuantizedExtremum {
            is_largest,
            flip,
            // Cutting keeps the order, so that it may come before the comparison.
            tables: forms.inputs.map(|input| table(input, forms, flip)),
        }
    }

    #[inline(always)]
    fn compare(
        &self,
        (left, right): (&[u8], &[u8]),
        output: &mut [u8],
        values: (impl Fn(u8) -> u8, impl Fn(u8) -> u8),
    ) {
        let results = output.iter_mut().zip(left).zip(right);
        if self.is_largest {
            results.for_each(|((result, left), right)| {
                *result = values.0(*left).max(values.1(*right)) ^ self.flip;
            });
        } else {
            results.for_each(|((result, left), right)| {
                *result = values.0(*left).min(values.1(*right)) ^ self.flip;
            });
        }
    }
}

/// What bytes of an input become, or nothing if they are the output's.
fn table(from: Quantization, forms: &Quantizations, flip: u8) -> Option<[u8; BYTES]> {
    let [least, most] = forms.ends();
    (from != forms.output).then(|| {
        std::array::from_fn(|byte| {
            let value = if forms.is_signed {
                i32::from(byte as u8 as i8)
            } else {
                byte as i32
            };
            requantize(value, from, forms.output).clamp(least, most) as u8 ^ flip
        })
    })
}

impl Cost for QuantizedExtremum {
    fn bytes(&self) -> usize {
        if self.tables.iter().all(Option::is_none) {
            3
        } else {
            12
        }
    }
}

impl Pairwise<u8> for QuantizedExtremum {
    #[inline(always)]
    fn compute<S: Instructions>(
        &self,
        _: S,
        operands: (Operand<'_, u8>, Operand<'_, u8>),
        output: &mut [u8],
    ) {
        let flip = |byte: u8| byte ^ self.flip;
        let parts = Parts::new(operands, output.len());
        for (number, output) in output.chunks_mut(parts.length).enumerate() {
            let inputs = parts.part(number, output.len());
            match &self.tables {
                [None, None] => self.compare(inputs, output, (flip, flip)),
                [Some(left), None] => self.compare(inputs, output, (|byte| left[usize::from(byte)], flip)),
                [None, Some(right)] => self.compare(inputs, output, (flip, |byte| right[usize::from(byte)])),
                [Some(left), Some(right)] => {
                    let values = (|byte| left[usize::from(byte)], |byte| right[usize::from(byte)]);
                    self.compare(inputs, output, values);
                }
            }
        }
    }
}
