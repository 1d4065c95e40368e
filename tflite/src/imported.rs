//! What an import gives: a model, and what its user must know beside it.

use nnhal_hal::{Model, OperandType};

use crate::tensor::{ElementType, Quantization};

/// A model from a `.tflite` file.
///
/// The inputs of `model.main` are [`inputs`](ImportedModel::inputs) in the file's order and then one for each
/// of [`states`](ImportedModel::states); its outputs likewise.
#[derive(Clone, Debug)]
pub struct ImportedModel {
    /// The model, valid by [`nnhal_hal::validate`]. All constants are in its `operand_values`, large ones at
    /// multiples of 64 bytes.
    pub model: Model,
    /// The inputs of the file's main graph.
    pub inputs: Vec<TensorInfo>,
    /// The outputs of the file's main graph.
    pub outputs: Vec<TensorInfo>,
    /// What must be carried from one execution to the next.
    pub states: Vec<State>,
    /// Whether weights are stored as float16: what is computed with them is as coarse, whatever the types
    /// say.
    pub has_float16_weights: bool,
    /// Where the model differs from the file without being wrong.
    pub notes: Vec<Note>,
}

/// An input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// The tensor's name in the file; often made up by the converter, sometimes empty.
    pub name: String,
    /// The name that the file's signature gives it, if there is one.
    pub signature_name: Option<String>,
    /// The element type in the file.
    /// Where it is written `complex64`, the operand has floats and one more axis: real and imaginary parts.
    /// Where it is written `uint32` or `uint64`, the operand has the same bits as 32-bit integers; the halves
    /// of 64 bits lie along one more axis, the lower one first.
    pub element_type: ElementType,
    /// The operand's type.
    pub operand_type: OperandType,
    /// The operand's dimensions: `[1]` for a scalar; empty or with a 0 where only an execution tells.
    pub dimensions: Vec<u32>,
    /// Which dimensions the file leaves open; empty if none. An import can give them
    /// ([`ImportOptions`](crate::ImportOptions)).
    pub open: Vec<bool>,
    /// How integers stand for real numbers, if the file says so.
    pub quantization: Option<Quantization>,
}

/// A variable of the file, or the generator of an operator's random numbers: an input that the first
/// execution takes as [`initial`](State::initial) and every later one as what the one before gave as the
/// output.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// The variable's name in the file, or which operator has the generator.
    pub name: String,
    /// Which input of the model.
    pub input: usize,
    /// Which output of the model.
    pub output: usize,
    /// The type of both operands.
    pub operand_type: OperandType,
    /// The dimensions of both operands.
    pub dimensions: Vec<u32>,
    /// The value before the first execution. That of a variable tensor is 0.0 in every element, but bytes of
    /// 0 for unsigned integers, which the file's runtime starts with as well.
    pub initial: Vec<u8>,
}

/// A difference between file and model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The operator of the main graph that it is about, if it is about one.
    pub operator: Option<usize>,
    /// What differs.
    pub text: String,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.operator {
            Some(index) => write!(f, "operation #{index}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// A value that does not fit its operand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElementError {
    /// The number of bytes is not that of whole elements.
    #[error("{bytes} bytes are not a whole number of {element_type} elements")]
    Size {
        /// The number of bytes.
        bytes: usize,
        /// The type of the elements.
        element_type: ElementType,
    },
}

impl TensorInfo {
    /// The operand's bytes for `data`, elements of the file's type in little-endian order.
    ///
    /// # Errors
    /// If `data` is not a whole number of elements.
    pub fn to_operand_bytes(&self, data: &[u8]) -> Result<Vec<u8>, ElementError> {
        let size = self.element_type.size().unwrap_or(1);
        if !data.len().is_multiple_of(size) {
            return Err(ElementError::Size {
                bytes: data.len(),
                element_type: self.element_type,
            });
        }
        Ok(data.to_vec())
    }

    /// The elements of the file's type, in little-endian order, for the operand's bytes.
    ///
    /// # Errors
    /// If `bytes` is not a whole number of elements.
    pub fn from_operand_bytes(&self, bytes: &[u8]) -> Result<Vec<u8>, ElementError> {
        let size = self.operand_type.element_size().max(1);
        if !bytes.len().is_multiple_of(size) {
            return Err(ElementError::Size {
                bytes: bytes.len(),
                element_type: self.element_type,
            });
        }
        Ok(bytes.to_vec())
    }
}

/// Name, element type and dimensions, and what integers mean if the file says so.
impl std::fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{} ", self.name)?;
        }
        write!(f, "{}{:?}", self.element_type, self.dimensions)?;
        match self.quantization {
            Some(Quantization { scale, zero_point }) => {
                write!(f, " of scale {scale} and zero point {zero_point}")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TensorInfo;
    use crate::tensor::{ElementType, Quantization};
    use nnhal_hal::OperandType;

    fn info(element_type: ElementType, operand_type: OperandType) -> TensorInfo {
        TensorInfo {
            name: String::new(),
            signature_name: None,
            element_type,
            operand_type,
            dimensions: vec![2],
            open: Vec::new(),
            quantization: None,
        }
    }

    #[test]
    fn text_has_all_that_is_needed_to_fill_a_tensor() {
        let float = info(ElementType::Float32, OperandType::TENSOR_FLOAT32);
        assert_eq!(float.to_string(), "float32[2]");
        let quantized = TensorInfo {
            name: "scores".into(),
            quantization: Some(Quantization {
                scale: 0.5,
                zero_point: -128,
            }),
            ..info(ElementType::Int8, OperandType::TENSOR_QUANT8_ASYMM_SIGNED)
        };
        assert_eq!(
            quantized.to_string(),
            "scores int8[2] of scale 0.5 and zero point -128"
        );
    }

    #[test]
    fn parts_of_elements_are_refused() {
        let info = info(ElementType::Float32, OperandType::TENSOR_FLOAT32);
        assert!(info.to_operand_bytes(&[0; 6]).is_err());
        assert!(info.from_operand_bytes(&[0; 6]).is_err());
        assert_eq!(info.to_operand_bytes(&[1; 8]).unwrap(), [1; 8]);
    }
}
