//! Tensors of a file, and the operands that stand for them.

use std::borrow::Cow;

use nnhal_hal::{ExtraParams, MAX_RANK, Operand, OperandType, SymmPerChannelQuantParams, tflite};

use crate::file::tables;

/// The format's number of the type of complex numbers of two 32-bit floats.
const COMPLEX64: i8 = 8;

/// Those of unsigned integers.
const UINT64: i8 = 12;
const UINT32: i8 = 15;

/// The element type of a tensor, as the file states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// 32-bit floats.
    Float32,
    /// 16-bit floats.
    Float16,
    /// Signed 32-bit integers.
    Int32,
    /// Unsigned bytes, quantized or plain.
    Uint8,
    /// Signed 64-bit integers, for which the extension has a type.
    Int64,
    /// Text.
    String,
    /// Truth values of one byte.
    Bool,
    /// Signed 16-bit integers.
    Int16,
    /// Signed bytes, quantized or plain.
    Int8,
    /// Signed 4-bit integers, two to a byte, the first in the lower half.
    Int4,
    /// Any other type, by the format's number.
    Other(i8),
}

impl ElementType {
    pub(crate) fn from_code(code: i8) -> ElementType {
        match code {
            0 => ElementType::Float32,
            1 => ElementType::Float16,
            2 => ElementType::Int32,
            3 => ElementType::Uint8,
            4 => ElementType::Int64,
            5 => ElementType::String,
            6 => ElementType::Bool,
            7 => ElementType::Int16,
            9 => ElementType::Int8,
            17 => ElementType::Int4,
            other => ElementType::Other(other),
        }
    }

    /// Bytes of one element in the file; `None` where elements have no fixed size of whole bytes.
    #[must_use]
    pub fn size(self) -> Option<usize> {
        match self {
            ElementType::Float32 | ElementType::Int32 => Some(4),
            ElementType::Float16 | ElementType::Int16 => Some(2),
            ElementType::Int64 => Some(8),
            ElementType::Uint8 | ElementType::Int8 | ElementType::Bool => Some(1),
            ElementType::String | ElementType::Int4 | ElementType::Other(_) => None,
        }
    }
}

impl std::fmt::Display for ElementType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ElementType::Float32 => "float32",
            ElementType::Float16 => "float16",
            ElementType::Int32 => "int32",
            ElementType::Uint8 => "uint8",
            ElementType::Int64 => "int64",
            ElementType::String => "string",
            ElementType::Bool => "bool",
            ElementType::Int16 => "int16",
            ElementType::Int8 => "int8",
            ElementType::Int4 => "int4",
            ElementType::Other(code) => match *code {
                COMPLEX64 => "complex64",
                10 => "float64",
                11 => "complex128",
                UINT64 => "uint64",
                13 => "resource",
                14 => "variant",
                UINT32 => "uint32",
                16 => "uint16",
                18 => "bfloat16",
                19 => "int2",
                20 => "uint4",
                _ => return write!(f, "unknown element type {code}"),
            },
        })
    }
}

/// Quantization of one scale: real = (value - zero point) * scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantization {
    /// Real units of one step.
    pub scale: f32,
    /// The value that means 0.0.
    pub zero_point: i32,
}

/// Quantization parameters of a tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parameters {
    None,
    PerTensor(Quantization),
    PerChannel { scales: Vec<f32>, dimension: usize },
    Unsupported(String),
}

/// A tensor of the file, in terms of the importer.
#[derive(Clone, Debug)]
pub(crate) struct Tensor<'a> {
    pub(crate) name: String,
    pub(crate) element_type: ElementType,
    /// Dimensions; none for a scalar, or for a tensor whose shape only its operator tells.
    pub(crate) dimensions: Vec<u32>,
    /// Which of them the file leaves open, though it states an extent; empty if none.
    pub(crate) open: Vec<bool>,
    pub(crate) parameters: Parameters,
    /// The value, if constant.
    pub(crate) data: Option<Cow<'a, [u8]>>,
    pub(crate) is_variable: bool,
    pub(crate) is_sparse: bool,
    /// What makes the tensor unusable.
    pub(crate) defect: Option<String>,
}

