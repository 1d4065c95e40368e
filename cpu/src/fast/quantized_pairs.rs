//! Element-wise operations on two tensors of 8-bit values, to the same bits as the reference.

use std::fmt::Debug;

use nnhal_hal::OperandType;
use nnhal_hal::ops::{OperandInfo, OperationContext};

use super::REFERENCE;
use super::broadcast::{self, Operand, Pairwise};
use super::elementwise::{Binary, known_activation};
use super::quantized_extremum::QuantizedExtremum;
use super::quantized_product::QuantizedProduct;
use super::quantized_sum::QuantizedSum;
use crate::executor::Declared;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::broadcast::Walk;
use crate::kernels::element::is_signed_8_bit;
use crate::threads::Team;

/// A scale and a zero point.
pub(super) type Quantization = (f32, i32);

/// How the operands of an operation are quantised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantizations {
    pub(super) inputs: [Quantization; 2],
    pub(super) output: Quantization,
    pub(super) is_signed: bool,
}

impl Quantizations {
    /// Those of an operation, if its operands are of 8 bits.
    fn of(declared: &Declared<'_>) -> Option<Quantizations> {
        let (left, right, output) = (declared.input(0)?, declared.input(1)?, declared.output(0)?);
        let of = |info: &OperandInfo<'_>| (info.operand.scale, info.operand.zero_point);
        is_of_8_bits(left.ty()).then(|| Quantizations {
            inputs: [of(&left), of(&right)],
            output: of(&output),
            is_signed: is_signed_8_bit(left.ty()),
        })
    }

    /// The least value and the largest of the type.
    pub(super) fn ends(&self) -> [i32; 2] {
        if self.is_signed { [-128, 127] } else { [0, 255] }
    }
}

/// Whether a type is one of those that are computed here.
pub(super) fn is_of_8_bits(ty: OperandType) -> bool {
    matches!(
        ty,
        OperandType::TENSOR_QUANT8_ASYMM | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
    )
}

/// What computes an operation on bytes, for people to read.
pub(super) fn name(binary: Binary) -> &'static str {
    match binary {
        Binary::Add | Binary::Sub => "8-bit sum",
        Binary::Mul | Binary::Prelu => "8-bit product",
        Binary::Maximum | Binary::Minimum => "8-bit maximum or minimum",
        Binary::Div => REFERENCE,
    }
}

/// What is computed of two bytes.
pub(super) trait QuantizedPairs: Debug + Send + Sync {
    /// Computes all elements of an output.
    fn run(&self, walk: &Walk, inputs: (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>);
}

impl<P: Pairwise<u8> + Cost + Debug + Send> QuantizedPairs for P {
    fn run(&self, walk: &Walk, inputs: (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>) {
        broadcast::run(self, walk, inputs, output, (team, self.bytes()));
    }
}

/// What elements take.
pub(super) trait Cost {
    /// As how many bytes that are only moved.
    fn bytes(&self) -> usize;
}

/// Fewer elements than these gain less from floats than proving them takes, however often they are computed:
/// trying all pairs takes as long as 65,536 elements and more, and a model may have many small sums.
const WORTH_A_PROOF: usize = 2048;

/// What computes an operation, if it is one on bytes of which everything is known beforehand.
pub(super) fn known(binary: Binary, declared: &Declared<'_>) -> Option<Box<dyn QuantizedPairs>> {
    let forms = Quantizations::of(declared)?;
    let activation = if binary.has_activation() {
        known_activation(declared)?
    } else {
        Activation::None
    };
    Some(match binary {
        Binary::Add | Binary::Sub => {
            let count = |number| {
                let input = declared.input(number).filter(|input| input.shape_known);
                input.and_then(|input| input.shape.elements().ok()).unwrap_or(0)
            };
            let sum = QuantizedSum::new(&forms, binary == Binary::Sub, activation);
            let is_often = count(0).max(count(1)) >= WORTH_A_PROOF;
            Box::new(if is_often { sum.by_floats(&forms) } else { sum })
        }
        Binary::Mul => Box::new(QuantizedProduct::of_both(&forms, activation)),
        Binary::Prelu => Box::new(QuantizedProduct::of_negative(&forms)),
        Binary::Maximum => Box::new(QuantizedExtremum::new(&forms, true)),
        Binary::Minimum => Box::new(QuantizedExtremum::new(&forms, false)),
        Binary::Div => return None,
    })
}

/// Computes an operation on bytes, by what is known of it or by what is worked out now; says whether it is
/// one.
pub(super) fn run(
    binary: Binary,
    known: Option<&dyn QuantizedPairs>,
    context: &mut KernelContext<'_>,
) -> Result<bool, KernelError> {
    let (left, right) = (context.inputs.tensor(0)?, context.inputs.tensor(1)?);
    let output = context.outputs.tensor(0)?;
    if !is_of_8_bits(left.ty()) {
        return Ok(false);
    }
    let walk = Walk::new(&output.shape, &left.shape, &right.shape)?;
    let (inputs, team) = ((left.bytes, right.bytes), context.team);
    if let Some(known) = known {
        known.run(&walk, inputs, output.bytes, team);
        return Ok(true);
    }
    let forms = Quantizations {
        inputs: [left, right].map(|input| (input.scale(), input.zero_point())),
        output: (output.scale(), output.zero_point()),
        is_signed: is_signed_8_bit(left.ty()),
    };
    let activation = || Activation::from_code(2, context.inputs.i32(2)?).map_err(KernelError::from);
    match binary {
        Binary::Add | Binary::Sub => {
            let sum = QuantizedSum::new(&forms, binary == Binary::Sub, activation()?);
            sum.run(&walk, inputs, output.bytes, team);
        }
        Binary::Mul => {
            QuantizedProduct::of_both(&forms, activation()?).run(&walk, inputs, output.bytes, team);
        }
        // Of the others everything is known beforehand, or there is no such operation.
        _ => return Ok(false),
    }
    Ok(true)
}

/// Elements that are laid out at a time of an operand that is the same for all.
const AT_ONCE: usize = 256;

/// Slices of both operands for the parts of an output. Not a function that calls another for each: that would
/// be compiled without the vector instructions of who calls it.
pub(super) struct Parts<'a> {
    left: Laid<'a>,
    right: Laid<'a>,
    /// Elements of a part, at least one.
    pub(super) length: usize,
}

impl<'a> Parts<'a> {
    /// Those of an output of so many elements.
    #[inline(always)]
    pub(super) fn new((left, right): (Operand<'a, u8>, Operand<'a, u8>), elements: usize) -> Parts<'a> {
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
    pub(super) fn part(&self, number: usize, count: usize) -> (&[u8], &[u8]) {
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

#[cfg(test)]
#[path = "quantized_pairs_tests.rs"]
mod tests;
