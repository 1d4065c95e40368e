//! GENERATE_PROPOSALS: regions that may hold an object, from scores and deltas for each anchor at each pixel.

use crate::{HalVersion, OperandType as T, OperationType};

use super::boxes::{
    BOX_LENGTH, check_box_quantization, check_known, exact, not_negative_float, positive_float,
};
use super::context::{OpError, OperationContext, OperationPart, ShapeIssue};
use super::operation_entry::{OperationEntry, ShapeRule};
use super::padding::Extents;
use super::signature::{Form, Param, Rank, Ty, Variant};
use super::windows::{LAYOUT, image};

use HalVersion::{V1_2, V1_3};

pub(super) const ENTRIES: &[OperationEntry] = &[OperationEntry {
    operation: OperationType::GENERATE_PROPOSALS,
    // Scores and deltas; anchors; image sizes and boxes; scalars. The HAL's text has image sizes of
    // TENSOR_QUANT16_SYMM, its reference and its tests those of the boxes.
    variants: &[
        Variant::new(
            V1_2,
            &[
                T::TENSOR_FLOAT32,
                T::TENSOR_FLOAT32,
                T::TENSOR_FLOAT32,
                T::FLOAT32,
            ],
        ),
        Variant::new(
            V1_2,
            &[
                T::TENSOR_FLOAT16,
                T::TENSOR_FLOAT16,
                T::TENSOR_FLOAT16,
                T::FLOAT16,
            ],
        ),
        Variant::new(
            V1_2,
            &[
                T::TENSOR_QUANT8_ASYMM,
                T::TENSOR_QUANT16_SYMM,
                T::TENSOR_QUANT16_ASYMM,
                T::FLOAT32,
            ],
        ),
        Variant::new(
            V1_3,
            &[
                T::TENSOR_QUANT8_ASYMM_SIGNED,
                T::TENSOR_QUANT16_SYMM,
                T::TENSOR_QUANT16_ASYMM,
                T::FLOAT32,
            ],
        ),
    ],
    forms: &[Form::default(&[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(4)),
        Param::new("deltas", Ty::Var(0)).rank(Rank::Is(4)),
        Param::new("anchors", Ty::Var(1)).rank(Rank::Is(2)),
        Param::new("imageInfo", Ty::Var(2)).rank(Rank::Is(2)),
        Param::new("heightStride", Ty::Var(3)),
        Param::new("widthStride", Ty::Var(3)),
        Param::scalar("preNmsTopN", T::INT32),
        Param::scalar("postNmsTopN", T::INT32),
        Param::new("iouThreshold", Ty::Var(3)),
        Param::new("minSize", Ty::Var(3)),
        LAYOUT,
    ])],
    outputs: &[
        Param::new("scores", Ty::Var(0)).rank(Rank::Is(1)),
        Param::new("rois", Ty::Var(2)).rank(Rank::Is(2)),
        Param::new("batchSplit", Ty::Is(T::TENSOR_INT32)).rank(Rank::Is(1)),
    ],
    outputs_repeat: false,
    check,
    shape: ShapeRule::DataDependent,
}];

/// The dimensions and parameters of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProposalRules {
    /// The scores: one image with one channel for each anchor.
    pub scores: Extents,
    /// Whether scores and deltas are NCHW.
    pub nchw: bool,
    /// How many pixels of the image one row of the scores is.
    pub height_stride: f32,
    /// How many pixels of the image one column of the scores is.
    pub width_stride: f32,
    /// Most boxes of an image that are compared; `None` for no limit.
    pub compared: Option<u32>,
    /// Most proposals for an image; `None` for no limit.
    pub proposals: Option<u32>,
    /// Boxes that overlap with a better one by this share of their union, or more, are dropped.
    pub overlap: f32,
    /// Boxes must be larger than this in both directions.
    pub min_size: f32,
}

/// The dimensions and parameters of this call.
pub fn rules(context: &dyn OperationContext) -> Result<ProposalRules, ShapeIssue> {
    let limit = |index| -> Result<Option<u32>, ShapeIssue> {
        Ok(u32::try_from(context.i32(index)?).ok().filter(|limit| *limit > 0))
    };
    let height_stride = positive_float(context, 4, "heightStride")?;
    let width_stride = positive_float(context, 5, "widthStride")?;
    let (compared, proposals) = (limit(6)?, limit(7)?);
    let overlap = not_negative_float(context, 8, "iouThreshold")?;
    let min_size = not_negative_float(context, 9, "minSize")?;
    let nchw = context.bool(10)?;
    let scores = image(context, 0, nchw)?;
    let deltas = scores.channels.checked_mul(BOX_LENGTH).ok_or_else(|| {
        let message = format!(
            "(scores) has {} anchors, whose deltas do not fit a tensor",
            scores.channels
        );
        OpError::input(0, message)
    })?;
    let deltas = Extents {
        channels: deltas,
        ..scores
    };
    exact(context, 1, "deltas", &deltas.dims(nchw))?;
    exact(context, 2, "anchors", &[scores.channels, BOX_LENGTH])?;
    exact(context, 3, "imageInfo", &[scores.batch, 2])?;
    Ok(ProposalRules {
        scores,
        nchw,
        height_stride,
        width_stride,
        compared,
        proposals,
        overlap,
        min_size,
    })
}

fn check(context: &dyn OperationContext) -> Result<(), OpError> {
    check_box_quantization(context, OperationPart::Input(2))?;
    check_box_quantization(context, OperationPart::Input(3))?;
    check_box_quantization(context, OperationPart::Output(1))?;
    context.check_same_quantization(0, 0)?;
    check_known(context, rules)
}
