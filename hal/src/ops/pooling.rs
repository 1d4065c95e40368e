//! AVERAGE_POOL_2D, L2_POOL_2D and MAX_POOL_2D: one number for each window and channel.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::signature::{Form, Param, Rule, Variant};
use super::windows::{
    self, ACTIVATION, IMAGE, IMAGE_RESULT, LAYOUT, PAD_BOTTOM, PAD_LEFT, PAD_RIGHT, PAD_TOP, PADDING_SCHEME,
    STRIDE_HEIGHT, STRIDE_WIDTH, WindowArguments, WindowGeometry,
};

use HalVersion::{V1_0, V1_2, V1_3};

const FILTER_WIDTH: Param = Param::scalar("filterWidth", T::INT32);
const FILTER_HEIGHT: Param = Param::scalar("filterHeight", T::INT32);

const FORMS: &[Form] = &[
    Form::named(
        "explicit padding",
        &[
            IMAGE,
            PAD_LEFT,
            PAD_RIGHT,
            PAD_TOP,
            PAD_BOTTOM,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            FILTER_WIDTH,
            FILTER_HEIGHT,
            ACTIVATION,
            LAYOUT.trailing(V1_2),
        ],
    ),
    Form::named(
        "implicit padding",
        &[
            IMAGE,
            PADDING_SCHEME,
            STRIDE_WIDTH,
            STRIDE_HEIGHT,
            FILTER_WIDTH,
            FILTER_HEIGHT,
            ACTIVATION,
            LAYOUT.trailing(V1_2),
        ],
    ),
];

const FLOAT: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
];

const FLOAT_AND_QUANT8: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16]),
    Variant::new(V1_0, &[T::TENSOR_QUANT8_ASYMM]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED]),
];

const fn pool(operation: OperationType, variants: &'static [Variant], check: Rule) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms: FORMS,
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check,
        shape: ShapeRule::Infer(infer),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    pool(OperationType::AVERAGE_POOL_2D, FLOAT_AND_QUANT8, check_quantized),
    pool(OperationType::L2_POOL_2D, FLOAT, check),
    pool(OperationType::MAX_POOL_2D, FLOAT_AND_QUANT8, check_quantized),
];

/// Where the arguments of this call stand.
#[must_use]
pub fn arguments(context: &dyn OperationContext) -> WindowArguments {
    WindowArguments::of(context, 1, 2)
}

/// What slides over what. The reference asks no more of padding than a convolution does: less than the
/// filter, so that every window holds at least one element.
pub fn geometry(context: &dyn OperationContext) -> Result<WindowGeometry, ShapeIssue> {
    let arguments = arguments(context);
    let width = windows::positive(context, arguments.own(), "filterWidth")?;
    let height = windows::positive(context, arguments.own() + 1, "filterHeight")?;
    let image = windows::image(context, 0, arguments.nchw(context)?)?;
    arguments.geometry(context, [height, width], image.channels)
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    geometry(context)?.set_output(outputs)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    windows::check_activation(context, arguments(context).activation())
}

fn check_quantized(context: &dyn OperationContext) -> Result<(), OpError> {
    keeps_quantization(context)?;
    check(context)
}
