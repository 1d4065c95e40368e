//! Float arithmetic by chains of operations, for what NNAPI has no operation of its own.

use nnhal_hal::{Operand, OperandType, OperationType as O};

use super::node::{Node, Refusal};
use super::outputs::{Rest, Target};
use crate::graph::Id;

/// Element-wise operations on floats, each with a result of its own.
pub(super) struct Arithmetic<'c, 'n, 'm, 'f, 'a> {
    pub(super) node: &'c mut Node<'n, 'm, 'f, 'a>,
    /// The code of no activation.
    plain: Id,
}

impl<'c, 'n, 'm, 'f, 'a> Arithmetic<'c, 'n, 'm, 'f, 'a> {
    pub(super) fn new(node: &'c mut Node<'n, 'm, 'f, 'a>) -> Result<Self, Refusal> {
        let plain = node.scalar_i32(0)?;
        Ok(Arithmetic { node, plain })
    }

    fn result(&mut self) -> Result<Id, Refusal> {
        self.node
            .temporary(Operand::new(OperandType::TENSOR_FLOAT32, &[]))
    }

    pub(super) fn constant(&mut self, value: f32) -> Result<Id, Refusal> {
        self.node.filled(
            Operand::new(OperandType::TENSOR_FLOAT32, &[1]),
            &value.to_le_bytes(),
        )
    }

    pub(super) fn unary(&mut self, kind: O, input: Id) -> Result<Id, Refusal> {
        let result = self.result()?;
        self.node.emit(kind, &[input], &[result])?;
        Ok(result)
    }

    pub(super) fn binary(&mut self, kind: O, left: Id, right: Id) -> Result<Id, Refusal> {
        let result = self.result()?;
        let has_activation = matches!(kind, O::ADD | O::SUB | O::MUL | O::DIV);
        let inputs = [left, right, self.plain];
        self.node
            .emit(kind, &inputs[..if has_activation { 3 } else { 2 }], &[result])?;
        Ok(result)
    }

    pub(super) fn with_constant(&mut self, kind: O, left: Id, right: f32) -> Result<Id, Refusal> {
        let right = self.constant(right)?;
        self.binary(kind, left, right)
    }

    /// A reduction; whether it keeps the axes, with extent 1.
    pub(super) fn reduce(&mut self, kind: O, input: Id, axes: &[i32], keep: bool) -> Result<Id, Refusal> {
        let inputs = [input, self.node.tensor_i32(axes)?, self.node.scalar_bool(keep)?];
        let result = self.result()?;
        self.node.emit(kind, &inputs, &[result])?;
        Ok(result)
    }

    /// Integer steps times a factor, rounded where the file's runtime rounds.
    pub(super) fn scale_steps(&mut self, steps: Id, factor: FixedPointFactor) -> Result<Id, Refusal> {
        let fine = self.with_constant(O::MUL, steps, factor.multiplier)?;
        let fine = self.round(fine)?;
        if factor.divisor == 1.0 {
            return Ok(fine);
        }
        let coarse = self.with_constant(O::DIV, fine, factor.divisor)?;
        self.round(coarse)
    }

    /// The nearest integers, halves away from zero: the positive part rounded less the negative part rounded.
    pub(super) fn round(&mut self, input: Id) -> Result<Id, Refusal> {
        let negative = self.unary(O::NEG, input)?;
        let mut parts = Vec::with_capacity(2);
        for part in [input, negative] {
            let part = self.unary(O::RELU, part)?;
            let part = self.with_constant(O::ADD, part, 0.5)?;
            parts.push(self.unary(O::FLOOR, part)?);
        }
        self.binary(O::SUB, parts[0], parts[1])
    }
}

/// A factor from integer steps of one size to steps of another, in the two parts between which the file's
/// runtime rounds: a product to the nearest integer of some binary places, and then those to the nearest
/// integer of none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FixedPointFactor {
    multiplier: f32,
    /// A power of two.
    divisor: f32,
}

impl FixedPointFactor {
    /// The factor `ratio`.
    pub(super) fn new(ratio: f64) -> FixedPointFactor {
        FixedPointFactor::of_mean(ratio, 1)
    }

    /// The factor from the sum of `count` elements to their mean in other steps. The runtime multiplies by a
    /// fraction of 31 bits and shifts by the rest. It divides the fraction by the number of elements without
    /// normalizing it again, which leaves fewer places to round at.
    pub(super) fn of_mean(ratio: f64, count: u64) -> FixedPointFactor {
        let count = count.max(1);
        let exponent = (ratio.log2().floor() as i32).clamp(-126, 126) + 1;
        let fraction = (ratio * 2_f64.powi(31 - exponent)).round();
        let shift = (count.ilog2() as i32).min(32).min(31 + exponent);
        let fraction = (fraction * 2_f64.powi(shift) / count as f64).floor() / 2_f64.powi(31);
        let places = shift - exponent;
        FixedPointFactor {
            multiplier: (fraction * 2_f64.powi((-places).max(0))) as f32,
            divisor: 2_f64.powi(places.max(0)) as f32,
        }
    }
}

/// Adds the operations from quantized values to the same values with other parameters.
pub(super) fn requantize(node: &mut Node<'_, '_, '_, '_>, from: Id, to: Id) -> Result<(), Refusal> {
    let (old, new) = (
        node.graph.builder.operand(from).scale,
        node.graph.builder.operand(to).scale,
    );
    let mut arithmetic = Arithmetic::new(node)?;
    let mut real = arithmetic.unary(O::DEQUANTIZE, from)?;
    // Of equal steps every one has its place; others are rounded as the file's runtime does.
    if old != new {
        let steps = arithmetic.with_constant(O::DIV, real, old)?;
        let steps = arithmetic.scale_steps(steps, FixedPointFactor::new(f64::from(old) / f64::from(new)))?;
        real = arithmetic.with_constant(O::MUL, steps, new)?;
    }
    node.emit(O::QUANTIZE, &[real], &[to])
}

impl Node<'_, '_, '_, '_> {
    /// Adds the operations that lead from a target to the output.
    pub(crate) fn settle(&mut self, target: Target) -> Result<(), Refusal> {
        match target.rest {
            Rest::Nothing => Ok(()),
            Rest::Operation(kind, output) => self.emit(kind, &[target.id], &[output]),
            Rest::Requantize(output) => requantize(self, target.id, output),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FixedPointFactor;

    #[test]
    fn the_fraction_is_not_normalized_after_division() {
        // 1.25 is 0.625 * 2; a sum of 48 is shifted by 5, so 0.625 * 32 / 48 remains, and 4 places.
        let factor = FixedPointFactor::of_mean(1.25, 48);
        assert_eq!(factor.divisor, 16.0);
        assert!((factor.multiplier - 0.625 * 32.0 / 48.0).abs() < 1e-6);
    }

    #[test]
    fn large_ratios_have_no_places_to_round_at() {
        let factor = FixedPointFactor::of_mean(20.0, 2);
        assert_eq!(
            factor,
            FixedPointFactor {
                multiplier: 10.0,
                divisor: 1.0
            }
        );
    }
}
