//! Types of operands and of the Rust values that fill them.

use half::f16;
use nnhal_hal::{
    ExtraParams, Operand, OperandType, Shape, SymmPerChannelQuantParams, TypeLayout, TypeLayouts,
};

/// What an operand is: its type, its dimensions and its quantisation.
///
/// Dimensions are outermost first; 0 is an extent that is not known before the execution, no dimensions at
/// all are a scalar, or a tensor of unknown rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorType {
    operand: Operand,
}

impl TensorType {
    /// Any type of the HAL, without quantisation. Scalars have no dimensions.
    #[must_use]
    pub fn new(operand_type: OperandType, dimensions: &[u32]) -> TensorType {
        TensorType {
            operand: Operand::new(operand_type, dimensions),
        }
    }

    /// A tensor of 32-bit floats, `TENSOR_FLOAT32`.
    #[must_use]
    pub fn float32(dimensions: &[u32]) -> TensorType {
        TensorType::new(OperandType::TENSOR_FLOAT32, dimensions)
    }

    /// A tensor of 16-bit floats, `TENSOR_FLOAT16`.
    #[must_use]
    pub fn float16(dimensions: &[u32]) -> TensorType {
        TensorType::new(OperandType::TENSOR_FLOAT16, dimensions)
    }

    /// A tensor of 32-bit integers, `TENSOR_INT32`.
    #[must_use]
    pub fn int32(dimensions: &[u32]) -> TensorType {
        TensorType::new(OperandType::TENSOR_INT32, dimensions)
    }

    /// A tensor of truth values, one byte each, `TENSOR_BOOL8`.
    #[must_use]
    pub fn bool8(dimensions: &[u32]) -> TensorType {
        TensorType::new(OperandType::TENSOR_BOOL8, dimensions)
    }

    /// A tensor of unsigned bytes that mean `(value - zero_point) * scale`, `TENSOR_QUANT8_ASYMM`.
    #[must_use]
    pub fn quant8_asymm(dimensions: &[u32], scale: f32, zero_point: i32) -> TensorType {
        TensorType::new(OperandType::TENSOR_QUANT8_ASYMM, dimensions).with_quantization(scale, zero_point)
    }

    /// A tensor of signed bytes that mean `(value - zero_point) * scale`, `TENSOR_QUANT8_ASYMM_SIGNED`.
    #[must_use]
    pub fn quant8_asymm_signed(dimensions: &[u32], scale: f32, zero_point: i32) -> TensorType {
        TensorType::new(OperandType::TENSOR_QUANT8_ASYMM_SIGNED, dimensions)
            .with_quantization(scale, zero_point)
    }

    /// A tensor of signed bytes with one scale for each index of dimension `channel_dim`,
    /// `TENSOR_QUANT8_SYMM_PER_CHANNEL`.
    #[must_use]
    pub fn quant8_symm_per_channel(dimensions: &[u32], scales: &[f32], channel_dim: u32) -> TensorType {
        TensorType::new(OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL, dimensions).with_extra_params(
            ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
                scales: scales.to_vec(),
                channel_dim,
            }),
        )
    }

    /// The same with this scale and zero point.
    #[must_use]
    pub fn with_quantization(self, scale: f32, zero_point: i32) -> TensorType {
        TensorType {
            operand: self.operand.with_quantization(scale, zero_point),
        }
    }

    /// The same with these parameters, whose form the extension defines, for types of extensions.
    #[must_use]
    pub fn with_extension_params(self, bytes: &[u8]) -> TensorType {
        self.with_extra_params(ExtraParams::Extension(bytes.to_vec()))
    }

    /// The same with these extra parameters, for extension types.
    #[must_use]
    pub fn with_extra_params(mut self, extra_params: ExtraParams) -> TensorType {
        self.operand.extra_params = extra_params;
        self
    }

    /// The type alone.
    #[must_use]
    pub fn operand_type(&self) -> OperandType {
        self.operand.operand_type
    }

    /// The dimensions, outermost first; 0 where an extent is not known.
    #[must_use]
    pub fn dimensions(&self) -> &[u32] {
        &self.operand.dimensions
    }

    /// Real units of one step, 0 for types without a scale.
    #[must_use]
    pub fn scale(&self) -> f32 {
        self.operand.scale
    }

    /// The value that means 0.0, for quantised types.
    #[must_use]
    pub fn zero_point(&self) -> i32 {
        self.operand.zero_point
    }

    /// Size of a value in bytes; `None` if a dimension is not known, or if the HAL does not fix the size.
    #[must_use]
    pub fn byte_size(&self) -> Option<usize> {
        self.byte_size_among(&TypeLayouts::default())
    }

    /// As [`TensorType::byte_size`], where types of extensions may be among `layouts`.
    #[must_use]
    pub fn byte_size_among(&self, layouts: &TypeLayouts) -> Option<usize> {
        layouts.byte_size(self.operand_type(), &Shape::new(self.dimensions()).ok()?)
    }
}

