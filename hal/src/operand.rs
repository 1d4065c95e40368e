//! Operands: types, lifetimes, locations and quantisation parameters.

use serde::{Deserialize, Serialize};

use super::HalVersion;

/// HAL `OperandType`: a number, so that unknown and extension values can be carried and refused by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperandType(pub u32);

/// The prefix of this project's extension for TFLite in models that passed validation: the highest that NNAPI
/// has room for.
pub(crate) const TFLITE_PREFIX: u16 = 0x7FFF;

/// The extension's tensor of signed 64-bit integers. It has no scale.
pub(crate) const TENSOR_INT64: OperandType = OperandType::extension(TFLITE_PREFIX, 0);

/// The operand types of the extension, of which as much is known as of the HAL's.
pub(crate) const TFLITE_TYPES: &[OperandType] = &[TENSOR_INT64];

macro_rules! operand_types {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $since:ident, $tensor:literal, $size:literal;)*) => {
        impl OperandType {
            $($(#[$doc])* pub const $name: OperandType = OperandType($code);)*

            /// Every type the HAL defines, by rising code, extension types excepted.
            pub const ALL: &'static [OperandType] = &[$(OperandType::$name),*];

            /// Name, first version, whether a tensor, bytes per element.
            const fn facts(self) -> Option<(&'static str, HalVersion, bool, usize)> {
                match self {
                    $(OperandType::$name => Some((stringify!($name), HalVersion::$since, $tensor, $size)),)*
                    TENSOR_INT64 => Some(("TFLITE_TENSOR_INT64", HalVersion::V1_2, true, 8)),
                    _ => None,
                }
            }
        }
    };
}

operand_types! {
    /// A 32-bit float.
    FLOAT32 = 0, V1_0, false, 4;
    /// A signed 32-bit integer.
    INT32 = 1, V1_0, false, 4;
    /// An unsigned 32-bit integer.
    UINT32 = 2, V1_0, false, 4;
    /// A tensor of 32-bit floats.
    TENSOR_FLOAT32 = 3, V1_0, true, 4;
    /// A tensor of signed 32-bit integers, with a scale when it is the bias of a quantised operation.
    TENSOR_INT32 = 4, V1_0, true, 4;
    /// A tensor of unsigned bytes: real = (value - zero point) * scale.
    TENSOR_QUANT8_ASYMM = 5, V1_0, true, 1;
    /// One byte: 0 is false, anything else true.
    BOOL = 6, V1_2, false, 1;
    /// A tensor of signed 16-bit integers: real = value * scale.
    TENSOR_QUANT16_SYMM = 7, V1_2, true, 2;
    /// A tensor of IEEE 754 binary16 floats.
    TENSOR_FLOAT16 = 8, V1_2, true, 2;
    /// A tensor of bytes: 0 is false, anything else true.
    TENSOR_BOOL8 = 9, V1_2, true, 1;
    /// An IEEE 754 binary16 float.
    FLOAT16 = 10, V1_2, false, 2;
    /// A tensor of signed bytes with a scale for each index of one dimension.
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11, V1_2, true, 1;
    /// A tensor of unsigned 16-bit integers: real = (value - zero point) * scale.
    TENSOR_QUANT16_ASYMM = 12, V1_2, true, 2;
    /// A tensor of signed bytes: real = value * scale.
    TENSOR_QUANT8_SYMM = 13, V1_2, true, 1;
    /// A tensor of signed bytes: real = (value - zero point) * scale.
    TENSOR_QUANT8_ASYMM_SIGNED = 14, V1_3, true, 1;
    /// A reference to a subgraph, the branch or body of a control flow operation.
    SUBGRAPH = 15, V1_3, false, 0;
    /// Vendor-specific scalar of the deprecated OEM interface.
    OEM = 10000, V1_0, false, 0;
    /// Vendor-specific tensor of bytes of the deprecated OEM interface.
    TENSOR_OEM_BYTE = 10001, V1_0, true, 1;
}

impl OperandType {
    /// The HAL's name, or that of a type of [`crate::tflite`]; `None` for an unknown type or that of another
    /// extension.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.facts().map(|(name, ..)| name)
    }

    /// The type with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<OperandType> {
        let mut types = OperandType::ALL.iter().chain(TFLITE_TYPES);
        types.find(|ty| ty.name() == Some(name)).copied()
    }

    /// First HAL version that has the type; extension types came with 1.2.
    #[must_use]
    pub fn since(self) -> Option<HalVersion> {
        if self.is_extension() {
            Some(HalVersion::V1_2)
        } else {
            self.facts().map(|(_, since, ..)| since)
        }
    }

    /// Whether the HAL or [`crate::tflite`] defines the type as a tensor. Types of other extensions are
    /// unknown here, hence `false`.
    #[must_use]
    pub fn is_tensor(self) -> bool {
        matches!(self.facts(), Some((_, _, true, _)))
    }

    /// Whether the HAL defines the type as a scalar, [`OperandType::SUBGRAPH`] included.
    #[must_use]
    pub fn is_scalar(self) -> bool {
        matches!(self.facts(), Some((_, _, false, _)))
    }

    /// Bytes per element; 0 where nothing says so (OEM scalars, subgraphs, unknown types and those of
    /// extensions but [`crate::tflite`]).
    #[must_use]
    pub fn element_size(self) -> usize {
        self.facts().map_or(0, |(.., size)| size)
    }

    /// The type `number` of the extension that stands under `prefix`, above 0, in a model.
    #[must_use]
    pub const fn extension(prefix: u16, number: u16) -> OperandType {
        OperandType(((prefix as u32) << 16) | number as u32)
    }

    /// Whether the high half names an extension.
    #[must_use]
    pub fn is_extension(self) -> bool {
        self.0 > 0xFFFF
    }

    /// The extension's prefix in the model, for extension types.
    #[must_use]
    pub fn extension_prefix(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The number inside the extension, for extension types.
    #[must_use]
    pub fn extension_number(self) -> u16 {
        self.0 as u16
    }

    /// Whether the type belongs to the deprecated OEM interface.
    #[must_use]
    pub fn is_oem(self) -> bool {
        self == OperandType::OEM || self == OperandType::TENSOR_OEM_BYTE
    }

    /// Whether values are 16-bit integers with a scale.
    #[must_use]
    pub fn is_quant16(self) -> bool {
        matches!(
            self,
            OperandType::TENSOR_QUANT16_SYMM | OperandType::TENSOR_QUANT16_ASYMM
        )
    }

    /// Whether values are integers with a scale for the whole tensor.
    #[must_use]
    pub fn is_quantized_per_tensor(self) -> bool {
        matches!(
            self,
            OperandType::TENSOR_QUANT8_ASYMM
                | OperandType::TENSOR_QUANT8_ASYMM_SIGNED
                | OperandType::TENSOR_QUANT8_SYMM
                | OperandType::TENSOR_QUANT16_SYMM
                | OperandType::TENSOR_QUANT16_ASYMM
        )
    }
}

