//! Rules for weights and biases, which convolutions and fully connected layers share: input 0 is multiplied
//! with input 1, and input 2 is added.

use crate::{HalVersion, OperandType as T};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::signature::{Param, Rank, Rule, Ty, Variant};

use HalVersion::{V1_0, V1_2, V1_3};

/// The weights.
pub const FILTER: Param = Param::new("filter", Ty::Var(1)).rank(Rank::Is(4));
/// The bias.
pub const BIAS: Param = Param::new("bias", Ty::Var(2)).rank(Rank::Is(1));

/// Types of input, filter and bias of a convolution of HAL 1.0, whose filters are quantised per channel by
/// this rule.
pub const fn since_1_0(per_channel: Rule) -> [Variant; 7] {
    [
        Variant::new(V1_0, &[T::TENSOR_FLOAT32; 3]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16; 3]),
        QUANT8_BEFORE_1_2,
        Variant::new(V1_2, QUANT8),
        Variant::new(V1_2, QUANT8_PER_CHANNEL).only_if(per_channel),
        Variant::new(V1_3, SIGNED),
        Variant::new(V1_3, SIGNED_PER_CHANNEL).only_if(per_channel),
    ]
}

/// The same for convolutions of HAL 1.2, whose filters are quantised per output channel.
pub const SINCE_1_2: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32; 3]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16; 3]),
    Variant::new(V1_2, QUANT8),
    Variant::new(V1_2, QUANT8_PER_CHANNEL).only_if(per_channel_along_0),
    Variant::new(V1_3, SIGNED),
    Variant::new(V1_3, SIGNED_PER_CHANNEL).only_if(per_channel_along_0),
];

/// The unsigned types with the rule that HAL 1.0 and 1.1 had for them.
pub const QUANT8_BEFORE_1_2: Variant = Variant::new(V1_0, QUANT8).only_if(output_coarser_than_product);

/// Unsigned with unsigned weights.
pub const QUANT8: &[T] = &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT8_ASYMM, T::TENSOR_INT32];
/// Signed with signed weights.
pub const SIGNED: &[T] = &[
    T::TENSOR_QUANT8_ASYMM_SIGNED,
    T::TENSOR_QUANT8_ASYMM_SIGNED,
    T::TENSOR_INT32,
];
const QUANT8_PER_CHANNEL: &[T] = &[
    T::TENSOR_QUANT8_ASYMM,
    T::TENSOR_QUANT8_SYMM_PER_CHANNEL,
    T::TENSOR_INT32,
];
const SIGNED_PER_CHANNEL: &[T] = &[
    T::TENSOR_QUANT8_ASYMM_SIGNED,
    T::TENSOR_QUANT8_SYMM_PER_CHANNEL,
    T::TENSOR_INT32,
];

/// Types of 16-bit steps with a filter of signed bytes, quantised per channel by this rule.
pub const fn sixteen_bit(per_channel: Rule) -> [Variant; 2] {
    [
        Variant::new(V1_3, SIXTEEN_BIT),
        Variant::new(V1_2, SIXTEEN_BIT_PER_CHANNEL).only_if(per_channel),
    ]
}

/// 16-bit steps with signed weights.
pub const SIXTEEN_BIT: &[T] = &[
    T::TENSOR_QUANT16_SYMM,
    T::TENSOR_QUANT8_ASYMM_SIGNED,
    T::TENSOR_INT32,
];
const SIXTEEN_BIT_PER_CHANNEL: &[T] = &[
    T::TENSOR_QUANT16_SYMM,
    T::TENSOR_QUANT8_SYMM_PER_CHANNEL,
    T::TENSOR_INT32,
];

/// How far the scale of a bias may be from the product of input and filter scale, relative to the smaller;
/// the HAL reference's figure.
const BIAS_SCALE_TOLERANCE: f64 = 1e-6;

fn output_coarser_than_product(context: &dyn OperationContext) -> Result<(), OpError> {
    let output = context.required_output(0)?.operand.scale;
    let product = context.required(0)?.operand.scale * context.required(1)?.operand.scale;
    if output > product {
        return Ok(());
    }
    Err(OpError::output(
        0,
        format!("has scale {output}, must be above {product}, input scale * filter scale, before HAL 1.2"),
    ))
}

/// A filter that is quantised per channel must be so along axis 0.
pub fn per_channel_along_0(context: &dyn OperationContext) -> Result<(), OpError> {
    check_channel_axis(context, 0)
}

/// A filter that is quantised per channel must be so along axis 3.
pub fn per_channel_along_3(context: &dyn OperationContext) -> Result<(), OpError> {
    check_channel_axis(context, 3)
}

fn check_channel_axis(context: &dyn OperationContext, axis: u32) -> Result<(), OpError> {
    match context.channel_quant(1) {
        Some(params) if params.channel_dim != axis => Err(OpError::input(
            1,
            format!(
                "(filter) is quantised per channel along axis {}, must be along axis {axis}",
                params.channel_dim
            ),
        )),
        _ => Ok(()),
    }
}

/// The scale of a quantised bias must be input scale * filter scale, or 0 for a filter quantised per channel.
pub fn check_quantization(context: &dyn OperationContext) -> Result<(), OpError> {
    let (input, filter, bias) = (context.required(0)?, context.required(1)?, context.required(2)?);
    if context.channel_quant(1).is_some() {
        if bias.operand.scale != 0.0 {
            let message = format!(
                "(bias) has scale {}, must be 0 beside a filter quantised per channel",
                bias.operand.scale
            );
            return Err(OpError::input(2, message));
        }
        return Ok(());
    }
    if !input.ty().is_quantized_per_tensor() {
        return Ok(());
    }
    // The product is one of 32-bit floats, as exporters of models compute it.
    let product = f64::from(input.operand.scale * filter.operand.scale);
    let scale = f64::from(bias.operand.scale);
    if (product - scale).abs() <= BIAS_SCALE_TOLERANCE * product.min(scale) {
        return Ok(());
    }
    Err(OpError::input(
        2,
        format!("(bias) has scale {scale}, must be {product}, input scale * filter scale"),
    ))
}

/// The bias must have one element for each of `channels`.
pub fn check_bias_length(context: &dyn OperationContext, channels: u32) -> Result<(), ShapeIssue> {
    let bias = context.shape_of_rank(2, 1)?;
    if bias.dim(0) == channels {
        return Ok(());
    }
    let message = format!("(bias) has {} elements, must have {channels}", bias.dim(0));
    Err(OpError::input(2, message).into())
}

#[cfg(test)]
mod tests {
    use super::BIAS_SCALE_TOLERANCE;

    #[test]
    fn bias_scale_tolerance_allows_the_rounding_of_a_float_product() {
        let (input, filter) = (0.007_843_138_f32, 0.123_456_79_f32);
        let exact = f64::from(input) * f64::from(filter);
        assert!((exact - f64::from(input * filter)).abs() <= BIAS_SCALE_TOLERANCE * exact);
    }
}
