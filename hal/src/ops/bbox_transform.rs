//! AXIS_ALIGNED_BBOX_TRANSFORM: boxes moved and resized by deltas, for each class, and clipped to their
//! image.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::boxes::{BOX_LENGTH, check_box_quantization, check_known, exact};
use super::context::{OpError, OperationContext, OperationPart, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::set;
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::AXIS_ALIGNED_BBOX_TRANSFORM,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT16]),
        Variant::new(V1_2, &[T::TENSOR_QUANT16_ASYMM, T::TENSOR_QUANT8_ASYMM]),
        Variant::new(V1_3, &[T::TENSOR_QUANT16_ASYMM, T::TENSOR_QUANT8_ASYMM_SIGNED]),
    ],
    forms: &[Form::default(&[
        Param::new("rois", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new("deltas", Ty::Var(1)).rank(Rank::Is(2)),
        Param::new("batchSplit", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
        Param::new("imageInfo", Ty::Var(0)).rank(Rank::Is(2)),
    ])],
    outputs: &[Param::new("output", Ty::Var(0)).rank(Rank::Is(2))],
    outputs_repeat: false,
    check,
    shape: ShapeRule::Infer(infer),
}];

/// How much there is to transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransformGeometry {
    /// Number of boxes.
    pub boxes: u32,
    /// Number of classes, each with its own deltas.
    pub classes: u32,
    /// Number of images.
    pub images: u32,
}

/// The geometry of this call.
pub fn geometry(context: &dyn OperationContext) -> Result<TransformGeometry, ShapeIssue> {
    let boxes = context.shape_of_rank(0, 2)?.dim(0);
    exact(context, 0, "rois", &[boxes, BOX_LENGTH])?;
    let deltas = context.shape_of_rank(1, 2)?;
    if deltas.dim(0) != boxes || deltas.dim(1) == 0 || !deltas.dim(1).is_multiple_of(BOX_LENGTH) {
        let message = format!(
            "(deltas) has dimensions {deltas:?}, must have {boxes} rows of {BOX_LENGTH} numbers for each class"
        );
        return Err(OpError::input(1, message).into());
    }
    exact(context, 2, "batchSplit", &[boxes])?;
    let images = context.shape_of_rank(3, 2)?.dim(0);
    exact(context, 3, "imageInfo", &[images, 2])?;
    Ok(TransformGeometry {
        boxes,
        classes: deltas.dim(1) / BOX_LENGTH,
        images,
    })
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    geometry(context)?;
    set(outputs, 0, context.shape(1)?)
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    check_box_quantization(context, OperationPart::Input(0))?;
    check_box_quantization(context, OperationPart::Input(3))?;
    check_box_quantization(context, OperationPart::Output(0))?;
    check_known(context, geometry)
}
