//! HEATMAP_MAX_KEYPOINT: where in each heatmap the largest score is, to a fraction of a pixel.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::boxes::{BOX_LENGTH, check_box_quantization, check_known, exact};
use super::context::{OpError, OperationContext, OperationPart, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::padding::Extents;
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::{LAYOUT, image};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::HEATMAP_MAX_KEYPOINT,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT16_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT16_ASYMM]),
    ],
    forms: &[Form::default(&[
        Param::new("heatmaps", Ty::Var(0)).rank(Rank::Is(4)),
        Param::new("boxes", Ty::Var(1)).rank(Rank::Is(2)),
        LAYOUT,
    ])],
    outputs: &[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new("keypoints", Ty::Var(1)).rank(Rank::Is(3)),
    ],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(infer),
}];

/// The extents of the heatmaps, one image for each box with one channel for each keypoint, and whether they
/// are NCHW.
pub fn geometry(context: &dyn OperationContext) -> Result<(Extents, bool), ShapeIssue> {
    let nchw = context.bool(2)?;
    let heatmaps = image(context, 0, nchw)?;
    if heatmaps.height != heatmaps.width || heatmaps.height < 2 {
        let message = format!(
            "(heatmaps) are {} pixels high and {} wide, must be square and at least 2 wide",
            heatmaps.height, heatmaps.width
        );
        return Err(OpError::input(0, message).into());
    }
    exact(context, 1, "boxes", &[heatmaps.batch, BOX_LENGTH])?;
    Ok((heatmaps, nchw))
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (heatmaps, _) = geometry(context)?;
    set(outputs, 0, shape_of(&[heatmaps.batch, heatmaps.channels])?)?;
    set(outputs, 1, shape_of(&[heatmaps.batch, heatmaps.channels, 2])?)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    check_box_quantization(context, OperationPart::Input(1))?;
    check_box_quantization(context, OperationPart::Output(1))?;
    check_known(context, geometry)
}
