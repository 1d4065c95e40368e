//! Elements between the corpus' numbers and the bytes of a tensor.

use half::f16;
use nnhal_hal::{OperandType, tflite};

/// Appends `value` as one element of type `ty`; integers are cut to the type's range, which the corpus keeps.
/// Nothing is appended for types without elements.
pub fn encode(ty: OperandType, value: f64, bytes: &mut Vec<u8>) {
    match ty {
        OperandType::FLOAT32 | OperandType::TENSOR_FLOAT32 => {
            bytes.extend_from_slice(&(value as f32).to_le_bytes());
        }
        OperandType::FLOAT16 | OperandType::TENSOR_FLOAT16 => {
            bytes.extend_from_slice(&f16::from_f64(value).to_le_bytes());
        }
        OperandType::INT32 | OperandType::TENSOR_INT32 => {
            bytes.extend_from_slice(&(value as i32).to_le_bytes());
        }
        tflite::TENSOR_INT64 => bytes.extend_from_slice(&(value as i64).to_le_bytes()),
        OperandType::UINT32 => bytes.extend_from_slice(&(value as u32).to_le_bytes()),
        OperandType::BOOL | OperandType::TENSOR_BOOL8 => bytes.push(u8::from(value != 0.0)),
        OperandType::TENSOR_QUANT8_ASYMM => bytes.push(value as u8),
        OperandType::TENSOR_QUANT8_SYMM
        | OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL
        | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => bytes.push(value as i8 as u8),
        OperandType::TENSOR_QUANT16_ASYMM => bytes.extend_from_slice(&(value as u16).to_le_bytes()),
        OperandType::TENSOR_QUANT16_SYMM => bytes.extend_from_slice(&(value as i16).to_le_bytes()),
        _ => {}
    }
}

/// The elements of a tensor of type `ty`: raw integers for quantised types, 0 or 1 for truth values. Bytes
/// that do not fill an element are left out.
#[must_use]
pub fn decode(ty: OperandType, bytes: &[u8]) -> Vec<f64> {
    match ty {
        OperandType::FLOAT32 | OperandType::TENSOR_FLOAT32 => {
            elements(bytes, |element| f64::from(f32::from_le_bytes(element)))
        }
        OperandType::FLOAT16 | OperandType::TENSOR_FLOAT16 => {
            elements(bytes, |element| f16::from_le_bytes(element).to_f64())
        }
        OperandType::INT32 | OperandType::TENSOR_INT32 => {
            elements(bytes, |element| f64::from(i32::from_le_bytes(element)))
        }
        tflite::TENSOR_INT64 => elements(bytes, |element| i64::from_le_bytes(element) as f64),
        OperandType::UINT32 => elements(bytes, |element| f64::from(u32::from_le_bytes(element))),
        OperandType::BOOL | OperandType::TENSOR_BOOL8 => {
            elements(bytes, |[element]| f64::from(u8::from(element != 0)))
        }
        OperandType::TENSOR_QUANT8_ASYMM => elements(bytes, |[element]| f64::from(element)),
        OperandType::TENSOR_QUANT8_SYMM
        | OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL
        | OperandType::TENSOR_QUANT8_ASYMM_SIGNED => elements(bytes, |[element]| f64::from(element as i8)),
        OperandType::TENSOR_QUANT16_ASYMM => {
            elements(bytes, |element| f64::from(u16::from_le_bytes(element)))
        }
        OperandType::TENSOR_QUANT16_SYMM => elements(bytes, |element| f64::from(i16::from_le_bytes(element))),
        _ => Vec::new(),
    }
}

fn elements<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    let (elements, _) = bytes.as_chunks::<N>();
    elements.iter().map(|element| read(*element)).collect()
}

#[cfg(test)]
mod tests {
    use nnhal_hal::{OperandType, tflite};

    use super::{decode, encode};

    #[test]
    fn every_type_with_elements_survives_bytes() {
        for &ty in OperandType::ALL.iter().chain(tflite::OPERAND_TYPES) {
            if ty.element_size() == 0 || ty.is_oem() {
                continue;
            }
            let mut bytes = Vec::new();
            encode(ty, 1.0, &mut bytes);
            assert_eq!(bytes.len(), ty.element_size(), "{ty}");
            assert_eq!(decode(ty, &bytes), [1.0], "{ty}");
        }
    }

    #[test]
    fn floats_round_to_nearest_even() {
        let mut bytes = Vec::new();
        encode(OperandType::TENSOR_FLOAT32, 0.1, &mut bytes);
        assert_eq!(bytes, 0.1_f32.to_le_bytes());
        bytes.clear();
        encode(OperandType::TENSOR_FLOAT16, 1.0 + f64::powi(2.0, -11), &mut bytes);
        assert_eq!(decode(OperandType::TENSOR_FLOAT16, &bytes), [1.0]);
    }

    #[test]
    fn any_nonzero_byte_is_true() {
        assert_eq!(decode(OperandType::TENSOR_BOOL8, &[0, 1, 255]), [0.0, 1.0, 1.0]);
    }
}
