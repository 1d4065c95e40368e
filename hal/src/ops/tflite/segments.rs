//! Reductions of the rows of a tensor, segment by segment: SEGMENT_SUM and those of unsorted segments.

use crate::ops::context::{OpError, OperationContext, ShapeIssue};
use crate::ops::operation_entry::{OperationEntry, ShapeRule, no_further_rule};
use crate::ops::shapes::{set, shape_of};
use crate::ops::signature::{Form, Param, Rank, Ty};
use crate::{MAX_RANK, OperandType as T, OperationType, Shape, tflite};

use super::types::NUMBERS;

const DATA: Param = Param::new("data", Ty::Var(0)).rank(Rank::Between(1, MAX_RANK));

const UNSORTED: &[Form] = &[Form::default(&[
    DATA,
    Param::integers("segment_ids"),
    Param::new("num_segments", Ty::Is(T::TENSOR_INT32)),
])];

const OUTPUT: &[Param] = &[Param::new("output", Ty::Var(0))];

const fn unsorted(operation: OperationType) -> OperationEntry {
    OperationEntry {
        operation,
        variants: NUMBERS,
        forms: UNSORTED,
        outputs: OUTPUT,
        outputs_repeat: false,
        check: no_further_rule,
        shape: ShapeRule::Infer(as_many_as_said),
    }
}

pub(super) const ENTRIES: &[OperationEntry] = &[
    OperationEntry {
        forms: &[Form::default(&[DATA, Param::integers("segment_ids")])],
        shape: ShapeRule::Infer(as_many_as_named),
        ..unsorted(tflite::SEGMENT_SUM)
    },
    unsorted(tflite::UNSORTED_SEGMENT_SUM),
    unsorted(tflite::UNSORTED_SEGMENT_PROD),
    unsorted(tflite::UNSORTED_SEGMENT_MAX),
    unsorted(tflite::UNSORTED_SEGMENT_MIN),
];

/// One row for each segment; each row of the data needs to name one.
fn segments(context: &dyn OperationContext, count: i64) -> Result<Shape, ShapeIssue> {
    let (mut shape, ids) = (context.shape(0)?, context.shape_of_rank(1, 1)?);
    let rows = shape.dims().first().copied().unwrap_or(0);
    if ids.dim(0) != rows {
        let message = format!(
            "(segment_ids) has {} elements, must have {rows} as input 0 has rows",
            ids.dim(0)
        );
        return Err(OpError::input(1, message).into());
    }
    if let Some(extent) = shape.dims_mut().first_mut() {
        *extent = u32::try_from(count)
            .map_err(|_| OpError::operation(format!("has {count} segments, must not be below 0")))?;
    }
    Ok(shape_of(shape.dims())?)
}

/// The last row names the last segment.
fn as_many_as_named(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let last = context.i32s(1)?.last().copied().unwrap_or(-1);
    set(outputs, 0, segments(context, i64::from(last) + 1)?)
}

fn as_many_as_said(context: &dyn OperationContext, outputs: &mut [Shape]) -> Result<(), ShapeIssue> {
    let count = context.i32(2)?;
    set(outputs, 0, segments(context, count.into())?)
}
