//! DETECTION_POSTPROCESSING: the detections of an SSD model, from the scores and box encodings of its
//! anchors.

use crate::{HalVersion, OperandType as T, OperationType, Shape};

use super::boxes::{BOX_LENGTH, check_known, exact, not_negative_float, positive_float};
use super::context::{OpError, OperationContext, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::shapes::{set, shape_of};
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::positive;

use HalVersion::V1_2;

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::DETECTION_POSTPROCESSING,
    variants: &[
        Variant::new(V1_2, &[T::TENSOR_FLOAT32, T::FLOAT32]),
        Variant::new(V1_2, &[T::TENSOR_FLOAT16, T::FLOAT16]),
    ],
    forms: &[Form::default(&[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(3)),
        Param::new("deltas", Ty::Var(0)).rank(Rank::Is(3)),
        Param::new("anchors", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new("scaleY", Ty::Var(1)),
        Param::new("scaleX", Ty::Var(1)),
        Param::new("scaleH", Ty::Var(1)),
        Param::new("scaleW", Ty::Var(1)),
        Param::scalar("useRegularNms", T::BOOL),
        Param::scalar("maxNumDetections", T::INT32),
        Param::scalar("maxClassesPerDetection", T::INT32),
        Param::scalar("maxDetectionsPerClass", T::INT32),
        Param::new("scoreThreshold", Ty::Var(1)),
        Param::new("iouThreshold", Ty::Var(1)),
        Param::scalar("includeBackground", T::BOOL),
    ])],
    outputs: &[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(2)),
        Param::new("boxes", Ty::Var(0)).rank(Rank::Is(3)),
        Param::new("classes", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(2)),
        Param::new("numDetections", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ],
    outputs_repeat: false,
    check: |context| check_known(context, rules),
    shape: ShapeRule::Infer(infer),
}];

/// How detections are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// For each class the boxes that overlap least.
    PerClass {
        /// Most detections of one class.
        detections: u32,
    },
    /// Boxes that overlap least, whatever their class, each with its best classes.
    PerBox {
        /// Most classes of one box.
        classes: u32,
    },
}

/// The dimensions and parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DetectionRules {
    /// Number of images.
    pub batches: u32,
    /// Number of anchors.
    pub anchors: u32,
    /// Number of classes, the background (class 0) included.
    pub classes: u32,
    /// How many numbers encode a box; the first four count.
    pub encoding: u32,
    /// Divisors of the encoding: centre y, centre x, height, width.
    pub scales: [f32; 4],
    /// How detections are chosen.
    pub choice: Choice,
    /// Most boxes.
    pub boxes: u32,
    /// Rows of the outputs for each image.
    pub rows: u32,
    /// Only scores above this count.
    pub score_threshold: f32,
    /// Boxes that overlap with a better one by this share of their union, or more, are dropped.
    pub overlap: f32,
    /// Whether the labels written count the background as 0.
    pub background: bool,
}

/// The dimensions and parameters of this call.
pub fn rules(context: &dyn OperationContext) -> Result<DetectionRules, ShapeIssue> {
    let scales = [
        positive_float(context, 3, "scaleY")?,
        positive_float(context, 4, "scaleX")?,
        positive_float(context, 5, "scaleH")?,
        positive_float(context, 6, "scaleW")?,
    ];
    let boxes = positive(context, 8, "maxNumDetections")?;
    let (choice, rows) = if context.bool(7)? {
        let detections = positive(context, 10, "maxDetectionsPerClass")?;
        (Choice::PerClass { detections }, Some(boxes))
    } else {
        let classes = positive(context, 9, "maxClassesPerDetection")?;
        (Choice::PerBox { classes }, boxes.checked_mul(classes))
    };
    let rows = rows.ok_or_else(|| {
        let message = format!("(maxNumDetections) is {boxes}, too many for all the classes of each");
        OpError::input(8, message)
    })?;
    let score_threshold = not_negative_float(context, 11, "scoreThreshold")?;
    let overlap = not_negative_float(context, 12, "iouThreshold")?;
    let background = context.bool(13)?;
    let scores = context.shape_of_rank(0, 3)?;
    let (batches, anchors, classes) = (scores.dim(0), scores.dim(1), scores.dim(2));
    if classes < 2 {
        let message = format!("(scores) has {classes} classes, must have a background and at least one more");
        return Err(OpError::input(0, message).into());
    }
    let encoding = context.shape_of_rank(1, 3)?.dim(2);
    if encoding < BOX_LENGTH {
        let message =
            format!("(deltas) has {encoding} numbers for each box, must have at least {BOX_LENGTH}");
        return Err(OpError::input(1, message).into());
    }
    exact(context, 1, "deltas", &[batches, anchors, encoding])?;
    exact(context, 2, "anchors", &[anchors, BOX_LENGTH])?;
    Ok(DetectionRules {
        batches,
        anchors,
        classes,
        encoding,
        scales,
        choice,
        boxes,
        rows,
        score_threshold,
        overlap,
        background,
    })
}

fn infer(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let rules = rules(context)?;
    let (batches, rows) = (rules.batches, rules.rows);
    set(outputs, 0, shape_of(&[batches, rows])?)?;
    set(outputs, 1, shape_of(&[batches, rows, BOX_LENGTH])?)?;
    set(outputs, 2, shape_of(&[batches, rows])?)?;
    set(outputs, 3, shape_of(&[batches])?)
}
