//! M10: every operand with every other type, all else as that type needs it.

use nnhal_hal::{
    DataLocation, ExtraParams, Model, OperandLifeTime, OperandType, SymmPerChannelQuantParams, tflite,
};

use super::legal::{self, Argument};
use super::mutant::{Mutant, Place};

/// M10. OEM types are left out: what they mean is the vendor's. So are operands that no operation uses.
pub(super) fn of_operands(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let uses = legal::uses(model, at);
        if uses.is_empty() || legal::is_compared_with_itself(&uses) {
            continue;
        }
        let types = OperandType::ALL.iter().chain(tflite::OPERAND_TYPES).copied();
        for ty in types.filter(|ty| !ty.is_oem()) {
            let legal = |argument: &Argument| legal::other_type(argument, ty);
            if ty == operand.operand_type || uses.iter().all(legal) {
                continue;
            }
            let mut model = model.clone();
            become_type(&mut model, at, ty);
            emit(Mutant {
                change: format!("operand {at} becomes {ty}"),
                model,
                places: vec![Place::Operand(at)],
            });
        }
    }
}

fn become_type(model: &mut Model, at: usize, ty: OperandType) {
    let operand = &mut model.main.operands[at];
    operand.operand_type = ty;
    if !ty.is_tensor() {
        operand.dimensions.clear();
    } else if operand.dimensions.is_empty() {
        operand.dimensions.push(1);
    }
    operand.scale = match ty {
        _ if ty.is_quantized_per_tensor() && operand.scale == 0.0 => 1.0,
        _ if ty.is_quantized_per_tensor() || ty == OperandType::TENSOR_INT32 => operand.scale,
        _ => 0.0,
    };
    let zero_points = match ty {
        OperandType::TENSOR_QUANT8_ASYMM => 0..=255,
        OperandType::TENSOR_QUANT8_ASYMM_SIGNED => -128..=127,
        OperandType::TENSOR_QUANT16_ASYMM => 0..=65535,
        _ => 0..=0,
    };
    operand.zero_point = operand.zero_point.clamp(*zero_points.start(), *zero_points.end());
    operand.extra_params = ExtraParams::None;
    if ty == OperandType::TENSOR_QUANT8_SYMM_PER_CHANNEL {
        let channels = operand.dimensions[0].max(1);
        operand.dimensions[0] = channels;
        operand.extra_params = ExtraParams::ChannelQuant(SymmPerChannelQuantParams {
            scales: vec![1.0; channels as usize],
            channel_dim: 0,
        });
    }
    let constant = matches!(
        operand.lifetime,
        OperandLifeTime::ConstantCopy | OperandLifeTime::ConstantReference
    );
    if constant {
        // Of the length that the new type needs, in values of its own.
        let elements: usize = operand.dimensions.iter().map(|extent| *extent as usize).product();
        let length = elements * ty.element_size();
        let offset = model.operand_values.len().next_multiple_of(4);
        model.operand_values.resize(offset + length, 0);
        operand.lifetime = OperandLifeTime::ConstantCopy;
        operand.location = DataLocation {
            pool_index: 0,
            offset: offset as u32,
            length: length as u32,
        };
    }
}
