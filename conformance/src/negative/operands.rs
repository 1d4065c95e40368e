//! M02 to M05 and M08: what an operand says of itself.

use nnhal_hal::{Model, Operand, OperandType};

use super::mutant::{Mutant, Place};

/// Emits the model with operand `at` changed.
fn emit_changed(
    model: &Model,
    emit: &mut dyn FnMut(Mutant),
    (at, change): (usize, String),
    mutate: impl FnOnce(&mut Operand),
) {
    let mut model = model.clone();
    mutate(&mut model.main.operands[at]);
    emit(Mutant {
        change: format!("operand {at} gets {change}"),
        model,
        places: vec![Place::Operand(at)],
    });
}

/// M02: -1, the last fundamental type and one, and around the OEM types.
pub(super) fn unknown_type(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for at in 0..model.main.operands.len() {
        for code in [u32::MAX, 16, 9999, 10002] {
            emit_changed(model, emit, (at, format!("type {code}")), |operand| {
                operand.operand_type = OperandType(code);
            });
        }
    }
}

/// M03: a scalar with one dimension, of unknown extent or not. A tensor of rank 0 is one of unknown rank
/// since 1.2.
pub(super) fn rank(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        if !operand.operand_type.is_scalar() {
            continue;
        }
        for extent in [0, 1] {
            emit_changed(model, emit, (at, format!("dimensions [{extent}]")), |operand| {
                operand.dimensions = vec![extent];
            });
        }
    }
}

/// M04: a scale where there must be none, none where there must be one, and what is no scale at all.
pub(super) fn scale(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let scales: &[f32] = match operand.operand_type {
            OperandType::TENSOR_INT32 => &[-1.0, f32::NAN, f32::INFINITY],
            ty if ty.is_quantized_per_tensor() => &[0.0, -1.0, f32::NAN, f32::INFINITY],
            ty if ty.is_oem() || ty.is_extension() => &[],
            _ => &[1.0, -1.0, f32::NAN],
        };
        for scale in scales {
            emit_changed(model, emit, (at, format!("scale {scale}")), |operand| {
                operand.scale = *scale;
            });
        }
    }
}

/// M05: a zero point outside of the type's range.
pub(super) fn zero_point(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let zero_points: &[i32] = match operand.operand_type {
            OperandType::TENSOR_QUANT8_ASYMM => &[-1, 256],
            OperandType::TENSOR_QUANT8_ASYMM_SIGNED => &[-129, 128],
            OperandType::TENSOR_QUANT8_SYMM => &[-129, -1, 1, 128],
            OperandType::TENSOR_QUANT16_ASYMM => &[-1, 65536],
            OperandType::TENSOR_QUANT16_SYMM => &[-32769, -1, 1, 32768],
            ty if ty.is_oem() || ty.is_extension() => &[],
            _ => &[1],
        };
        for zero_point in zero_points {
            emit_changed(model, emit, (at, format!("zero point {zero_point}")), |operand| {
                operand.zero_point = *zero_point;
            });
        }
    }
}

/// M08: one consumer more or less than there are.
pub(super) fn number_of_consumers(model: &Model, emit: &mut dyn FnMut(Mutant)) {
    for (at, operand) in model.main.operands.iter().enumerate() {
        let right = operand.number_of_consumers;
        for wrong in [Some(right + 1), right.checked_sub(1)].into_iter().flatten() {
            emit_changed(
                model,
                emit,
                (at, format!("number_of_consumers {wrong}")),
                |operand| {
                    operand.number_of_consumers = wrong;
                },
            );
        }
    }
}
