//! The extension `com.example.fibonacci`: what applications and the driver have to agree on.
//!
//! The numbers are fixed for good: an extension that changes gets another name.

use nnhal_device::hal::{Extension, ExtensionOperandTypeInformation};

/// The extension's name, which a model maps to a prefix of its own.
pub const NAME: &str = "com.example.fibonacci";

/// Operand type: a 64-bit signed integer, a scalar.
pub const INT64: u16 = 0;

/// Operand type: a tensor of 64-bit signed integers that mean `(value - zero_point) * scale`.
/// [`Quantization`] travels with the operand as its extension parameters.
pub const TENSOR_QUANT64_ASYMM: u16 = 1;

/// Operation: the first Fibonacci numbers, 1, 1, 2, 3 and so on.
///
/// Inputs: 0, an [`INT64`]: how many, 1 or more. Outputs: 0, a [`TENSOR_QUANT64_ASYMM`] of rank 1 with that
/// many elements; each number is rounded to the nearest value that the output's quantisation has for it.
/// Numbers that do not fit are an error.
pub const FIBONACCI: u16 = 0;

/// What the device says of the extension.
#[must_use]
pub fn definition() -> Extension {
    let ty = |number, is_tensor| ExtensionOperandTypeInformation {
        number,
        is_tensor,
        byte_size: 8,
    };
    Extension {
        name: NAME.to_owned(),
        operand_types: vec![ty(INT64, false), ty(TENSOR_QUANT64_ASYMM, true)],
    }
}

/// The parameters of a [`TENSOR_QUANT64_ASYMM`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// Real units of one step; above 0.
    pub scale: f64,
    /// The value that means 0.
    pub zero_point: i64,
}

impl Quantization {
    /// The parameters as an operand has them: scale and zero point, 8 bytes each, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.scale.to_le_bytes());
        bytes[8..].copy_from_slice(&self.zero_point.to_le_bytes());
        bytes
    }

    /// The parameters of an operand; `None` if these are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Quantization> {
        let (scale, zero_point) = bytes.split_first_chunk()?;
        let parameters = Quantization {
            scale: f64::from_le_bytes(*scale),
            zero_point: i64::from_le_bytes(zero_point.try_into().ok()?),
        };
        (parameters.scale.is_finite() && parameters.scale > 0.0).then_some(parameters)
    }

    /// The value that means `number`; `None` if there is none.
    #[must_use]
    pub fn quantize(self, number: u64) -> Option<i64> {
        // Floats above 2^53 are not exact, so that whole numbers are not made floats where it can be helped.
        let steps = if self.scale == 1.0 {
            i128::from(number)
        } else {
            let steps = (number as f64 / self.scale).round();
            // Beyond 2^100 no zero point helps, and the conversion is exact in kind.
            (steps < 2.0_f64.powi(100)).then_some(steps as i128)?
        };
        i64::try_from(steps + i128::from(self.zero_point)).ok()
    }

    /// What `value` means.
    #[must_use]
    pub fn dequantize(self, value: i64) -> f64 {
        (i128::from(value) - i128::from(self.zero_point)) as f64 * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_survive_their_bytes() {
        let parameters = Quantization {
            scale: 0.25,
            zero_point: -7,
        };
        assert_eq!(Quantization::from_bytes(&parameters.to_bytes()), Some(parameters));
        assert_eq!(Quantization::from_bytes(&parameters.to_bytes()[..15]), None);
        assert_eq!(Quantization::from_bytes(&[0; 17]), None);
        assert_eq!(Quantization::from_bytes(&[0; 16]), None, "scale 0");
    }

    #[test]
    fn numbers_are_quantised_where_they_fit() {
        let with = |scale, zero_point| Quantization { scale, zero_point };
        assert_eq!(with(0.5, 3).quantize(5), Some(13));
        assert_eq!(with(0.5, 3).dequantize(13), 5.0);
        assert_eq!(
            with(1.0, 0).quantize(7_540_113_804_746_346_429),
            Some(7_540_113_804_746_346_429)
        );
        assert_eq!(with(1.0, 1).quantize(i64::MAX as u64), None);
        assert_eq!(with(f64::MIN_POSITIVE, 0).quantize(1), None);
    }
}
