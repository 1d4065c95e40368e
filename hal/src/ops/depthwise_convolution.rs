//! DEPTHWISE_CONV_2D: every input channel has filters of its own.

use crate::{HalVersion, OperandType, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::filters::{self, BIAS, FILTER};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::signature::{Form, Param, Variant};
use super::windows::{
    self, ACTIVATION, DILATION_HEIGHT, DILATION_WIDTH, IMAGE, IMAGE_RESULT, LAYOUT, PAD_BOTTOM, PAD_LEFT,
    PAD_RIGHT, PAD_TOP, PADDING_SCHEME, STRIDE_HEIGHT, STRIDE_WIDTH, WindowArguments, WindowGeometry,
};

use HalVersion::V1_2;

const DEPTH_MULTIPLIER: Param = Param::scalar("depthMultiplier", OperandType::INT32);

const FORMS: &[Form] = &[
    Form::named(
        "explicit padding",
        &[
            IMAGE,
            FILTER,
            BIAS,
            PAD_LEFT,
            PAD_RIGHT,
            PAD_TOP,
            PAD_BOTTOM,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            DEPTH_MULTIPLIER,
            ACTIVATION,
            LAYOUT.trailing(V1_2),
        ],
    ),
    Form::named(
        "explicit padding with dilation",
        &[
            IMAGE,
            FILTER,
            BIAS,
            PAD_LEFT,
            PAD_RIGHT,
            PAD_TOP,
            PAD_BOTTOM,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            DEPTH_MULTIPLIER,
            ACTIVATION,
            LAYOUT,
            DILATION_WIDTH,
            DILATION_HEIGHT,
        ],
    )
    .since(V1_2),
    Form::named(
        "implicit padding",
        &[
            IMAGE,
            FILTER,
            BIAS,
            PADDING_SCHEME,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            DEPTH_MULTIPLIER,
            ACTIVATION,
            LAYOUT.trailing(V1_2),
        ],
    ),
    Form::named(
        "implicit padding with dilation",
        &[
            IMAGE,
            FILTER,
            BIAS,
            PADDING_SCHEME,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            DEPTH_MULTIPLIER,
            ACTIVATION,
            LAYOUT,
            DILATION_WIDTH,
            DILATION_HEIGHT,
        ],
    )
    .since(V1_2),
];

const TYPES: &[Variant] = &filters::since_1_0(filters::per_channel_along_3);

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::DEPTHWISE_CONV_2D,
    variants: TYPES,
    forms: FORMS,
    outputs: IMAGE_RESULT,
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(infer),
}];

/// Where the arguments of this call stand.
#[must_use]
pub fn arguments(context: &dyn OperationContext) -> WindowArguments {
    WindowArguments::of(context, 3, 1)
}

/// What slides over what: the filter is `[1, height, width, output channels]` in either layout, and there are
/// depth multiplier times as many output channels as input channels.
pub fn geometry(context: &dyn OperationContext) -> Result<WindowGeometry, ShapeIssue> {
    let arguments = arguments(context);
    let multiplier = windows::positive(context, arguments.own(), "depthMultiplier")?;
    let filter = context.shape_of_rank(1, 4)?;
    filters::check_bias_length(context, filter.dim(3))?;
    let geometry = arguments.geometry(context, [filter.dim(1), filter.dim(2)], filter.dim(3))?;
    let channels = geometry.input.channels;
    if filter.dim(0) != 1 || channels.checked_mul(multiplier) != Some(filter.dim(3)) {
        let message = format!(
            "(filter) has dimensions {filter:?}, must be [1, height, width, {channels} channels * multiplier {multiplier}]"
        );
        return Err(OpError::input(1, message).into());
    }
    Ok(geometry)
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    geometry(context)?.set_output(outputs)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    filters::check_quantization(context)?;
    windows::check_activation(context, arguments(context).activation())
}
