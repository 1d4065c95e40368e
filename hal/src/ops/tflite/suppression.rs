//! NON_MAX_SUPPRESSION_V4 and V5: the best boxes that do not overlap too much, filled up to a fixed number.

use crate::ops::boxes::BOX_LENGTH;
use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::shape_of;
use crate::ops::signature::{Form, Param, Rank, Ty, join};
use crate::{OperandType as T, Shape, tflite};

const BOXES: Param = Param::new("boxes", Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(2));
const SCORES: Param = Param::new("scores", Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(1));
const MOST: Param = Param::new("max_output_size", Ty::Is(T::TENSOR_INT32));

const fn threshold(name: &'static str) -> Param {
    Param::new(name, Ty::Is(T::TENSOR_FLOAT32))
}

const V4_INPUTS: [Param; 5] = [
    BOXES,
    SCORES,
    MOST,
    threshold("iou_threshold"),
    threshold("score_threshold"),
];

const V5_INPUTS: [Param; 6] = join(&[&V4_INPUTS, &[threshold("soft_nms_sigma")]]);

const V4: OperationEntry = OperationEntry {
    operation: tflite::NON_MAX_SUPPRESSION_V4,
    variants: &[],
    forms: &[Form::default(&V4_INPUTS)],
    outputs: &[
        Param::integers("selected_indices"),
        Param::integers("num_selected"),
    ],
    outputs_repeat: false,
    check: no_further_rule,
    shape: ShapeRule::Infer(selected),
};

pub(super) const ENTRIES: &[OperationEntry] = &[
    V4,
    OperationEntry {
        operation: tflite::NON_MAX_SUPPRESSION_V5,
        forms: &[Form::default(&V5_INPUTS)],
        outputs: &[
            Param::integers("selected_indices"),
            Param::new("selected_scores", Ty::Is(T::TENSOR_FLOAT32)).rank(Rank::Is(1)),
            Param::integers("num_selected"),
        ],
        ..V4
    },
];

/// As many as may be selected, and in the last output their number.
fn selected(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let (boxes, scores) = (context.shape_of_rank(0, 2)?, context.shape_of_rank(1, 1)?);
    if boxes.dim(1) != BOX_LENGTH || boxes.dim(0) != scores.dim(0) {
        let message = format!(
            "(boxes) has dimensions {boxes:?}, must have [{}, {BOX_LENGTH}] as there are scores",
            scores.dim(0)
        );
        return Err(OpError::input(0, message).into());
    }
    let most = context.i32(2)?;
    let most = u32::try_from(most).map_err(|_| {
        let message = format!("(max_output_size) is {most}, must not be negative");
        OpError::input(2, message)
    })?;
    let Some((count, lists)) = outputs.split_last_mut() else {
        return Err(OpError::output(0, "is missing").into());
    };
    *count = shape_of(&[1])?;
    lists.fill(shape_of(&[most])?);
    Ok(())
}
