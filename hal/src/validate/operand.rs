//! Operands: type, dimensions, quantisation, lifetime and location.

use crate::{
    DataLocation, ExtraParams, HalVersion, Operand, OperandLifeTime, OperandType, Shape, TypeLayouts,
};

use super::context::{ModelContext, declared_shape};
use super::limits;

/// Checks one operand and returns the first HAL version that can express it.
pub(super) fn check(context: &ModelContext<'_>, operand: &Operand) -> Result<HalVersion, String> {
    let since = check_type(context, operand.operand_type)?;
    let since = since.max(check_dimensions(&context.layouts, operand)?);
    check_quantization(operand)?;
    check_extra_params(operand)?;
    check_location(context, operand)?;
    Ok(if operand.lifetime == OperandLifeTime::Subgraph {
        HalVersion::V1_3
    } else {
        since
    })
}

/// Checks what an operand says of itself before it has a value or parameters: that its dimensions, scale and
/// zero point fit its type, which must be known.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check_declaration(operand: &Operand, layouts: &TypeLayouts) -> Result<(), String> {
    let ty = operand.operand_type;
    if ty.since().is_none() || (ty.is_extension() && layouts.get(ty).is_none()) {
        return Err(unknown_type(ty));
    }
    check_dimensions(layouts, operand)?;
    check_quantization(operand)
}

fn unknown_type(ty: OperandType) -> String {
    format!("has {ty}; the HAL knows codes 0 to 15, 10000 and 10001")
}

fn check_type(context: &ModelContext<'_>, ty: OperandType) -> Result<HalVersion, String> {
    if !ty.is_extension() {
        return ty.since().ok_or_else(|| unknown_type(ty));
    }
    let mapping = context
        .model
        .extension_name_to_prefix
        .iter()
        .find(|mapping| mapping.prefix == ty.extension_prefix())
        .ok_or_else(|| format!("has {ty}, whose prefix the model does not map to an extension"))?;
    let types = context.layouts.types_of(mapping.prefix);
    if types.is_none_or(|types| types.iter().any(|known| known.number == ty.extension_number())) {
        return Ok(HalVersion::V1_2);
    }
    Err(format!(
        "has type {} of {}, which has no such type",
        ty.extension_number(),
        mapping.name
    ))
}

fn check_dimensions(layouts: &TypeLayouts, operand: &Operand) -> Result<HalVersion, String> {
    let ty = operand.operand_type;
    let shape = declared_shape(&operand.dimensions)?;
    if layouts.is_scalar(ty) && !operand.dimensions.is_empty() {
        return Err(format!(
            "is the scalar {ty} with dimensions {:?}, must have none",
            operand.dimensions
        ));
    }
    if let Some(layout) = layouts.get(ty) {
        let size = shape.byte_size(layout.element_size);
        size.map_err(|error| format!("is too large: {error}"))?;
    }
    let constant = matches!(
        operand.lifetime,
        OperandLifeTime::ConstantCopy | OperandLifeTime::ConstantReference
    );
    let has_extents = layouts.get(ty).is_some_and(|layout| layout.is_tensor);
    if constant && has_extents {
        if operand.dimensions.is_empty() {
            return Err("is a constant tensor of unknown rank, must have dimensions".into());
        }
        if operand.dimensions.contains(&0) {
            return Err(format!(
                "is a constant with dimensions {:?}, every extent must be known",
                operand.dimensions
            ));
        }
    }
    let unknown_rank = ty.is_tensor() && operand.dimensions.is_empty();
    Ok(if unknown_rank {
        HalVersion::V1_2
    } else {
        HalVersion::V1_0
    })
}

fn check_quantization(operand: &Operand) -> Result<(), String> {
    let (ty, scale, zero_point) = (operand.operand_type, operand.scale, operand.zero_point);
    if ty.is_oem() {
        return Ok(());
    }
    let zero_points = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => 0..=255,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => -128..=127,
        OperandType::TENSOR_QUANT16_ASYMM => 0..=65535,
        _ => 0..=0,
    };
    if ty.is_quantized_per_tensor() {
        if !(scale.is_finite() && scale > 0.0) {
            return Err(format!("is {ty} with scale {scale}, must be above 0"));
        }
    } else if ty == OperandType::TENSOR_INT32 {
        if !(scale.is_finite() && scale >= 0.0) {
            return Err(format!("is {ty} with scale {scale}, must be 0 or above"));
        }
    } else if scale != 0.0 {
        return Err(format!("is {ty} with scale {scale}, must be 0"));
    }
    if !zero_points.contains(&zero_point) {
        return Err(format!(
            "is {ty} with zero point {zero_point}, must be from {} to {}",
            zero_points.start(),
            zero_points.end()
        ));
    }
    Ok(())
}

