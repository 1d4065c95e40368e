//! CONV_2D: every output channel mixes all input channels under a sliding window.

use crate::{HalVersion, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::filters::{self, BIAS, FILTER};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::signature::{Form, Variant};
use super::windows::{
    self, ACTIVATION, DILATION_HEIGHT, DILATION_WIDTH, IMAGE, IMAGE_RESULT, LAYOUT, PAD_BOTTOM, PAD_LEFT,
    PAD_RIGHT, PAD_TOP, PADDING_SCHEME, STRIDE_HEIGHT, STRIDE_WIDTH, WindowArguments, WindowGeometry,
};

use HalVersion::V1_2;

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
            ACTIVATION,
            LAYOUT,
            DILATION_WIDTH,
            DILATION_HEIGHT,
        ],
    )
    .since(V1_2),
];

const TYPES: &[Variant] = &filters::since_1_0(filters::per_channel_along_0);

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::CONV_2D,
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
    WindowArguments::of(context, 3, 0)
}

/// What slides over what: the filter is `[output channels, height, width, input channels]` in either layout.
pub fn geometry(context: &dyn OperationContext) -> Result<WindowGeometry, ShapeIssue> {
    let filter = context.shape_of_rank(1, 4)?;
    filters::check_bias_length(context, filter.dim(0))?;
    let geometry = arguments(context).geometry(context, [filter.dim(1), filter.dim(2)], filter.dim(0))?;
    if geometry.input.channels != filter.dim(3) {
        let message = format!(
            "(filter) has dimensions {filter:?}, the last must be {}, the channels of input 0",
            geometry.input.channels
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