/// Bytes of a value that was written, whose extents unlike an argument's may be 0; `None` where that is not
/// fixed.
pub(crate) fn written_bytes(layout: Option<TypeLayout>, shape: &Shape) -> Option<usize> {
    let layout = layout.filter(|layout| !layout.is_tensor || shape.rank() > 0)?;
    shape.byte_size(layout.element_size).ok()
}

impl From<TensorType> for Operand {
    fn from(ty: TensorType) -> Operand {
        ty.operand
    }
}

impl From<&Operand> for TensorType {
    /// Keeps what belongs to the type and drops what belongs to one model.
    fn from(operand: &Operand) -> TensorType {
        TensorType::new(operand.operand_type, &operand.dimensions)
            .with_quantization(operand.scale, operand.zero_point)
            .with_extra_params(operand.extra_params.clone())
    }
}

/// A Rust type whose values fill operands.
pub trait Element: bytemuck::Pod {
    /// The scalar operand type of one value; `None` where the HAL has none.
    const SCALAR: Option<OperandType>;

    /// Whether operands of this type consist of such values. Bytes fill operands of any type.
    #[must_use]
    fn fills(operand_type: OperandType) -> bool;
}

macro_rules! elements {
    ($($rust:ty, $scalar:expr, [$($operand:ident),*];)*) => {$(
        impl Element for $rust {
            const SCALAR: Option<OperandType> = $scalar;

            fn fills(operand_type: OperandType) -> bool {
                operand_type.is_extension() $(|| operand_type == OperandType::$operand)*
            }
        }
    )*};
}

elements! {
    f32, Some(OperandType::FLOAT32), [FLOAT32, TENSOR_FLOAT32];
    f16, Some(OperandType::FLOAT16), [FLOAT16, TENSOR_FLOAT16];
    i32, Some(OperandType::INT32), [INT32, TENSOR_INT32];
    u32, Some(OperandType::UINT32), [UINT32];
    i8, None, [TENSOR_QUANT8_ASYMM_SIGNED, TENSOR_QUANT8_SYMM, TENSOR_QUANT8_SYMM_PER_CHANNEL];
    i16, None, [TENSOR_QUANT16_SYMM];
    u16, None, [TENSOR_QUANT16_ASYMM];
    // The HAL has no such types; extensions may.
    i64, None, [];
    u64, None, [];
    f64, None, [];
}

impl Element for u8 {
    /// A truth value: 0 is false, anything else true.
    const SCALAR: Option<OperandType> = Some(OperandType::BOOL);

    fn fills(_: OperandType) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_size_is_known_only_where_every_dimension_is() {
        assert_eq!(TensorType::float32(&[2, 3]).byte_size(), Some(24));
        assert_eq!(TensorType::float32(&[2, 0]).byte_size(), None);
        assert_eq!(TensorType::float32(&[]).byte_size(), None);
        assert_eq!(TensorType::new(OperandType::INT32, &[]).byte_size(), Some(4));
        assert_eq!(TensorType::float32(&[1 << 20, 1 << 20]).byte_size(), None);
        assert_eq!(TensorType::new(OperandType(0x1_0000), &[2]).byte_size(), None);
    }

    #[test]
    fn wide_numbers_fill_types_of_extensions_only() {
        assert!(i64::fills(OperandType::extension(1, 0)) && f64::fills(OperandType::extension(1, 0)));
        assert!(
            !OperandType::ALL
                .iter()
                .any(|&ty| i64::fills(ty) || u64::fills(ty) || f64::fills(ty))
        );
    }

    #[test]
    fn every_type_with_a_size_has_rust_values_of_that_size() {
        fn check<T: Element>(ty: OperandType) -> bool {
            T::fills(ty) && size_of::<T>() == ty.element_size()
        }
        for &ty in OperandType::ALL {
            let found = check::<f32>(ty)
                || check::<f16>(ty)
                || check::<i32>(ty)
                || check::<u32>(ty)
                || check::<i8>(ty)
                || check::<i16>(ty)
                || check::<u16>(ty)
                || check::<u8>(ty);
            assert_eq!(found, ty.element_size() > 0, "{ty}");
        }
    }
}
