//! Constant values of tensors: read as numbers, or turned into the bytes of an operand.

use std::borrow::Cow;

use half::f16;

use crate::tensor::{ElementType, Parameters, Tensor};

/// Most bytes of a constant that the importer makes up (zero biases, masks): above any real one, low enough
/// that a hostile file cannot exhaust the memory.
pub(crate) const MAX_GENERATED_BYTES: usize = 1 << 26;

/// The bytes of the operand that stands for the constant tensor.
pub(crate) fn operand_bytes<'t>(tensor: &'t Tensor<'_>) -> Result<Cow<'t, [u8]>, String> {
    let data = dense_data(tensor)?;
    match tensor.element_type {
        ElementType::Int4 => Ok(Cow::Owned(unpacked(tensor, data)?)),
        _ => Ok(Cow::Borrowed(data)),
    }
}

fn dense_data<'t>(tensor: &'t Tensor<'_>) -> Result<&'t [u8], String> {
    if tensor.is_sparse {
        return Err("is sparse; only DENSIFY takes sparse tensors".to_owned());
    }
    tensor
        .data
        .as_deref()
        .ok_or_else(|| "must be a constant, its value is not known before execution".to_owned())
}

/// The constant integers of the tensor.
pub(crate) fn integers(tensor: &Tensor<'_>) -> Result<Vec<i64>, String> {
    let bytes = dense_data(tensor)?;
    let values: Vec<i64> = match tensor.element_type {
        ElementType::Int32 => bytes
            .chunks_exact(4)
            .map(|c| i64::from(i32::from_le_bytes(exact(c))))
            .collect(),
        ElementType::Int64 => bytes
            .chunks_exact(8)
            .map(|c| i64::from_le_bytes(exact(c)))
            .collect(),
        ElementType::Int16 => bytes
            .chunks_exact(2)
            .map(|c| i64::from(i16::from_le_bytes(exact(c))))
            .collect(),
        ElementType::Int8 => bytes.iter().map(|byte| i64::from(*byte as i8)).collect(),
        ElementType::Uint8 | ElementType::Bool => bytes.iter().map(|byte| i64::from(*byte)).collect(),
        other => return Err(format!("holds {other} elements, must hold integers")),
    };
    if Some(values.len()) != tensor.elements() {
        return Err(format!(
            "has {} elements in its data, its dimensions {:?} need {}",
            values.len(),
            tensor.dimensions,
            tensor.elements().unwrap_or(usize::MAX)
        ));
    }
    Ok(values)
}

fn exact<const N: usize>(chunk: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(chunk);
    bytes
}

/// The constant float16 elements of the tensor as the bytes of float32.
pub(crate) fn widen(tensor: &Tensor<'_>) -> Result<Vec<u8>, String> {
    let data = dense_data(tensor)?;
    Ok(data
        .chunks_exact(2)
        .flat_map(|chunk| f16::from_le_bytes(exact(chunk)).to_f32().to_le_bytes())
        .collect())
}

/// What the constant 8-bit or 4-bit integers of the tensor stand for, as the bytes of float32.
pub(crate) fn dequantize(tensor: &Tensor<'_>) -> Result<Vec<u8>, String> {
    let bytes = operand_bytes(tensor)?;
    let value = |byte: u8| match tensor.element_type {
        ElementType::Uint8 => i32::from(byte),
        _ => i32::from(byte as i8),
    };
    match &tensor.parameters {
        Parameters::PerTensor(quantization) => Ok(bytes
            .iter()
            .flat_map(|byte| {
                let steps = value(*byte).wrapping_sub(quantization.zero_point);
                (steps as f32 * quantization.scale).to_le_bytes()
            })
            .collect()),
        Parameters::PerChannel { scales, dimension } => {
            let inner = inner_extent(tensor, *dimension, scales.len())?;
            Ok(bytes
                .iter()
                .enumerate()
                .flat_map(|(at, byte)| {
                    let scale = scales[at / inner % scales.len()];
                    (value(*byte) as f32 * scale).to_le_bytes()
                })
                .collect())
        }
        Parameters::None => Err("has no scale".to_owned()),
        Parameters::Unsupported(reason) => Err(reason.clone()),
    }
}