/// Checks that an operand has the further parameters that its type asks for, and no others.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check_extra_params(operand: &Operand) -> Result<(), String> {
    let ty = operand.operand_type;
    match &operand.extra_params {
        ExtraParams::ChannelQuant(params) if ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL => {
            let channels = *operand
                .dimensions
                .get(params.channel_dim as usize)
                .ok_or_else(|| {
                    format!(
                        "has channel dimension {} but rank {}",
                        params.channel_dim,
                        operand.dimensions.len()
                    )
                })?;
            if channels == 0 {
                return Err(format!(
                    "has channel dimension {} of unknown extent",
                    params.channel_dim
                ));
            }
            if params.scales.len() != channels as usize {
                return Err(format!(
                    "has {} scales for {channels} channels",
                    params.scales.len()
                ));
            }
            match params
                .scales
                .iter()
                .position(|scale| !(scale.is_finite() && *scale > 0.0))
            {
                Some(at) => Err(format!(
                    "has scale {} for channel {at}, must be above 0",
                    params.scales[at]
                )),
                None => Ok(()),
            }
        }
        ExtraParams::ChannelQuant(_) => Err(format!(
            "is {ty} with per-channel parameters, which only quantised per-channel tensors have"
        )),
        _ if ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL => {
            Err(format!("is {ty} without per-channel parameters"))
        }
        ExtraParams::Extension(_) if !ty.is_extension() => Err(format!(
            "is {ty} with extension parameters, which only extension types have"
        )),
        ExtraParams::Extension(_) | ExtraParams::None => Ok(()),
    }
}

fn check_location(context: &ModelContext<'_>, operand: &Operand) -> Result<(), String> {
    let location = operand.location;
    if (operand.lifetime == OperandLifeTime::Subgraph) != (operand.operand_type == OperandType::SUBGRAPH) {
        return Err("must have lifetime SUBGRAPH exactly if its type is SUBGRAPH".into());
    }
    match operand.lifetime {
        OperandLifeTime::TemporaryVariable
        | OperandLifeTime::SubgraphInput
        | OperandLifeTime::SubgraphOutput
        | OperandLifeTime::NoValue => {
            if location == DataLocation::default() {
                return Ok(());
            }
            Err(format!(
                "is not a constant but has the location {location:?}, must be all 0"
            ))
        }
        OperandLifeTime::Subgraph => {
            if location.pool_index != 0 || location.length != 0 {
                return Err(format!(
                    "refers to a subgraph with {location:?}; pool and length must be 0"
                ));
            }
            if location.offset as usize >= context.model.referenced.len() {
                return Err(format!(
                    "refers to subgraph {}, the model has {}",
                    location.offset,
                    context.model.referenced.len()
                ));
            }
            Ok(())
        }
        OperandLifeTime::ConstantCopy => {
            if location.pool_index != 0 {
                return Err(format!(
                    "is CONSTANT_COPY in pool {}, must be 0",
                    location.pool_index
                ));
            }
            check_range(
                location,
                context.model.operand_values.len() as u64,
                "operand_values",
            )?;
            check_length(context, operand)
        }
        OperandLifeTime::ConstantReference => {
            let pool = location.pool_index as usize;
            let declared =
                context.model.pools.get(pool).ok_or_else(|| {
                    format!("is in pool {pool}, the model has {}", context.model.pools.len())
                })?;
            let there = context.pools.size(pool).unwrap_or(0);
            check_range(location, declared.size.min(there), "its pool")?;
            check_length(context, operand)
        }
    }
}

fn check_range(location: DataLocation, size: u64, store: &str) -> Result<(), String> {
    let end = u64::from(location.offset) + u64::from(location.length);
    if end <= size {
        return Ok(());
    }
    Err(format!(
        "reaches from byte {} to {end}, {store} has {size}",
        location.offset
    ))
}

fn check_length(context: &ModelContext<'_>, operand: &Operand) -> Result<(), String> {
    let shape = declared_shape(&operand.dimensions)?;
    match context.constant_size(operand.operand_type, &shape)? {
        Some(size) if size != operand.location.length as usize => Err(format!(
            "is {} with dimensions {shape:?} in {} bytes, must be {size}",
            operand.operand_type, operand.location.length
        )),
        _ => Ok(()),
    }
}

/// What is known of an operand before execution.
pub(super) struct Known {
    /// Its dimensions, as declared and as operations imply.
    pub(super) shape: Shape,
    /// Whether the rank is known.
    pub(super) rank: bool,
    /// Its value, if a small constant.
    pub(super) parameter: Option<Parameter>,
}

/// The bytes of a constant that is small enough to be a parameter, aligned for 32-bit integers and floats.
pub(super) fn parameter_bytes(context: &ModelContext<'_>, operand: &Operand) -> Option<Parameter> {
    let bytes = context.model.constant_bytes(operand, context.pools)?;
    if bytes.len() > limits::MAX_PARAMETER_BYTES {
        return None;
    }
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    Some(Parameter {
        words,
        length: bytes.len(),
    })
}

/// An aligned copy of a small constant.
pub(super) struct Parameter {
    words: Vec<u64>,
    length: usize,
}

impl Parameter {
    pub(super) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }
}
