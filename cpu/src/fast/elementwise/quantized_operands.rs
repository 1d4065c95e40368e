//! The operands of element-wise operations on 8-bit values: how they are quantised, and their elements.

use nnhal_hal::OperandType;
use nnhal_hal::ops::{OperandInfo, OperationContext};

use super::broadcast::Operand;
use crate::kernels::element::is_signed_8_bit;
use crate::plan::Declared;

/// A scale and a zero point.
pub(in crate::fast) type Quantization = (f32, i32);

/// How the operands of an operation are quantised.
#[derive(Clone, Copy, Debug)]
pub(in crate::fast) struct Quantizations {
    pub(in crate::fast) inputs: [Quantization; 2],
    pub(in crate::fast) output: Quantization,
    pub(in crate::fast) is_signed: bool,
}

impl Quantizations {
    /// Those of an operation, if its operands are of 8 bits.
    pub(in crate::fast) fn of(declared: &Declared<'_>) -> Option<Quantizations> {
        let (left, right, output) = (declared.input(0)?, declared.input(1)?, declared.output(0)?);
        let of = |info: &OperandInfo<'_>| (info.operand.scale, info.operand.zero_point);
        is_of_8_bits(left.ty()).then(|| Quantizations {
            inputs: [of(&left), of(&right)],
            output: of(&output),
            is_signed: is_signed_8_bit(left.ty()),
        })
    }

    /// The least value and the largest of the type.
    pub(in crate::fast) fn ends(&self) -> [i32; 2] {
        if self.is_signed { [-128, 127] } else { [0, 255] }
    }
}

/// Whether a type is one of those that are computed here.
pub(in crate::fast) fn is_of_8_bits(ty: OperandType) -> bool {
    matches!(
        ty,
        OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
    )
}

/// What elements take.
pub(in crate::fast) trait Cost {
    /// As how many bytes that are only moved.
    fn bytes(&self) -> usize;
}

/// Elements that are laid out at a time of an operand that is the same for all.
const AT_ONCE: usize = 256;

/// Slices of both operands for the parts of an output. Not a function that calls another for each: that would
/// be compiled without the vector instructions of who calls it.
pub(in crate::fast) struct Parts<'a> {
    left: Laid<'a>,
    right: Laid<'a>,
    /// Elements of a part, at least one.
    pub(in crate::fast) length: usize,
}

impl<'a> Parts<'a> {
    /// Those of an output of so many elements.
    #[inline(always)]
    pub(in crate::fast) fn new(
        (left, right): (Operand<'a, u8>, Operand<'a, u8>),
        elements: usize,
    ) -> Parts<'a> {
        Parts {
            left: Laid::new(left),
            right: Laid::new(right),
            length: match (left, right) {
                (Operand::Each(_), Operand::Each(_)) => elements.max(1),
                _ => AT_ONCE,
            },
        }
    }

    /// The operands of one part, which has so many elements.
    #[inline(always)]
    pub(in crate::fast) fn part(&self, number: usize, count: usize) -> (&[u8], &[u8]) {
        let from = number * self.length;
        (self.left.part(from, count), self.right.part(from, count))
    }
}

/// The elements of an operand, or copies of the one that serves all.
struct Laid<'a> {
    each: &'a [u8],
    copies: Option<[u8; AT_ONCE]>,
}

impl<'a> Laid<'a> {
    #[inline(always)]
    fn new(operand: Operand<'a, u8>) -> Laid<'a> {
        match operand {
            Operand::Each(each) => Laid { each, copies: None },
            Operand::One(byte) => Laid {
                each: &[],
                copies: Some([byte; AT_ONCE]),
            },
        }
    }

    /// So many, of which there are no more than are laid out.
    #[inline(always)]
    fn part(&self, from: usize, count: usize) -> &[u8] {
        match &self.copies {
            None => &self.each[from..][..count],
            Some(copies) => &copies[..count],
        }
    }
}