impl<'a> Tensor<'a> {
    /// The tensor of a table, with its constant data.
    pub(crate) fn new(table: &tables::Tensor<'a>, data: Option<&'a [u8]>) -> Tensor<'a> {
        let mut defect = None;
        let mut dimensions = Vec::new();
        if table.shape.len() > MAX_RANK {
            defect = Some(format!(
                "has rank {}, at most {MAX_RANK} is supported",
                table.shape.len()
            ));
        } else {
            for extent in table.shape.iter() {
                match u32::try_from(extent) {
                    Ok(extent) => dimensions.push(extent),
                    Err(_) => defect = Some(format!("has a dimension of {extent}, must be at least 1")),
                }
            }
        }
        if table.external_buffer != 0 {
            defect = Some("has its data in another file, which is not supported".to_owned());
        }
        Tensor {
            name: table.name.to_text(),
            element_type: ElementType::from_code(table.element_type),
            open: open_dimensions(table, dimensions.len()),
            dimensions,
            parameters: parameters(table.quantization.as_ref()),
            data: data.map(Cow::Borrowed),
            is_variable: table.is_variable,
            is_sparse: table.sparsity.is_some(),
            defect,
        }
    }

    /// Whether the tensor may have these dimensions: those that the file states, but where it leaves them
    /// open.
    pub(crate) fn check_dimensions(&self, wanted: &[u32]) -> Result<(), String> {
        let is_open = |axis: usize| self.open.get(axis).copied().unwrap_or(false);
        let stated = self.dimensions.iter().zip(wanted).enumerate();
        let fits = |(axis, (stated, wanted)): (usize, (&u32, &u32))| {
            if is_open(axis) {
                *wanted > 0
            } else {
                stated == wanted
            }
        };
        if wanted.len() == self.dimensions.len() && stated.into_iter().all(fits) {
            return Ok(());
        }
        let stated = self.dimensions.iter().enumerate();
        let stated = stated.map(|(axis, extent)| if is_open(axis) { -1 } else { i64::from(*extent) });
        Err(format!(
            "cannot have dimensions {wanted:?}, the file says {:?} (-1 for any)",
            stated.collect::<Vec<_>>()
        ))
    }

    /// How messages name the tensor.
    pub(crate) fn label(&self, index: usize) -> String {
        if self.name.is_empty() {
            format!("tensor #{index}")
        } else {
            format!("tensor #{index} \"{}\"", self.name)
        }
    }

    /// Whether the file gives the tensor a value.
    pub(crate) fn is_constant(&self) -> bool {
        self.data.is_some()
    }

    /// Number of elements by the dimensions.
    pub(crate) fn elements(&self) -> Option<usize> {
        self.dimensions
            .iter()
            .try_fold(1_usize, |product, extent| product.checked_mul(*extent as usize))
    }

    /// The quantization, where one scale serves the whole tensor.
    pub(crate) fn quantization(&self) -> Option<Quantization> {
        match self.parameters {
            Parameters::PerTensor(quantization) => Some(quantization),
            _ => None,
        }
    }

    /// Whether channels differ in scale.
    pub(crate) fn has_channel_scales(&self) -> bool {
        match &self.parameters {
            Parameters::PerChannel { scales, .. } => scales.windows(2).any(|pair| pair[0] != pair[1]),
            _ => false,
        }
    }

    /// Whether elements are 8-bit integers.
    pub(crate) fn is_quant8(&self) -> bool {
        matches!(self.element_type, ElementType::Uint8 | ElementType::Int8)
    }

    /// Whether elements are pairs of 32-bit floats.
    pub(crate) fn is_complex(&self) -> bool {
        self.element_type == ElementType::Other(COMPLEX64)
    }

    /// Whether elements are unsigned integers of 32 or 64 bits.
    pub(crate) fn is_unsigned(&self) -> bool {
        matches!(self.element_type, ElementType::Other(UINT32 | UINT64))
    }

    /// How many 32-bit words stand for an element, if more than one.
    pub(crate) fn halves(&self) -> Option<u32> {
        (self.element_type == ElementType::Other(UINT64)).then_some(2)
    }

    /// An operand with the bits of unsigned integers. The halves of 64 bits lie along one more axis.
    pub(crate) fn words(&self) -> Result<Operand, String> {
        self.check()?;
        let mut operand = Operand::new(OperandType::TENSOR_INT32, &self.dimensions);
        operand.dimensions.extend(self.halves());
        Ok(operand)
    }

    /// Whether elements are floats.
    pub(crate) fn is_float(&self) -> bool {
        matches!(self.element_type, ElementType::Float32 | ElementType::Float16)
    }

    /// Says what makes an operand of the tensor impossible, whatever its type.
    fn check(&self) -> Result<(), String> {
        if let Some(defect) = &self.defect {
            return Err(defect.clone());
        }
        if self.dimensions.contains(&0) {
            return Err("has a dimension of 0, for which NNAPI has no constant or fixed shape".to_owned());
        }
        Ok(())
    }

    /// An operand of the tensor's type, shape and quantization. The dimensions of a scalar stay empty here.
    pub(crate) fn operand(&self) -> Result<Operand, String> {
        self.check()?;
        let plain = |ty| Ok(Operand::new(ty, &self.dimensions));
        match self.element_type {
            ElementType::Float32 => plain(OperandType::TENSOR_FLOAT32),
            ElementType::Float16 => plain(OperandType::TENSOR_FLOAT16),
            ElementType::Int32 => plain(OperandType::TENSOR_INT32),
            ElementType::Int64 => plain(tflite::TENSOR_INT64),
            ElementType::Bool => plain(OperandType::TENSOR_BOOL8),
            ElementType::Uint8 => self.quantized(OperandType::TENSOR_QUANT8_ASYMM, 0..=255),
            ElementType::Int8 | ElementType::Int4 => {
                self.quantized(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, -128..=127)
            }
            ElementType::Int16 => self.quantized(OperandType::TENSOR_QUANT16_SYMM, 0..=0),
            ElementType::String | ElementType::Other(_) => Err(format!(
                "has elements of type {}, which NNAPI has not",
                self.element_type
            )),
        }
    }

    fn quantized(
        &self,
        ty: OperandType,
        zero_points: std::ops::RangeInclusive<i32>,
    ) -> Result<Operand, String> {
        match &self.parameters {
            // Plain integers: a step of one makes their values the real ones.
            Parameters::None => Ok(Operand::new(ty, &self.dimensions).with_quantization(1.0, 0)),
            Parameters::PerTensor(quantization) => {
                if !zero_points.contains(&quantization.zero_point) {
                    return Err(format!(
                        "has zero point {}, must be from {} to {} for {}",
                        quantization.zero_point,
                        zero_points.start(),
                        zero_points.end(),
                        self.element_type
                    ));
                }
                Ok(Operand::new(ty, &self.dimensions)
                    .with_quantization(quantization.scale, quantization.zero_point))
            }
            Parameters::PerChannel { scales, dimension } => {
                if ty != OperandType::TENSOR_QUANT8_ASYMM_SIGNED {
                    return Err(format!(
                        "has a scale for each channel and {} elements; NNAPI has that for int8 only",
                        self.element_type
                    ));
                }
                let mut operand = Operand::new(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, &self.dimensions);
                operand.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
                    scales: scales.clone(),
                    channel_dim: u32::try_from(*dimension).map_err(|error| error.to_string())?,
                });
                Ok(operand)
            }
            Parameters::Unsupported(reason) => Err(reason.clone()),
        }
    }
}

