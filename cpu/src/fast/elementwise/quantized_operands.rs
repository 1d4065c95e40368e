//! The operands of element-wise operations on 8-bit values: how they are quantised, and their elements.

use nnhal_hal::OperandType;
use nnhal_hal::ops::{OperandInfo, OperationContext};

use super::broadcast::{Operand, Pairwise};
use crate::fast::matmul::tile::{COLUMNS, for_each_constant};
use crate::fast::simd::{ByteForm, Columns, Instructions};
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
const LAID_OUT: usize = 256;

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
                _ => LAID_OUT,
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
    copies: Option<[u8; LAID_OUT]>,
}

impl<'a> Laid<'a> {
    #[inline(always)]
    fn new(operand: Operand<'a, u8>) -> Laid<'a> {
        match operand {
            Operand::Each(each) => Laid { each, copies: None },
            Operand::One(byte) => Laid {
                each: &[],
                copies: Some([byte; LAID_OUT]),
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

/// Elements that are computed at once.
pub(in crate::fast) const AT_ONCE: usize = 4 * COLUMNS;

/// What is computed of two bytes, of many side by side.
pub(in crate::fast) trait AtOnce: Sync {
    /// Whether bytes are signed values.
    fn is_signed(&self) -> bool;

    /// Computes as many as are computed at once; to be marked `#[inline(always)]`.
    fn at_once<V: Columns, const SIGNED: bool>(
        &self,
        simd: V,
        inputs: (&[u8; AT_ONCE], &[u8; AT_ONCE]),
        output: &mut [u8; AT_ONCE],
    );

    /// Computes any number of elements.
    #[inline(always)]
    fn each<V: Columns, const SIGNED: bool>(
        &self,
        simd: V,
        (left, right): (&[u8], &[u8]),
        output: &mut [u8],
    ) {
        let (lefts, left_rest) = left.as_chunks::<AT_ONCE>();
        let (rights, right_rest) = right.as_chunks::<AT_ONCE>();
        let (outputs, rest) = output.as_chunks_mut::<AT_ONCE>();
        for ((left, right), output) in lefts.iter().zip(rights).zip(outputs) {
            self.at_once::<V, SIGNED>(simd, (left, right), output);
        }
        if !rest.is_empty() {
            let mut whole = [[0; AT_ONCE]; 3];
            whole[0][..left_rest.len()].copy_from_slice(left_rest);
            whole[1][..right_rest.len()].copy_from_slice(right_rest);
            let [left, right, output] = &mut whole;
            self.at_once::<V, SIGNED>(simd, (left, right), output);
            rest.copy_from_slice(&output[..rest.len()]);
        }
    }
}

/// The same by vectors of columns: what is stored is the same form of all of them.
pub(in crate::fast) trait ByColumns: Sync {
    /// Whether bytes are signed values.
    fn is_signed(&self) -> bool;

    /// How results are stored.
    fn form(&self) -> &ByteForm;

    /// The results of some columns; to be marked `#[inline(always)]`.
    fn columns<V: Columns, const SIGNED: bool>(&self, simd: V, left: V::I32, right: V::I32) -> V::I32;
}

impl<C: ByColumns> AtOnce for C {
    fn is_signed(&self) -> bool {
        ByColumns::is_signed(self)
    }

    #[inline(always)]
    fn at_once<V: Columns, const SIGNED: bool>(
        &self,
        simd: V,
        (left, right): (&[u8; AT_ONCE], &[u8; AT_ONCE]),
        output: &mut [u8; AT_ONCE],
    ) {
        let (left, right) = (left.as_chunks::<COLUMNS>().0, right.as_chunks::<COLUMNS>().0);
        let mut columns = [simd.splat_i32(0); 4];
        for_each_constant!(at in [0 1 2 3] {
            let left = simd.load_bytes::<SIGNED>(&left[at]);
            let right = simd.load_bytes::<SIGNED>(&right[at]);
            columns[at] = self.columns::<V, SIGNED>(simd, left, right);
        });
        let bytes = simd.bytes_of_four::<false>(columns, self.form());
        output.copy_from_slice(bytes.as_flattened());
    }
}

impl<P: AtOnce> Pairwise<u8> for P {
    #[inline(always)]
    fn compute<S: Instructions>(
        &self,
        simd: S,
        operands: (Operand<'_, u8>, Operand<'_, u8>),
        output: &mut [u8],
    ) {
        let simd = simd.wide();
        let parts = Parts::new(operands, output.len());
        for (number, output) in output.chunks_mut(parts.length).enumerate() {
            let inputs = parts.part(number, output.len());
            if self.is_signed() {
                self.each::<S::Wide, true>(simd, inputs, output);
            } else {
                self.each::<S::Wide, false>(simd, inputs, output);
            }
        }
    }
}