impl std::fmt::Display for OperandType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None if self.is_extension() => {
                write!(
                    f,
                    "extension type {:#x}:{}",
                    self.extension_prefix(),
                    self.extension_number()
                )
            }
            None => write!(f, "unknown operand type {}", self.0),
        }
    }
}

impl std::fmt::Debug for OperandType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// HAL `OperandLifeTime`: where an operand's value comes from and how long it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperandLifeTime {
    /// Written by one operation, read by others, gone after the execution.
    TemporaryVariable,
    /// Given to the subgraph: by the request for the main graph, by the operation for a referenced one.
    SubgraphInput,
    /// What the subgraph returns.
    SubgraphOutput,
    /// A constant inside the model's `operand_values`.
    ConstantCopy,
    /// A constant inside one of the model's pools.
    ConstantReference,
    /// An optional operand that is left out.
    NoValue,
    /// A reference to `Model::referenced[location.offset]`.
    Subgraph,
}

impl OperandLifeTime {
    /// Whether the model holds the value.
    #[must_use]
    pub fn is_constant(self) -> bool {
        matches!(
            self,
            OperandLifeTime::ConstantCopy | OperandLifeTime::ConstantReference
        )
    }
}

/// HAL `DataLocation`: a range of bytes in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct DataLocation {
    /// Index of the pool.
    pub pool_index: u32,
    /// First byte.
    pub offset: u32,
    /// Number of bytes.
    pub length: u32,
}