/// The dimensions that the signature of a shape leaves open; none, if it does not fit the shape.
fn open_dimensions(table: &tables::Tensor<'_>, rank: usize) -> Vec<bool> {
    let signature = &table.shape_signature;
    if signature.len() != rank || signature.iter().all(|extent| extent >= 0) {
        return Vec::new();
    }
    signature.iter().map(|extent| extent < 0).collect()
}

fn parameters(table: Option<&tables::Quantization<'_>>) -> Parameters {
    let Some(table) = table else {
        return Parameters::None;
    };
    if table.details_type != 0 {
        return Parameters::Unsupported(
            "has custom or blockwise quantization, which NNAPI has not".to_owned(),
        );
    }
    if let Some(scale) = table
        .scale
        .iter()
        .find(|scale| !(scale.is_finite() && *scale >= 0.0))
    {
        return Parameters::Unsupported(format!("has scale {scale}, must be above 0"));
    }
    match table.scale.len() {
        0 => Parameters::None,
        1 => per_tensor(table),
        _ => per_channel(table),
    }
}

fn per_tensor(table: &tables::Quantization<'_>) -> Parameters {
    let scale = table.scale.get(0).unwrap_or_default();
    let zero_point = table.zero_point.get(0).unwrap_or_default();
    if scale == 0.0 {
        return Parameters::None;
    }
    match i32::try_from(zero_point) {
        Ok(zero_point) => Parameters::PerTensor(Quantization { scale, zero_point }),
        Err(_) => Parameters::Unsupported(format!("has zero point {zero_point}, which is out of range")),
    }
}

fn per_channel(table: &tables::Quantization<'_>) -> Parameters {
    if let Some(zero_point) = table.zero_point.iter().find(|zero_point| *zero_point != 0) {
        return Parameters::Unsupported(format!(
            "has a scale for each channel and zero point {zero_point}; NNAPI's must be 0"
        ));
    }
    match usize::try_from(table.quantized_dimension) {
        Ok(dimension) => Parameters::PerChannel {
            scales: table.scale.to_vec(),
            dimension,
        },
        Err(_) => Parameters::Unsupported(format!(
            "has a scale for each index of dimension {}, must be at least 0",
            table.quantized_dimension
        )),
    }
}
