//! GROUPED_CONV_2D: convolutions side by side, each over its own group of channels.

use crate::{HalVersion, OperandType, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::filters::{self, BIAS, FILTER};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::signature::{Form, Param};
use super::windows::{
    self, ACTIVATION, IMAGE, IMAGE_RESULT, LAYOUT, PAD_BOTTOM, PAD_LEFT, PAD_RIGHT, PAD_TOP, PADDING_SCHEME,
    STRIDE_HEIGHT, STRIDE_WIDTH, WindowArguments, WindowGeometry,
};

use HalVersion::V1_2;

const GROUPS: Param = Param::scalar("groups", OperandType::INT32);

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
            GROUPS,
            ACTIVATION,
            LAYOUT,
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
            GROUPS,
            ACTIVATION,
            LAYOUT,
        ],
    )
    .since(V1_2),
];

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::GROUPED_CONV_2D,
    variants: filters::SINCE_1_2,
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

/// How many groups there are. Checked against the channels by [`geometry`].
pub fn groups(context: &dyn OperationContext) -> Result<u32, ShapeIssue> {
    windows::positive(context, arguments(context).own(), "groups")
}

/// What slides over what: the filter is `[output channels, height, width, input channels of a group]` in
/// either layout; the group count divides the output channels.
pub fn geometry(context: &dyn OperationContext) -> Result<WindowGeometry, ShapeIssue> {
    let groups = groups(context)?;
    let filter = context.shape_of_rank(1, 4)?;
    filters::check_bias_length(context, filter.dim(0))?;
    let geometry = arguments(context).geometry(context, [filter.dim(1), filter.dim(2)], filter.dim(0))?;
    let channels = geometry.input.channels;
    if filter.dim(3).checked_mul(groups) != Some(channels) || filter.dim(0) % groups != 0 {
        let message = format!(
            "(filter) has dimensions {filter:?}, which do not fit {groups} groups over {channels} channels: the first \
             must be a multiple of the groups, the last the channels of one group"
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