/// HAL `SymmPerChannelQuantParams`: scales along one dimension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SymmPerChannelQuantParams {
    /// One scale for each index of `channel_dim`, each above 0.
    pub scales: Vec<f32>,
    /// The dimension that the scales belong to.
    pub channel_dim: u32,
}

/// HAL `Operand::ExtraParams`: parameters that only some types have.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub enum ExtraParams {
    /// None: every type but the two below.
    #[default]
    None,
    /// For `TENSOR_QUANT8_SYMM_PER_CHANNEL`, always.
    ChannelQuant(SymmPerChannelQuantParams),
    /// For extension types, if the extension wants it: a blob the vendor defines.
    Extension(#[serde(with = "super::bytes")] Vec<u8>),
}

/// HAL `Operand` 1.3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operand {
    /// The type.
    pub operand_type: OperandType,
    /// Dimensions; empty for scalars and for tensors of unknown rank, 0 for an extent that is not specified.
    pub dimensions: Vec<u32>,
    /// How often the operand occurs as an operation input.
    pub number_of_consumers: u32,
    /// Real units of one step, for quantised types.
    pub scale: f32,
    /// The value that means 0.0, for asymmetric quantised types.
    pub zero_point: i32,
    /// Where the value comes from.
    pub lifetime: OperandLifeTime,
    /// Where the bytes are, for constants; the subgraph's index for subgraph operands.
    pub location: DataLocation,
    /// Parameters that only some types have.
    pub extra_params: ExtraParams,
}

impl Operand {
    /// A temporary of this type and shape, with no quantisation and no consumer yet.
    #[must_use]
    pub fn new(operand_type: OperandType, dimensions: &[u32]) -> Operand {
        Operand {
            operand_type,
            dimensions: dimensions.to_vec(),
            number_of_consumers: 0,
            scale: 0.0,
            zero_point: 0,
            lifetime: OperandLifeTime::TemporaryVariable,
            location: DataLocation::default(),
            extra_params: ExtraParams::None,
        }
    }

    /// The same operand with this scale and zero point.
    #[must_use]
    pub fn with_quantization(mut self, scale: f32, zero_point: i32) -> Operand {
        self.scale = scale;
        self.zero_point = zero_point;
        self
    }

    /// The same operand with this lifetime.
    #[must_use]
    pub fn with_lifetime(mut self, lifetime: OperandLifeTime) -> Operand {
        self.lifetime = lifetime;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::OperandType;
    use crate::{HalVersion, tflite};

    #[test]
    fn names_and_codes_are_unique() {
        for (index, ty) in OperandType::ALL.iter().enumerate() {
            assert_eq!(OperandType::from_name(ty.name().unwrap()), Some(*ty));
            assert!(OperandType::ALL[index + 1..].iter().all(|other| other.0 > ty.0));
        }
    }

    #[test]
    fn values_above_16_bits_are_extension_types() {
        let ty = OperandType(0x0003_0007);
        assert!(ty.is_extension());
        assert_eq!((ty.extension_prefix(), ty.extension_number()), (3, 7));
        assert_eq!(OperandType::extension(3, 7), ty);
        assert_eq!(ty.to_string(), "extension type 0x3:7");
        assert_eq!(OperandType(16).to_string(), "unknown operand type 16");
    }

    #[test]
    fn types_of_the_own_extension_are_known() {
        let ty = tflite::TENSOR_INT64;
        assert_eq!(ty.to_string(), "TFLITE_TENSOR_INT64");
        assert_eq!(OperandType::from_name("TFLITE_TENSOR_INT64"), Some(ty));
        assert!(ty.is_extension() && ty.is_tensor() && !ty.is_scalar());
        assert_eq!((ty.element_size(), ty.since()), (8, Some(HalVersion::V1_2)));
        assert_eq!(OperandType::extension(tflite::PREFIX, 1).name(), None);
    }
}