/// Number of elements from one index along `dimension` to the next, where there is one scale for each index.
fn inner_extent(tensor: &Tensor<'_>, dimension: usize, scales: usize) -> Result<usize, String> {
    let extent = tensor.dimensions.get(dimension).copied().unwrap_or_default();
    if extent as usize != scales {
        return Err(format!(
            "has {scales} scales along dimension {dimension}, which has extent {extent}"
        ));
    }
    let inner = tensor.dimensions[dimension + 1..]
        .iter()
        .try_fold(1_usize, |product, extent| product.checked_mul(*extent as usize));
    inner.filter(|inner| *inner > 0).ok_or_else(|| {
        format!(
            "has dimensions {:?}, which have no elements or too many",
            tensor.dimensions
        )
    })
}

/// 4-bit integers as bytes.
fn unpacked(tensor: &Tensor<'_>, data: &[u8]) -> Result<Vec<u8>, String> {
    let wanted = tensor.elements().unwrap_or(usize::MAX);
    if data.len() != wanted.div_ceil(2) {
        return Err(format!(
            "has {} bytes of int4 elements, its dimensions {:?} need {}",
            data.len(),
            tensor.dimensions,
            wanted.div_ceil(2)
        ));
    }
    let sign_extended = |nibble: u8| (((nibble << 4) as i8) >> 4) as u8;
    Ok(data
        .iter()
        .flat_map(|byte| [sign_extended(byte & 0xF), sign_extended(byte >> 4)])
        .take(wanted)
        .collect())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::{dequantize, integers, operand_bytes, widen};
    use crate::tensor::{ElementType, Parameters, Quantization, Tensor};

    fn tensor(element_type: ElementType, dimensions: &[u32], data: &[u8]) -> Tensor<'static> {
        Tensor {
            name: String::new(),
            element_type,
            dimensions: dimensions.to_vec(),
            open: Vec::new(),
            parameters: Parameters::None,
            data: Some(Cow::Owned(data.to_vec())),
            is_variable: false,
            is_sparse: false,
            defect: None,
        }
    }

    fn floats(bytes: &[u8]) -> Vec<f32> {
        bytes
            .chunks_exact(4)
            .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
            .collect()
    }

    #[test]
    fn int4_elements_come_low_half_first_with_their_sign() {
        let tensor = tensor(ElementType::Int4, &[3], &[0xF7, 0x08]);
        assert_eq!(operand_bytes(&tensor).unwrap().as_ref(), [7, 0xFF, 0xF8]);
    }

    #[test]
    fn int4_elements_of_wrong_count_are_refused() {
        assert!(operand_bytes(&tensor(ElementType::Int4, &[5], &[0, 0])).is_err());
    }

    #[test]
    fn channels_are_dequantized_by_their_own_scales() {
        let mut weights = tensor(ElementType::Int8, &[2, 2], &[1, 0xFF, 2, 3]);
        weights.parameters = Parameters::PerChannel {
            scales: vec![0.5, 10.0],
            dimension: 0,
        };
        assert_eq!(floats(&dequantize(&weights).unwrap()), [0.5, -0.5, 20.0, 30.0]);
        weights.parameters = Parameters::PerChannel {
            scales: vec![0.5, 10.0],
            dimension: 1,
        };
        assert_eq!(floats(&dequantize(&weights).unwrap()), [0.5, -10.0, 1.0, 30.0]);
        weights.parameters = Parameters::PerChannel {
            scales: vec![0.5; 3],
            dimension: 1,
        };
        assert!(dequantize(&weights).is_err());
    }

    #[test]
    fn unsigned_bytes_are_dequantized_around_their_zero_point() {
        let mut weights = tensor(ElementType::Uint8, &[2], &[128, 255]);
        weights.parameters = Parameters::PerTensor(Quantization {
            scale: 2.0,
            zero_point: 128,
        });
        assert_eq!(floats(&dequantize(&weights).unwrap()), [0.0, 254.0]);
    }

    #[test]
    fn half_floats_widen_exactly() {
        let tensor = tensor(ElementType::Float16, &[2], &[0x00, 0x3C, 0x00, 0xC1]);
        assert_eq!(floats(&widen(&tensor).unwrap()), [1.0, -2.5]);
    }

    #[test]
    fn integers_of_wrong_count_are_refused() {
        assert_eq!(
            integers(&tensor(ElementType::Int32, &[1], &[5, 0, 0, 0])).unwrap(),
            [5]
        );
        assert!(integers(&tensor(ElementType::Int32, &[2], &[5, 0, 0, 0])).is_err());
        assert!(integers(&tensor(ElementType::Float32, &[1], &[5, 0, 0, 0])).is_err());
    }
}
