//! How values are laid out in memory, of standard types and of those of a model's extensions.

use super::{Extension, ExtensionOperandTypeInformation, Model, OperandType, Shape, tflite};

/// How values of an operand type are laid out, for standard types as for those of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeLayout {
    /// Whether operands of the type have dimensions.
    pub is_tensor: bool,
    /// Bytes of a scalar, or of one element of a tensor.
    pub element_size: usize,
}

/// What the operand types of one model are where a device has defined its extensions' types.
///
/// The same number means different types in different models: this resolves a model's prefixes to names, and
/// the names to a device's definitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeLayouts {
    /// For each prefix of an extension that the device has, and for that of [`tflite`].
    extensions: Vec<(u16, Vec<ExtensionOperandTypeInformation>)>,
}

impl TypeLayouts {
    /// The types of `model` on a device that supports `extensions`. Those of [`tflite`] are known anyway.
    #[must_use]
    pub fn of(model: &Model, extensions: &[Extension]) -> TypeLayouts {
        let mappings = model.extension_name_to_prefix.iter();
        let known = mappings.filter_map(|mapping| {
            if mapping.name == tflite::NAME {
                return Some((mapping.prefix, tflite::extension().operand_types));
            }
            let extension = extensions.iter().find(|known| known.name == mapping.name)?;
            Some((mapping.prefix, extension.operand_types.clone()))
        });
        TypeLayouts {
            extensions: known.collect(),
        }
    }

    /// The layout of a type; `None` where nothing fixes it: OEM types, types that there are not, and types of
    /// extensions that the device does not have, but for [`tflite`].
    #[must_use]
    pub fn get(&self, ty: OperandType) -> Option<TypeLayout> {
        let types = self.types_of(ty.extension_prefix());
        let Some(types) = types.filter(|_| ty.is_extension()) else {
            let is_fixed = !ty.is_oem() && (ty.is_tensor() || ty.is_scalar());
            return is_fixed.then(|| TypeLayout {
                is_tensor: ty.is_tensor(),
                element_size: ty.element_size(),
            });
        };
        let known = types.iter().find(|known| known.number == ty.extension_number())?;
        Some(TypeLayout {
            is_tensor: known.is_tensor,
            element_size: usize::try_from(known.byte_size).ok()?,
        })
    }

    /// Whether operands of the type have dimensions; `false` where nothing says so.
    #[must_use]
    pub fn is_tensor(&self, ty: OperandType) -> bool {
        self.get(ty).map_or(ty.is_tensor(), |layout| layout.is_tensor)
    }

    /// Whether operands of the type have no dimensions; `false` where nothing says so.
    #[must_use]
    pub fn is_scalar(&self, ty: OperandType) -> bool {
        self.get(ty).map_or(ty.is_scalar(), |layout| !layout.is_tensor)
    }

    /// The operand types that the device defines for this prefix; `None` if it does not have the extension.
    #[must_use]
    pub fn types_of(&self, prefix: u16) -> Option<&[ExtensionOperandTypeInformation]> {
        let known = self.extensions.iter().find(|(known, _)| *known == prefix);
        known.map(|(_, types)| types.as_slice())
    }

    /// Exact size of a value of this type and shape in bytes; `None` if a dimension or the layout is not
    /// known, or if the size does not fit 32 bits.
    #[must_use]
    pub fn byte_size(&self, ty: OperandType, shape: &Shape) -> Option<usize> {
        let layout = self.get(ty)?;
        let is_known = !layout.is_tensor || (shape.rank() > 0 && shape.is_fully_specified());
        is_known
            .then(|| shape.byte_size(layout.element_size).ok())
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExtensionNameAndPrefix;

    fn layouts() -> TypeLayouts {
        let ty = |number, is_tensor, byte_size| ExtensionOperandTypeInformation {
            number,
            is_tensor,
            byte_size,
        };
        let device = [
            Extension {
                name: "com.acme.other".into(),
                operand_types: vec![ty(0, true, 1)],
            },
            Extension {
                name: "com.acme.wide".into(),
                operand_types: vec![ty(0, false, 8), ty(1, true, 8)],
            },
        ];
        let mapping = |name: &str, prefix| ExtensionNameAndPrefix {
            name: name.into(),
            prefix,
        };
        let model = Model {
            extension_name_to_prefix: vec![mapping("com.acme.wide", 7), mapping("com.acme.unknown", 8)],
            ..Model::default()
        };
        TypeLayouts::of(&model, &device)
    }

    #[test]
    fn extension_types_are_found_by_name_whatever_their_prefix() {
        let layouts = layouts();
        let found = |prefix, number| layouts.get(OperandType::extension(prefix, number));
        let layout = |is_tensor| TypeLayout {
            is_tensor,
            element_size: 8,
        };
        assert_eq!(found(7, 0), Some(layout(false)));
        assert_eq!(found(7, 1), Some(layout(true)));
        assert_eq!(found(7, 2), None);
        assert_eq!(found(8, 0), None);
        assert_eq!(found(1, 0), None);
    }

    #[test]
    fn types_of_the_own_extension_are_known_without_a_device() {
        let model = Model {
            extension_name_to_prefix: vec![ExtensionNameAndPrefix {
                name: tflite::NAME.into(),
                prefix: 3,
            }],
            ..Model::default()
        };
        let claims_otherwise = Extension {
            operand_types: Vec::new(),
            ..tflite::extension()
        };
        for device in [&[][..], &[claims_otherwise]] {
            let layout = TypeLayouts::of(&model, device).get(OperandType::extension(3, 0));
            let expected = TypeLayout {
                is_tensor: true,
                element_size: 8,
            };
            assert_eq!(layout, Some(expected));
        }
        let size = TypeLayouts::default().byte_size(tflite::TENSOR_INT64, &Shape::new(&[3]).unwrap());
        assert_eq!(size, Some(24));
    }

    #[test]
    fn sizes_are_known_where_layout_and_dimensions_are() {
        let layouts = layouts();
        let size =
            |ty, dimensions: &[u32]| layouts.byte_size(ty, &Shape::new(dimensions).unwrap_or_default());
        assert_eq!(size(OperandType::extension(7, 0), &[]), Some(8));
        assert_eq!(size(OperandType::extension(7, 1), &[2, 3]), Some(48));
        assert_eq!(size(OperandType::extension(7, 1), &[2, 0]), None);
        assert_eq!(size(OperandType::extension(7, 1), &[]), None);
        assert_eq!(size(OperandType::extension(7, 1), &[1 << 30]), None);
        assert_eq!(size(OperandType::extension(8, 1), &[2]), None);
        assert_eq!(size(OperandType::TENSOR_FLOAT32, &[2]), Some(8));
        assert_eq!(size(OperandType::INT32, &[]), Some(4));
        assert_eq!(size(OperandType::TENSOR_OEM_BYTE, &[2]), None);
        assert_eq!(size(OperandType::OEM, &[]), None);
        assert_eq!(size(OperandType(999), &[]), None);
    }
}
