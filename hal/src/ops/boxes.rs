//! What the operations on boxes share: how boxes are held, and the rules of their operands.
//!
//! A box is four numbers in one row: left, top, right, bottom. Quantised boxes are `TENSOR_QUANT16_ASYMM` in
//! eighths of a pixel from 0.

use super::context::{OpError, OperationContext, OperationPart, ShapeIssue, unless_unknown};

/// Numbers that make a box.
pub const BOX_LENGTH: u32 = 4;

/// The scale of quantised boxes.
pub const BOX_SCALE: f32 = 0.125;

/// A quantised tensor of boxes, or of image sizes, must count in eighths of a pixel from 0.
pub(super) fn check_box_quantization(
    context: &dyn OperationContext,
    place: OperationPart,
) -> Result<(), OpError> {
    let operand = match place {
        OperationPart::Input(index) => context.required(index)?.operand,
        OperationPart::Output(index) => context.required_output(index)?.operand,
        OperationPart::Operation => return Ok(()),
    };
    if operand.operand_type.is_quant16() && (operand.scale, operand.zero_point) != (BOX_SCALE, 0) {
        return Err(OpError {
            place,
            message: format!(
                "has scale {} and zero point {}, must be {BOX_SCALE} and 0 for {}",
                operand.scale, operand.zero_point, operand.operand_type
            ),
        });
    }
    Ok(())
}

/// Input `index` must have these dimensions.
pub(super) fn exact(
    context: &dyn OperationContext,
    index: usize,
    name: &str,
    dims: &[u32],
) -> Result<(), ShapeIssue> {
    let shape = context.shape(index)?;
    if shape.dims() == dims {
        return Ok(());
    }
    let message = format!("({name}) has dimensions {shape:?}, must be {dims:?}");
    Err(OpError::input(index, message).into())
}

/// A float that must be finite and above 0.
pub(super) fn positive_float(
    context: &dyn OperationContext,
    index: usize,
    name: &str,
) -> Result<f32, ShapeIssue> {
    let value = context.f32(index)?;
    if value > 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(OpError::input(index, format!("({name}) is {value}, must be above 0")).into())
}

/// A float that must be finite and not negative.
pub(super) fn not_negative_float(
    context: &dyn OperationContext,
    index: usize,
    name: &str,
) -> Result<f32, ShapeIssue> {
    let value = context.f32(index)?;
    if value >= 0.0 && value.is_finite() {
        return Ok(value);
    }
    Err(OpError::input(index, format!("({name}) is {value}, must not be negative")).into())
}

/// Holds whatever of a call is known already to the rules that reading it applies.
pub(super) fn check_known<T>(
    context: &dyn OperationContext,
    read: fn(&dyn OperationContext) -> Result<T, ShapeIssue>,
) -> Result<(), OpError> {
    unless_unknown(read(context)).map(|_| ())
}
