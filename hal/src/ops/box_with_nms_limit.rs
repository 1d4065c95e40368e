//! BOX_WITH_NMS_LIMIT: the best boxes of each class that do not overlap too much.

use crate::{HalVersion, OperandType as T, OperationType};

use super::boxes::{
    BOX_LENGTH, check_box_quantization, check_known, exact, not_negative_float, positive_float,
};
use super::context::{OpError, OperationContext, OperationPart, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::signature::{Form, Param, Rank, Ty, Variant};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::BOX_WITH_NMS_LIMIT,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::TENSOR_FLOAT32, T::FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::TENSOR_FLOAT16, T::FLOAT16]),
        Variant::new(
            V1_2,
            &[T::TENSOR_QUANT8_ASYMM, T::TENSOR_QUANT16_ASYMM, T::FLOAT32],
        ),
        Variant::new(
            V1_3,
            &[T::TENSOR_QUANT8_ASYMM_SIGNED, T::TENSOR_QUANT16_ASYMM, T::FLOAT32],
        ),
    ],
    forms: &[Form::default(&[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new("rois", Ty::Var(1)).rank(Rank::Is(2)),
        Param::new("batchSplit", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
        Param::new("scoreThreshold", Ty::Var(2)),
        Param::scalar("maxNumDetections", T::INT32),
        Param::scalar("nmsKernel", T::INT32),
        Param::new("iouThreshold", Ty::Var(2)),
        Param::new("sigma", Ty::Var(2)),
        Param::new("nmsScoreThreshold", Ty::Var(2)),
    ])],
    outputs: &[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(1)),
        Param::new("rois", Ty::Var(1)).rank(Rank::Is(2)),
        Param::new("classes", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
        Param::new("batchSplit", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ],
    outputs_repeat: false,
    check,
    shape: ShapeRule::DataDependent,
}];

/// How a box that is selected changes the scores of those that overlap with it, by the share of their union
/// that they have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Suppression {
    /// From the threshold on to 0.
    Hard {
        /// The threshold.
        threshold: f32,
    },
    /// From the threshold on by the share that they do not have in common.
    Linear {
        /// The threshold.
        threshold: f32,
    },
    /// By a Gaussian of the overlap.
    Gaussian {
        /// Its width.
        sigma: f32,
    },
}

/// The dimensions and parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Number of boxes.
    pub boxes: u32,
    /// Number of classes, the background (class 0) included.
    pub classes: u32,
    /// Only scores above this count.
    pub score_threshold: f32,
    /// Most detections in an image; `None` for no limit.
    pub detections: Option<u32>,
    /// What becomes of overlapping boxes.
    pub suppression: Suppression,
    /// Boxes whose score falls below this are dropped.
    pub suppressed_threshold: f32,
}

/// The dimensions and parameters of this call.
pub fn limits(context: &dyn OperationContext) -> Result<Limits, ShapeIssue> {
    let score_threshold = not_negative_float(context, 3, "scoreThreshold")?;
    let detections = u32::try_from(context.i32(4)?).ok();
    let suppression = match context.i32(5)? {
        0 => Suppression::Hard {
            threshold: not_negative_float(context, 6, "iouThreshold")?,
        },
        1 => Suppression::Linear {
            threshold: not_negative_float(context, 6, "iouThreshold")?,
        },
        2 => Suppression::Gaussian {
            sigma: positive_float(context, 7, "sigma")?,
        },
        kernel => {
            let message = format!("(nmsKernel) is {kernel}, must be 0 (hard), 1 (linear) or 2 (gaussian)");
            return Err(OpError::input(5, message).into());
        }
    };
    let suppressed_threshold = not_negative_float(context, 8, "nmsScoreThreshold")?;
    let scores = context.shape_of_rank(0, 2)?;
    let (boxes, classes) = (scores.dim(0), scores.dim(1));
    if classes < 2 {
        let message = format!("(scores) has {classes} classes, must have a background and at least one more");
        return Err(OpError::input(0, message).into());
    }
    let columns = classes.checked_mul(BOX_LENGTH).ok_or_else(|| {
        OpError::input(
            0,
            format!("(scores) has {classes} classes, whose boxes do not fit a tensor"),
        )
    })?;
    exact(context, 1, "rois", &[boxes, columns])?;
    exact(context, 2, "batchSplit", &[boxes])?;
    Ok(Limits {
        boxes,
        classes,
        score_threshold,
        detections,
        suppression,
        suppressed_threshold,
    })
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    check_box_quantization(context, OperationPart::Input(1))?;
    check_box_quantization(context, OperationPart::Output(1))?;
    context.check_same_quantization(0, 0)?;
    check_known(context, limits)
}
