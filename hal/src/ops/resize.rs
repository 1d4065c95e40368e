//! RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR: an image at another size.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::context::{OpError, OperationContext, ShapeIssue, unless_unknown};
use super::operation_entry::{OperationEntry, ShapeRule, keeps_quantization};
use super::padding::Extents;
use super::shapes::{set, shape_of};
use super::signature::{DefaultValue, Form, Param, Ty, Variant};
use super::windows::{IMAGE, IMAGE_RESULT, LAYOUT, image, positive};

use HalVersion::{V1_0, V1_2, V1_3};

const OUTPUT_WIDTH: Param = Param::scalar("outputWidth", T::INT32);
const OUTPUT_HEIGHT: Param = Param::scalar("outputHeight", T::INT32);
const WIDTH_SCALE: Param = Param::new("widthScale", Ty::Var(1));
const HEIGHT_SCALE: Param = Param::new("heightScale", Ty::Var(1));
const ALIGN_CORNERS: Param = Param::scalar("alignCorners", T::BOOL)
    .default(DefaultValue::Bool(false))
    .trailing(V1_3);
const HALF_PIXEL_CENTERS: Param = Param::scalar("halfPixelCenters", T::BOOL)
    .default(DefaultValue::Bool(false))
    .trailing(V1_3);

const BILINEAR_FORMS: &[Form] = &[
    Form::named(
        "by shape",
        &[
            IMAGE,
            OUTPUT_WIDTH,
            OUTPUT_HEIGHT,
            LAYOUT.trailing(V1_2),
            ALIGN_CORNERS,
            HALF_PIXEL_CENTERS,
        ],
    ),
    Form::named(
        "by scale",
        &[
            IMAGE,
            WIDTH_SCALE,
            HEIGHT_SCALE,
            LAYOUT.trailing(V1_2),
            ALIGN_CORNERS,
            HALF_PIXEL_CENTERS,
        ],
    )
    .since(V1_2),
];

/// The layout may not be left off: the HAL's text gives it a default, but its reference refuses the call.
const NEAREST_FORMS: &[Form] = &[
    Form::named(
        "by shape",
        &[
            IMAGE,
            OUTPUT_WIDTH,
            OUTPUT_HEIGHT,
            LAYOUT,
            ALIGN_CORNERS,
            HALF_PIXEL_CENTERS,
        ],
    )
    .since(V1_2),
    Form::named(
        "by scale",
        &[
            IMAGE,
            WIDTH_SCALE,
            HEIGHT_SCALE,
            LAYOUT,
            ALIGN_CORNERS,
            HALF_PIXEL_CENTERS,
        ],
    )
    .since(V1_2),
];

/// The image and the factors it may be resized by.
const BILINEAR_TYPES: &[Variant] = &[
    Variant::new(V1_0, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::FLOAT32]),
];

const NEAREST_TYPES: &[Variant] = &[
    Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
    Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::FLOAT32]),
    Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::FLOAT32]),
];

const fn resize(
    operation: OperationType,
    variants: &'static [Variant],
    forms: &'static [Form],
) -> OperationEntry {
    OperationEntry {
        operation,
        variants,
        forms,
        outputs: IMAGE_RESULT,
        outputs_repeat: false,
        check,
        shape: ShapeRule::Infer(infer),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    resize(OperationType::RESIZE_BILINEAR, BILINEAR_TYPES, BILINEAR_FORMS),
    resize(
        OperationType::RESIZE_NEAREST_NEIGHBOR,
        NEAREST_TYPES,
        NEAREST_FORMS,
    ),
];

/// From which size to which, and how positions correspond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResizeGeometry {
    /// The input.
    pub input: Extents,
    /// The output.
    pub output: Extents,
    /// Whether input and output are NCHW.
    pub nchw: bool,
    /// Whether the centres of the corner pixels coincide.
    pub align_corners: bool,
    /// Whether a pixel's value is that at its centre.
    pub half_pixel_centers: bool,
}

/// The geometry of this call.
pub fn geometry(context: &dyn OperationContext) -> Result<ResizeGeometry, ShapeIssue> {
    let (align_corners, half_pixel_centers) = corners(context)?;
    let nchw = context.bool_or(3, false)?;
    let by_shape = context.required(1)?.ty() == T::INT32;
    let (given_width, given_height) = if by_shape {
        (
            Some(positive(context, 1, "outputWidth")?),
            Some(positive(context, 2, "outputHeight")?),
        )
    } else {
        (None, None)
    };
    let input = image(context, 0, nchw)?;
    let extent = |given: Option<u32>, index, extent| match given {
        Some(given) => Ok(given),
        None => scaled(context, index, extent),
    };
    Ok(ResizeGeometry {
        input,
        output: Extents {
            width: extent(given_width, 1, input.width)?,
            height: extent(given_height, 2, input.height)?,
            ..input
        },
        nchw,
        align_corners,
        half_pixel_centers,
    })
}

/// `extent` times the factor at input `index`, rounded down.
fn scaled(context: &dyn OperationContext, index: usize, extent: u32) -> Result<u32, ShapeIssue> {
    let factor = context.f32(index)?;
    let size = (extent as f32 * factor).floor();
    // 2^32 is the first float that is too large.
    if (1.0..4_294_967_296.0).contains(&size) {
        return Ok(size as u32);
    }
    let message = format!("is {factor}, which makes {size} of {extent} pixels; must make at least 1");
    Err(OpError::input(index, message).into())
}

fn corners(context: &dyn OperationContext) -> Result<(bool, bool), ShapeIssue> {
    let (align_corners, half_pixel_centers) = (context.bool_or(4, false)?, context.bool_or(5, false)?);
    if align_corners && half_pixel_centers {
        let message = "(halfPixelCenters) is true, must be false where alignCorners is true";
        return Err(OpError::input(5, message).into());
    }
    Ok((align_corners, half_pixel_centers))
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let geometry = geometry(context)?;
    set(outputs, 0, shape_of(&geometry.output.dims(geometry.nchw))?)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    unless_unknown(corners(context))?;
    keeps_quantization(context)
}
