//! Element-wise operations on two tensors of 8-bit values, to the same bits as the reference.

use std::fmt::Debug;

use nnhal_hal::ops::OperationContext;

use super::binary::{Binary, known_activation};
use super::broadcast::{self, Pairwise};
use super::quantized_extremum::QuantizedExtremum;
use super::quantized_operands::{Cost, Quantizations, is_of_8_bits};
use super::quantized_product::QuantizedProduct;
use super::quantized_sum::QuantizedSum;
use crate::fast::REFERENCE;
use crate::kernel::{KernelContext, KernelError};
use crate::kernels::activation_range::Activation;
use crate::kernels::broadcast::Walk;
use crate::kernels::element::is_signed_8_bit;
use crate::plan::Declared;
use crate::plan::cost::MIN_FOR_PROOF;
use crate::threads::Team;

/// What computes an operation on bytes, for people to read.
pub(in crate::fast) fn name(binary: Binary) -> &'static str {
    match binary {
        Binary::Add | Binary::Sub => "8-bit sum",
        Binary::Mul | Binary::Prelu => "8-bit product",
        Binary::Maximum | Binary::Minimum => "8-bit maximum or minimum",
        Binary::Div => REFERENCE,
    }
}

/// What is computed of two bytes.
pub(in crate::fast) trait QuantizedPairs: Debug + Send + Sync {
    /// Computes all elements of an output.
    fn run(&self, walk: &Walk, inputs: (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>);
}

impl<P: Pairwise<u8> + Cost + Debug + Send> QuantizedPairs for P {
    fn run(&self, walk: &Walk, inputs: (&[u8], &[u8]), output: &mut [u8], team: &Team<'_>) {
        broadcast::run(self, walk, inputs, output, (team, self.bytes()));
    }
}

/// What computes an operation, if it is one on bytes of which everything is known beforehand.
pub(in crate::fast) fn known(binary: Binary, declared: &Declared<'_>) -> Option<Box<dyn QuantizedPairs>> {
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
            let is_often = count(0).max(count(1)) >= MIN_FOR_PROOF;
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
pub(in crate::fast) fn run(
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

#[cfg(test)]
#[path = "quantized_pairs_tests.rs"]
mod tests;
