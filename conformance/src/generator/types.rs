//! Types and quantization parameters of operands.

use nnhal_hal::ops::{Ty, Variant};
use nnhal_hal::{ExtraParams, Operand, OperandType, SymmPerChannelQuantParams};

use super::choices::Choices;

/// The type of a parameter under a variant.
pub(super) fn concrete_type(
    ty: Ty,
    variant: Option<&'static Variant>,
    choices: &mut Choices,
) -> Option<OperandType> {
    match ty {
        Ty::Var(variable) => variant?.types.get(variable).copied(),
        Ty::Is(only) => Some(only),
        Ty::AnyOf(types) => choices.pick(types).map(|(ty, _)| *ty),
    }
}

/// A legal scale and zero point for a tensor of this type; what has none gets zeros.
pub(super) fn some_quantization(choices: &mut Choices, operand: &mut Operand) {
    let scale = *choices.pick(&[0.5, 0.25, 1.0, 0.0625]).unwrap_or(&0.5);
    match operand.operand_type {
        OperandType::TENSOR_QUANT8_ASYMM => {
            operand.scale = scale;
            operand.zero_point = *choices.pick(&[128, 0, 100, 255]).unwrap_or(&128);
        }
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => {
            operand.scale = scale;
            operand.zero_point = *choices.pick(&[0, -128, -28, 127]).unwrap_or(&0);
        }
        OperandType::TENSOR_QUANT16_ASYMM => {
            // Coordinates: the HAL wants an eighth and no offset for them.
            operand.scale = 0.125;
        }
        OperandType::TENSOR_QUANT8_SYMM | OperandType::TENSOR_QUANT16_SYMM => operand.scale = scale,
        OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL => {
            let channel_dim = if operand.dimensions.len() == 4 && operand.dimensions[0] == 1 {
                // As depthwise convolutions need it.
                3
            } else {
                0
            };
            let channels = operand.dimensions.get(channel_dim).copied().unwrap_or(0);
            operand.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
                scales: (0..channels)
                    .map(|channel| scale * (channel % 3 + 1) as f32)
                    .collect(),
                channel_dim: channel_dim as u32,
            });
        }
        _ => {}
    }
}
